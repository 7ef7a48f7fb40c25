#pragma once
// What one rank's checkpoints stand on: its folder, its groups, the sampler's positions, and what a suite does to them.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/preemption/preemption.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/trainers/core/checkpoints.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// A rank's groups: of saves, which may be asynchronous, and of what ranks agree on after each step.
struct RankGroups {
  std::unique_ptr<checkpoint::Group> saving, agreeing;
};

/// Steps of a run as places of the sampler's permutations, and back.
SamplerSteps sampler_steps(const RunConfig& config, int64_t samples);

/// One rank's storage and groups. `planted` is what run.json says under that key, from a suite:
///
///   record          true: writes the operations on checkpoints to operations-R.jsonl, a line each
///   rank, operation, signal   the process of that rank gets the signal before its operation of that number
///   not_saved, not_restored   a kind of state that saves leave out, or that a load does not put back
///   unchecked       true: and nobody looks whether it was
///   mistake         of the saver: "one_file_name"
class RankCheckpoints {
 public:
  RankCheckpoints(const std::string& run_dir, const nlohmann::json& planted, const RunConfig& config, int rank,
                  RankGroups groups);
  ~RankCheckpoints();
  RankCheckpoints(const RankCheckpoints&) = delete;
  RankCheckpoints& operator=(const RankCheckpoints&) = delete;

  CheckpointSetup setup(const std::string& trace, const SamplerSteps& steps, const PreemptionSignals& signals);

 private:
  struct Hooked;
  std::string run_dir_, not_saved_, not_restored_, config_hash_;
  bool unchecked_ = false;
  checkpoint::Planted mistakes_;
  RankGroups groups_;
  std::unique_ptr<Hooked> hooked_;  ///< or none
};

}  // namespace lockstep
