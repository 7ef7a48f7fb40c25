#pragma once
// The section `sampling` of a config.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/lib/data/sharding/tasks.h"
#include "harness/suites/engine/kinds.h"

namespace lockstep::sampling {

/// What is tried.
enum class Experiment { all, sampler, tasks, states, counter, seeds, control };
WordList words_of(Experiment experiment);

/// Cases of every number of ranks from 1 on go up to so many, as their number grows with the square.
inline constexpr int kMostOfEach = 64;
inline constexpr int kMostRanks = 4096;  ///< of one's own job

struct SamplingConfig {
  Experiment experiment = Experiment::all;
  int64_t seed = 0;
  int64_t most_samples = 257;
  int64_t most_ranks = 16;
  int64_t epochs = 3;
  bool planted = true;
  // One's own job, which is tried beside the others.
  int64_t samples = 1404;
  int64_t ranks = 8;
  bool drop_last = true;
  int64_t states = 50;
  int64_t states_a_round = 16;
  int64_t episodes = 10;
  std::vector<sharding::Task> tasks;  ///< with their measured costs; none: those of the suite
  std::vector<int> round;             ///< the tasks of a round, by their place in `tasks`; none: all

  /// Does one's own job have more ranks than any of the other cases may have? Then they are tried at its number, too.
  bool has_many_ranks() const { return ranks > kMostOfEach; }
  /// 1 to most_ranks, and one's own if it has many.
  std::vector<int> numbers_of_ranks() const;
};

/// Reports, with places: fewer samples than ranks, fewer states than a round draws, a round's task that is
/// unknown or named twice, too few episodes to give every rank a task.
SamplingConfig read_sampling_config(const SuiteSource& source, Problems& problems);
nlohmann::ordered_json sampling_schema();

/// The tasks of a round.
std::vector<sharding::Task> round_of(const SamplingConfig& config);

}  // namespace lockstep::sampling
