#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/preemption/preemption.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/trainers/core/update.h"

// All that a run goes on from, put into the kinds of a checkpoint and taken out of them.

namespace lockstep {

/// How a step and a place of the sampler's permutation become each other.
struct SamplerSteps {
  std::function<checkpoint::SamplerPosition(int64_t step)> position_at;  ///< before that step
  /// The inverse; sets `problem` where no step of this run begins there.
  std::function<int64_t(const checkpoint::SamplerPosition&, std::string& problem)> step_at;
};

/// What counts along with the steps. In a run that was never stopped, or that goes on as it should, all are one number:
/// the first step that is still to be trained.
struct StepCounters {
  int64_t rate = 0;     ///< at which the rule of the learning rate stands
  int64_t samples = 0;  ///< whose rows come next
  int64_t draws = 0;    ///< by which random draws are keyed
};

/// The best evaluation so far, as all ranks know it.
struct BestEvaluation {
  double value = 0;
  int64_t step = -1;  ///< -1: there was none
};

/// One rank's parts of a run that a checkpoint takes in, beside the trainer's own.
struct TrainingParts {
  const RankContext& context;
  Update& update;
  const SamplerSteps& sampler;
  StepCounters& counters;
  BestEvaluation& best;
  std::string best_metric;
  RankResult& result;  ///< its curves
};

/// Planted: a kind that is not put back, and no look at whether it was.
struct LeftOut {
  std::string kind;
  bool unchecked = false;
};

/// Puts a state that has been loaded into the run, and holds what stands in the run then against what was loaded. Throws
/// std::runtime_error naming the kind, what was expected and what was seen.
void restore(const TrainingParts& parts, const checkpoint::LoadOutcome& loaded, const LeftOut& left_out = {});

// A run's checkpoints, as its loop sees them: where it goes on, when it saves, and when it stops because it was told to.

/// What one rank's checkpoints stand on; all of it outlives them.
struct CheckpointSetup {
  std::string root;
  checkpoint::Storage* storage = nullptr;
  checkpoint::Group* saving = nullptr;    ///< of saves and loads alone
  checkpoint::Group* agreeing = nullptr;  ///< of what ranks agree on after each step
  const PreemptionSignals* signals = nullptr;
  SamplerSteps sampler;
  bool fresh_start = true;    ///< if there is no checkpoint and nothing tells of one, the run begins
  /// Where this rank's trace is written until it holds what an interrupted attempt's trace holds, and where that stands
  std::string new_trace, trace;
  std::string config_hash;    ///< training_hash of the run's config
  /// Planted: a kind that saves leave out, or that a load does not put back; then without a look at what stands in the run.
  std::string not_saved = {}, not_restored = {};
  bool unchecked = false;
  checkpoint::Planted mistakes = {};
};

class Checkpoints {
 public:
  Checkpoints(const RankContext& context, const CheckpointSetup& setup, Update& update, RankResult& result);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// The newest checkpoint that is whole, or the beginning. Throws std::runtime_error saying why it refuses.
  int64_t find();
  /// Puts into the run what `find` found. The run's buckets have taken their shape before.
  void restore();
  /// Writes the steps before the one that the run goes on with as the interrupted attempt's trace has them. Then this
  /// attempt's trace takes the place of that one.
  void take_over_trace(int64_t begin);
  const StepCounters& counters() const { return counters_; }

  /// Must the run end before it trains? Collective.
  bool stops_at_begin();
  /// After a step, with its evaluation: agrees on the evaluation and on whether to stop, and saves if it is due.
  /// Collective. True: the run ends here. `last`: it has trained to its end, and no signal stops it any more.
  bool after_step(int64_t done, bool evaluated, bool last);
  /// Waits for the save under way. Throws std::runtime_error if a save failed and the config requires them.
  void finish();

 private:
  bool agree(int64_t done, bool evaluated);
  std::string copy_trace(int64_t begin, int64_t& next);
  bool is_best_now(int64_t done) const;
  void save(int64_t done);
  void note(const std::optional<checkpoint::SaveOutcome>& outcome);
  void stop(int64_t done);
  TrainingParts parts(BestEvaluation& best);

  const RankContext& context_;
  const CheckpointSetup& setup_;
  Update& update_;
  RankResult& result_;
  const CheckpointConfig& config_;
  double deadline_s_;
  StepCounters counters_;
  BestEvaluation best_;       ///< of those whose state was saved
  BestEvaluation evaluated_;  ///< the newest
  BestEvaluation candidate_;  ///< what `best_` is when the save whose outcome is not known yet has committed
  std::string metric_;
  bool higher_is_better_ = true;
  checkpoint::LoadOutcome loaded_;
  Preemption preemption_;
  checkpoint::Saver saver_;
  int64_t last_saved_ = 0;  ///< the step of the newest checkpoint that stands
};

}  // namespace lockstep
