#include "harness/verdict/compare/generators.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "harness/base/hex.h"
#include "harness/verdict/compare/step_records.h"

namespace lockstep {
namespace {

constexpr std::string_view kScopes[] = {"process/", "worker ", "device "};

/// One stream of all ranks that have it.
struct Generators {
  std::vector<uint64_t> states;
  std::vector<int> ranks;
  double draws = 0, most = 0;
  bool all_alike() const { return std::ranges::all_of(states, [&](uint64_t state) { return state == states.front(); }); }
};

std::map<std::string, Generators> generators_of(const StepOfRun& step) {
  std::map<std::string, Generators> all;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (const Record* record : records_of(step.ranks[rank], Phase::random)) {
      if (!is_of_a_generator(record->name)) continue;
      Generators& one = all[record->name];
      one.states.push_back(record->stats.hash);
      one.ranks.push_back(static_cast<int>(rank));
      one.draws += record->value;
      one.most = std::max(one.most, record->value);
    }
  }
  return all;
}

}  // namespace

std::string declared_state(const StepOfRun& step, const std::string& stream) {
  if (!step.declared) return "";
  // By its whole name, or by that without its scope.
  for (const std::string_view name : {std::string_view(stream), name_of_generator(stream)}) {
    if (const auto found = step.declared->streams.find(name); found != step.declared->streams.end()) return found->second;
  }
  return "";
}

namespace {

/// Workers of one rank and of several, in one state.
std::optional<Difference> same_state(const StepOfRun& a, const StepOfRun& b, const std::string& stream, const Generators& own,
                                     const Generators* reference) {
  const bool several = reference && reference->states.size() == own.states.size() && !reference->all_alike();
  if (own.states.size() < 2 || own.draws == 0 || !own.all_alike()) return std::nullopt;
  if (declared_state(b, stream) != "rank" && !several) return std::nullopt;
  const int world_size = static_cast<int>(b.ranks.size());
  return difference_at(a.step, Phase::random, std::ssize(own.states) == world_size ? kAllRanks : own.ranks.front(), stream, DivergenceKind::value,
                       "another state on each rank", fmt::format("the state {} on {} ranks", hex16(own.states.front()), own.states.size()), world_size);
}

std::optional<Difference> other_states(const StepOfRun& a, const StepOfRun& b, const std::string& stream, const Generators& own) {
  if (declared_state(b, stream) != "same" || own.all_alike()) return std::nullopt;
  std::map<uint64_t, int> votes;
  for (const uint64_t state : own.states) ++votes[state];
  const uint64_t most = std::ranges::max_element(votes, {}, [](const auto& each) { return each.second; })->first;
  const auto odd = std::ranges::find_if(own.states, [&](uint64_t state) { return state != most; }) - own.states.begin();
  return difference_at(a.step, Phase::random, own.ranks[static_cast<std::size_t>(odd)], stream, DivergenceKind::value, "state " + hex16(most),
                       "state " + hex16(own.states[static_cast<std::size_t>(odd)]), static_cast<int>(b.ranks.size()));
}

/// Draws of all ranks for their rows make those of one process; of a stream that is the same on all ranks each makes them.
std::optional<Difference> other_draws(const StepOfRun& a, const StepOfRun& b, const std::string& stream, const Generators& own,
                                      const Generators* reference, bool same_partition) {
  if (!reference) return std::nullopt;
  const std::string state = declared_state(b, stream);
  const bool by_rank = state == "same" && reference->draws / static_cast<double>(reference->states.size()) != own.draws / static_cast<double>(own.states.size());
  const bool same_layout = same_partition && reference->states.size() == own.states.size();
  const bool in_all = (state == "rank" || same_layout) && reference->draws != own.draws;
  if (!by_rank && !in_all) return std::nullopt;
  return difference_at(a.step, Phase::random, kAllRanks, stream, DivergenceKind::value, fmt::format("{} draws", exact_number(reference->draws)),
                       fmt::format("{} draws", exact_number(own.draws)), static_cast<int>(b.ranks.size()));
}

}  // namespace

bool is_of_a_generator(std::string_view stream) {
  return stream.find('/') != std::string_view::npos &&
         std::ranges::any_of(kScopes, [&](std::string_view scope) { return stream.starts_with(scope); });
}

bool forward_draws_differ(const StepOfRun& a, const StepOfRun& b) {
  constexpr std::string_view kOfTheModel = "model";
  const auto taken = [&](const StepOfRun& step) {
    std::vector<std::tuple<std::size_t, uint64_t, double>> draws;
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      for (const Record* record : records_of(step.ranks[rank], Phase::random)) {
        const bool of_the_model = is_of_a_generator(record->name) && name_of_generator(record->name) == kOfTheModel;
        if (of_the_model && record->value > 0) draws.emplace_back(rank, record->stats.hash, record->value);
      }
    }
    return draws;
  };
  const auto in_a = taken(a), in_b = taken(b);
  return a.ranks.size() == b.ranks.size() ? in_a != in_b : !in_a.empty() || !in_b.empty();
}

void remember_generators(GeneratorHistory& history, const StepOfRun& step) {
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (const Record* record : records_of(step.ranks[rank], Phase::random)) {
      if (is_of_a_generator(record->name)) history[step.step][record->name][static_cast<int>(rank)] = record->stats.hash;
    }
  }
}

std::string_view name_of_generator(std::string_view stream) { return stream.substr(stream.find('/') + 1); }

std::optional<Difference> generators_difference(const StepOfRun& a, const StepOfRun& b, bool same_partition) {
  const std::map<std::string, Generators> expected = generators_of(a);
  for (const auto& [stream, own] : generators_of(b)) {
    const auto found = expected.find(stream);
    const Generators* reference = found == expected.end() ? nullptr : &found->second;
    if (auto difference = same_state(a, b, stream, own, reference)) return difference;
    if (auto difference = other_states(a, b, stream, own)) return difference;
    if (auto difference = other_draws(a, b, stream, own, reference, same_partition)) return difference;
  }
  return std::nullopt;
}

}  // namespace lockstep
