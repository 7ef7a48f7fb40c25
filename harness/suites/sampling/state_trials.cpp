// Initial states: none twice in a round, whatever the number of ranks, and all of them in each epoch; seeds
// of environments.

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/counted.h"
#include "harness/base/hashing.h"
#include "harness/lib/data/sharding/seeds.h"
#include "harness/lib/data/sharding/states.h"
#include "harness/suites/sampling/trials.h"

namespace lockstep::sampling {
namespace {

using sharding::InitialStates;
using sharding::StateDraws;

constexpr uint64_t kEnvironment = 0x656e76;  // "env"

/// A task's rounds to be tried.
struct StatesCase {
  int64_t states = 1, a_round = 1;
  int ranks = 1;
  uint64_t seed = 0;
  int64_t rounds() const { return 3 * states / a_round + 2; }
  std::string words() const {
    return fmt::format("{} states, {} a round, {}", states, a_round, counted(ranks, "rank"));
  }
};

/// By its place in the round, so that it is the same on any number of ranks.
uint64_t environment_seed(uint64_t seed, int64_t round, int64_t place) {
  return sharding::keyed_seed(kEnvironment,
                              {.run = static_cast<int64_t>(seed), .rank = place, .epoch = round});
}

StateDraws drawn(const StatesCase& each) {
  InitialStates states({each.states, each.a_round, each.seed, 0});
  StateDraws draws{each.states, {}, {}};
  for (int64_t round = 0; round < each.rounds(); ++round) {
    draws.drawn.emplace_back();
    draws.environment_seeds.emplace_back();
    for (int rank = 0; rank < each.ranks; ++rank) {
      draws.drawn.back().push_back(states.of_rank(round, rank, each.ranks));
      auto& seeds = draws.environment_seeds.back().emplace_back();
      for (int64_t place = rank; place < each.a_round; place += each.ranks)
        seeds.push_back(environment_seed(each.seed, round, place));
    }
  }
  return draws;
}

/// What all ranks draw in each round, sorted.
std::vector<std::vector<int64_t>> unions(const StateDraws& draws) {
  std::vector<std::vector<int64_t>> all;
  for (const auto& round : draws.drawn) {
    auto& states = all.emplace_back();
    for (const auto& each : round) states.insert(states.end(), each.begin(), each.end());
    std::ranges::sort(states);
  }
  return all;
}

/// Partitions a list of places of all rounds as `drawn` does.
void partition(const StatesCase& each, const std::vector<int64_t>& places, StateDraws& draws) {
  for (std::size_t round = 0; round < draws.drawn.size(); ++round) {
    for (auto& states : draws.drawn[round]) states.clear();
    for (int64_t place = 0; place < each.a_round; ++place)
      draws.drawn[round][static_cast<std::size_t>(place % each.ranks)].push_back(
          places[round * static_cast<std::size_t>(each.a_round) + static_cast<std::size_t>(place)]);
  }
}

/// The states of all rounds in one list, under a rule for a place's epoch and for its place in it.
std::vector<int64_t> permutations(const StatesCase& each, bool keyed_by_epoch) {
  std::vector<int64_t> places;
  const int64_t wanted = each.rounds() * each.a_round;
  for (int64_t epoch = 0; static_cast<int64_t>(places.size()) < wanted; ++epoch) {
    InitialStates whole({each.states, each.states, keyed_by_epoch ? keyed(each.seed, epoch) : each.seed, 0});
    const std::vector<int64_t> order = whole.round(0);
    places.insert(places.end(), order.begin(), order.end());
  }
  return places;
}

struct StateMistake {
  std::string_view name, words, expected;
  /// False: it cannot show in this case.
  bool (*plant)(const StatesCase& each, StateDraws& draws);
};

constexpr StateMistake kStateMistakes[] = {
    {"equal_environment_seeds", "all ranks seed their environments alike", "equal_environment_seeds",
     [](const StatesCase& each, StateDraws& draws) {
       if (each.ranks < 2 || each.a_round < each.ranks) return false;
       for (auto& round : draws.environment_seeds) {
         for (std::size_t rank = 1; rank < round.size(); ++rank) {
           const std::vector<uint64_t> first(
               round[0].begin(), round[0].begin() + static_cast<std::ptrdiff_t>(round[rank].size()));
           round[rank] = first;
         }
       }
       // Ranks with as many as rank 0 are those that can be told.
       return draws.environment_seeds[0][0].size() == draws.environment_seeds[0][1].size();
     }},
    {"epoch_key_forgotten", "every epoch draws in the order of the first", "epoch_order_repeats",
     [](const StatesCase& each, StateDraws& draws) {
       if (each.states < 10 || each.states % each.a_round != 0) return false;
       partition(each, permutations(each, false), draws);
       return true;
     }},
    {"round_over_the_edge", "a round over an epoch's end takes what comes first in the next", "state_twice",
     [](const StatesCase& each, StateDraws& draws) {
       if (each.states % each.a_round == 0) return false;
       partition(each, permutations(each, true), draws);
       return std::ranges::any_of(
           unions(draws), [](const auto& round) { return std::ranges::adjacent_find(round) != round.end(); });
     }},
    {"with_replacement", "each rank draws for itself", "state_twice",
     [](const StatesCase& each, StateDraws& draws) {
       for (std::size_t round = 0; round < draws.drawn.size(); ++round) {
         for (std::size_t rank = 0; rank < draws.drawn[round].size(); ++rank) {
           for (std::size_t i = 0; i < draws.drawn[round][rank].size(); ++i)
             draws.drawn[round][rank][i] =
                 static_cast<int64_t>(keyed(each.seed, round, rank, i) % static_cast<uint64_t>(each.states));
         }
       }
       return std::ranges::any_of(
           unions(draws), [](const auto& round) { return std::ranges::adjacent_find(round) != round.end(); });
     }},
    {"state_never_drawn", "the last state is never drawn, the first one in its place", "state_left_out",
     [](const StatesCase& each, StateDraws& draws) {
       if (each.states < 3 || each.a_round != 1) return false;
       for (auto& round : draws.drawn) {
         for (auto& states : round) std::ranges::replace(states, each.states - 1, int64_t{0});
       }
       return true;
     }},
};

class StateTrials final : public Suite {
 public:
  explicit StateTrials(const SamplingConfig& config) : config_(config) {}

  std::vector<std::string> plan() const override {
    return {
        fmt::format("states: 1 to 97 initial states, rounds of 1 to all of them, 1 to {} ranks, three epochs "
                    "and more; one's own "
                    "{}, {} a round",
                    config_.most_ranks, counted(config_.states, "state"), config_.states_a_round)};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> all;
    for (const int64_t states : kStates) {
      Trial planned;
      planned = {fmt::format("states:{}", states), "initial states", "drawn by all ranks", 0.1};
      planned.run = [this, states](Slot&) {
        Cases cases;
        for_cases(states, [&](const StatesCase& each) { audit(each, cases); });
        return cases.take();
      };
      all.push_back(std::move(planned));
    }
    if (config_.has_many_ranks()) {
      Trial many;
      many = {"states:many-ranks", "initial states", "drawn by all ranks", 0.5};
      many.run = [this](Slot&) {
        Cases cases;
        for_many_ranks([&](const StatesCase& each) { audit(each, cases); });
        return cases.take();
      };
      all.push_back(std::move(many));
    }
    Trial job;
    job = {"job:states", "one's own job", "initial states", 0.1};
    job.run = [this](Slot&) {
      Cases cases;
      audit({config_.states, config_.states_a_round, static_cast<int>(config_.ranks),
             static_cast<uint64_t>(config_.seed)},
            cases);
      return cases.take();
    };
    all.push_back(std::move(job));
    if (config_.planted) add_planted(all);
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"rounds of initial states, none twice, the same on any number of ranks", with_commas(m.count("state rounds"))}};
  }

 private:
  static constexpr int64_t kStates[] = {1, 2, 3, 5, 8, 16, 24, 50, 97};

  template <class Each>
  void for_cases(int64_t states, Each each) const {
    for (const int64_t a_round :
         {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{8}, int64_t{16}, states - 1, states}) {
      if (a_round < 1 || a_round > states) continue;
      for (int ranks = 1; ranks <= config_.most_ranks; ++ranks)
        each(StatesCase{states, a_round, ranks, static_cast<uint64_t>(config_.seed)});
    }
  }

  /// As many as one's own job has, if that is many: epochs of whole rounds, and rounds that go over an epoch's end.
  template <class Each>
  void for_many_ranks(Each each) const {
    if (!config_.has_many_ranks()) return;
    for (const int64_t states : {2 * config_.ranks, 2 * config_.ranks + 1})
      each(StatesCase{states, config_.ranks, static_cast<int>(config_.ranks),
                      static_cast<uint64_t>(config_.seed)});
  }

  void audit(const StatesCase& each, Cases& cases) {
    const StateDraws draws = drawn(each);
    measured().add("state rounds", each.rounds());
    StatesCase alone = each;
    alone.ranks = 1;
    if (unions(drawn(alone)) != unions(draws))
      return cases.fault("other states on other ranks", each.words() + ": one rank draws other states");
    judge_finding(cases, sharding::audit_states(draws), each.words());
  }

  void add_planted(std::vector<Trial>& all) {
    for (const StateMistake& mistake : kStateMistakes) {
      all.push_back(
          planted_trial(mistake.name, mistake.words, "initial states", 0.2, {std::string(mistake.expected)},
                        [this, &mistake](MutationCheck& check) {
                          const auto plant = [&](const StatesCase& each) {
                            StateDraws draws = drawn(each);
                            if (!mistake.plant(each, draws)) return;
                            const sharding::Finding finding = sharding::audit_states(draws);
                            check.saw(finding.code, fmt::format("{}: {}", each.words(), finding.sentence));
                          };
                          for (const int64_t states : kStates) for_cases(states, plant);
                          for_many_ranks(plant);
                        }));
    }
    all.push_back(planted_trial("chunk_local_index", "a request's seed is its index within its chunk",
                                "initial states", 0.1, {"chunk_index_seeds"}, [](MutationCheck& check) {
                                  for (const std::size_t chunk : {192, 8, 1, 100}) {
                                    StateDraws draws{1, {}, {{{}}}};
                                    for (std::size_t i = 0; i < 768; ++i)
                                      draws.environment_seeds[0][0].push_back(1000 + i % chunk);
                                    const sharding::Finding finding = sharding::audit_states(draws);
                                    check.saw(finding.code, finding.sentence);
                                  }
                                }));
  }

  const SamplingConfig config_;
};

}  // namespace

std::unique_ptr<Suite> make_state_trials(const SamplingConfig& config) {
  return std::make_unique<StateTrials>(config);
}

}  // namespace lockstep::sampling
