#pragma once
// A run of the toy trainer on one rank: it begins or goes on from the newest checkpoint, trains, saves, and ends at
// its last step, when its patience is at its end, or when it is told to.

#include <functional>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/preemption/preemption.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/checkpoint/toy_trainer/config.h"
#include "harness/suites/checkpoint/toy_trainer/record.h"
#include "harness/suites/checkpoint/toy_trainer/trainer.h"

namespace lockstep::toy {

/// Where a run is, for whoever wants to disturb it there.
enum class Phase { start, step, evaluation, save, saved, last_save };

struct RunOptions {
  Config config;
  std::string root;        ///< of the checkpoints
  int64_t until = 0;       ///< the last step
  int64_t save_every = 0;  ///< steps; 0: the last one alone
  bool save_last = true;   ///< whatever save_every says
  bool asynchronous = false;
  int keep_last = 3;
  double deadline_s = 60;
  double grace_s = 30;
  std::function<void(const StepRecord&)> on_step = {};
  std::function<void(Phase, int64_t step)> on_phase = {};
  std::function<void(const checkpoint::SaveOutcome&)> on_committed = {};
};

struct RunEnd {
  int64_t began_at = 0, ended_at = 0;  ///< steps
  checkpoint::State state;             ///< this rank's, at the end
  std::vector<std::string> refused;    ///< newer checkpoints that the load passed over
  int exit_code = 0;                   ///< that of a preemption, if the run was told to end
  bool in_grace = true;
  std::string problem;  ///< why it did not come to its end; empty: it did
};

/// One rank. `training` carries the steps, `saving` belongs to load and saver. `signals`: may be null.
RunEnd run_rank(const RunOptions& options, checkpoint::Storage& storage, checkpoint::Group& training,
                checkpoint::Group& saving, const PreemptionSignals* signals);

/// All ranks of a run, each a thread of this process.
std::vector<RunEnd> run_threads(const RunOptions& options, int ranks, checkpoint::Storage& storage,
                                const std::function<void(int rank, const StepRecord&)>& on_step = {});

}  // namespace lockstep::toy
