#include "harness/suites/checkpoint/trainer/experiment.h"

#include <fmt/format.h>

#include <array>

#include "harness/base/errors.h"
#include "harness/suites/checkpoint/trainer/judge.h"

namespace lockstep::restarts {

std::span<const ExperimentKind> experiment_kinds() {
  static constexpr std::array<ExperimentKind, 6> kKinds{{
      {"kill", "SIGKILL before every operation of a save on each rank, then the run goes on", &make_kills},
      {"resume", "a run goes on from each of its steps, once and twice in a row", &make_resumes},
      {"left_out", "a kind of state that a save leaves out, or that a load does not put back", &make_left_out},
      {"reshard", "a run goes on with another number of ranks, in exact arithmetic", &make_reshards},
      {"cycle", "a run of 4 ranks is killed at random moments and started again", &make_cycles},
      {"preempt", "SIGTERM or SIGUSR1 to one rank or to all at random moments, then the run goes on", &make_preemptions},
  }};
  return kKinds;
}

RunConfig shaped(const RunConfig& config, const Shape& shape) {
  RunConfig run = config;
  const int batch = config.layout.global_batch();
  if (batch % shape.ranks != 0) {
    throw ConfigError(fmt::format("trainer.cell: its batch of {} rows cannot be shared by {} ranks; take a layout whose "
                                  "batch can",
                                  batch, shape.ranks));
  }
  run.layout = {shape.ranks, batch / shape.ranks};
  run.backend = shape.ranks > 1 ? Backend::gloo : Backend::emulated;
  run.steps = shape.steps;
  run.stop_after = 0;
  run.checkpoint.every = shape.every;
  run.checkpoint.keep = shape.keep;
  run.checkpoint.async = shape.async;
  run.checkpoint.sharded = shape.sharded;
  return run;
}

std::string reference(Bench& bench, const std::string& name, const RunConfig& config, const Planted& planted) {
  const auto run = [&](const std::string& folder, const Planted& with) {
    std::string dir = bench.empty(folder);
    const Ended ended = bench.attempt(dir, config, with);
    if (!ended.finished()) {
      std::string said;
      for (int rank = 0; rank < config.layout.world_size && said.empty(); ++rank) said = result_of(dir, rank).error;
      throw ConfigError(fmt::format("an uninterrupted run fails ({}): {}", ended.in_words(), said));
    }
    return dir;
  };
  std::string first = run(name, planted);
  const std::string control = run(name + "-control", {});
  const std::string difference = first_difference(first, control, config.layout.world_size);
  if (!difference.empty())
    throw ConfigError("two uninterrupted runs differ, so that nothing could be compared with them: " + difference);
  return first;
}

}  // namespace lockstep::restarts
