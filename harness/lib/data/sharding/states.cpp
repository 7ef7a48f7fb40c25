#include "harness/lib/data/sharding/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/base/hashing.h"
#include "harness/base/keyed_draws.h"

namespace lockstep::sharding {
namespace {

constexpr uint64_t kPurpose = 0x7374617465;  // "state"

/// Seeds of requests in their order.
Finding repeats(const std::string& where, const std::vector<uint64_t>& seeds) {
  std::map<uint64_t, std::size_t> first;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    const auto [at, added] = first.emplace(seeds[i], i);
    if (added) continue;
    const std::size_t period = i - at->second;
    bool periodic = first.size() == period && i + 1 < seeds.size();  // One repeat alone has no period.
    for (std::size_t k = period; k < seeds.size() && periodic; ++k) periodic = seeds[k] == seeds[k - period];
    if (periodic)
      return {
          "chunk_index_seeds",
          fmt::format("{}: {} requests have {} seeds, which repeat every {} requests, as the index within a "
                      "chunk does",
                      where, seeds.size(), first.size(), period)};
    return {"repeated_seeds", fmt::format("{}: requests {} and {} of {} have the seed {}", where, at->second,
                                          i, seeds.size(), seeds[i])};
  }
  return {};
}

Finding seeds_problem(std::size_t round, const std::vector<std::vector<uint64_t>>& seeds) {
  std::map<std::vector<uint64_t>, std::size_t> first;
  for (std::size_t rank = 0; rank < seeds.size(); ++rank) {
    if (seeds[rank].empty()) continue;
    const auto [other, added] = first.emplace(seeds[rank], rank);
    if (!added)
      return {"equal_environment_seeds", fmt::format("round {}: ranks {} and {} seed their environments "
                                                     "alike, from {} on, and play the same episodes",
                                                     round, other->second, rank, seeds[rank][0])};
  }
  for (std::size_t rank = 0; rank < seeds.size(); ++rank) {
    if (Finding finding = repeats(fmt::format("round {}, rank {}", round, rank), seeds[rank])) return finding;
  }
  std::vector<uint64_t> all;
  for (const auto& each : seeds) all.insert(all.end(), each.begin(), each.end());
  return repeats(fmt::format("round {}, all ranks", round), all);
}

Finding round_problem(std::size_t round, const std::vector<std::vector<int64_t>>& drawn) {
  std::map<int64_t, std::size_t> owner;
  for (std::size_t rank = 0; rank < drawn.size(); ++rank) {
    for (const int64_t state : drawn[rank]) {
      const auto [at, added] = owner.emplace(state, rank);
      if (added) continue;
      const std::string who = at->second == rank ? fmt::format("rank {} twice", rank)
                                                 : fmt::format("ranks {} and {}", at->second, rank);
      return {"state_twice", fmt::format("round {}: state {} is drawn by {}", round, state, who)};
    }
  }
  return {};
}

/// Places of a round in the order of the partition: place p is rank p mod ranks.
std::vector<int64_t> in_order(const std::vector<std::vector<int64_t>>& drawn) {
  std::vector<int64_t> all;
  for (std::size_t i = 0;; ++i) {
    const std::size_t before = all.size();
    for (const auto& each : drawn) {
      if (i < each.size()) all.push_back(each[i]);
    }
    if (all.size() == before) return all;
  }
}

Finding epochs_problem(const StateDraws& draws) {
  std::vector<int64_t> all;
  for (const auto& round : draws.drawn) {
    const std::vector<int64_t> states = in_order(round);
    all.insert(all.end(), states.begin(), states.end());
  }
  const auto length = static_cast<std::size_t>(draws.states);
  for (std::size_t begin = 0; begin + length <= all.size(); begin += length) {
    std::vector<int64_t> times(length);
    for (std::size_t i = begin; i < begin + length; ++i) ++times[static_cast<std::size_t>(all[i])];
    const auto missing = std::ranges::find(times, 0);
    if (missing != times.end())
      return {"state_left_out",
              fmt::format("epoch {} ended without state {}", begin / length, missing - times.begin())};
    // Few states come in the same order by chance.
    if (begin == 0 || length < 10) continue;
    if (std::equal(all.begin() + static_cast<std::ptrdiff_t>(begin),
                   all.begin() + static_cast<std::ptrdiff_t>(begin + length),
                   all.begin() + static_cast<std::ptrdiff_t>(begin - length)))
      return {"epoch_order_repeats", fmt::format("epoch {} draws the {} in the order of the epoch before",
                                                 begin / length, counted(draws.states, "state"))};
  }
  return {};
}

}  // namespace

InitialStates::InitialStates(const StateOptions& options) : options_(options) {
  if (options.states < 1) throw ConfigError("a task needs at least one initial state");
  if (options.a_round < 1) throw ConfigError("a round needs at least one initial state");
  if (options.a_round > options.states)
    throw ConfigError(fmt::format("a round of {} cannot be drawn without repetition from {}", options.a_round,
                                  counted(options.states, "initial state")));
  begin();
}

void InitialStates::begin() {
  next_round_ = epoch_ = 0;
  order_ = permutation(0);
  at_ = 0;
  last_.clear();
}

std::vector<int64_t> InitialStates::permutation(int64_t epoch) const {
  std::vector<int64_t> order(static_cast<std::size_t>(options_.states));
  std::iota(order.begin(), order.end(), int64_t{0});
  const KeyedDraws draws(keyed(options_.seed, kPurpose, options_.task, epoch));
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + draws.below(i, static_cast<uint32_t>(order.size() - i))]);
  return order;
}

std::vector<int64_t> InitialStates::next() {
  const auto wanted = static_cast<std::size_t>(options_.a_round);
  std::vector<int64_t> states;
  while (states.size() < wanted && at_ < order_.size()) states.push_back(order_[at_++]);
  if (states.size() < wanted) {
    std::vector<int64_t> order, passed_over;
    std::vector<bool> is_held(static_cast<std::size_t>(options_.states));
    for (const int64_t state : states) is_held[static_cast<std::size_t>(state)] = true;
    for (const int64_t state : permutation(++epoch_)) {
      const bool held = is_held[static_cast<std::size_t>(state)];
      if (states.size() == wanted)
        order.push_back(state);
      else
        (held ? passed_over : states).push_back(state);
    }
    order.insert(order.begin(), passed_over.begin(), passed_over.end());
    order_ = std::move(order);
    at_ = 0;
  }
  return states;
}

const std::vector<int64_t>& InitialStates::round(int64_t number) {
  LOCKSTEP_CHECK(number >= 0, "rounds count from 0");
  if (number + 1 == next_round_) return last_;
  if (number < next_round_) begin();
  for (; next_round_ <= number; ++next_round_) last_ = next();
  return last_;
}

std::vector<int64_t> InitialStates::of_rank(int64_t number, int rank, int ranks) {
  const std::vector<int64_t>& all = round(number);
  std::vector<int64_t> mine;
  for (auto place = static_cast<std::size_t>(rank); place < all.size();
       place += static_cast<std::size_t>(ranks))
    mine.push_back(all[place]);
  return mine;
}

Finding audit_states(const StateDraws& draws) {
  for (std::size_t round = 0; round < draws.environment_seeds.size(); ++round) {
    if (Finding finding = seeds_problem(round, draws.environment_seeds[round])) return finding;
  }
  for (std::size_t round = 0; round < draws.drawn.size(); ++round) {
    if (Finding finding = round_problem(round, draws.drawn[round])) return finding;
  }
  return epochs_problem(draws);
}

}  // namespace lockstep::sharding
