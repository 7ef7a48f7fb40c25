#pragma once
// A rank that torchrun, srun, mpirun or Kubernetes has started: lockstep-rank run FOLDER (or --run FOLDER: torchrun takes
// that for an option of its own). This process says which rank
// it is, meets the others, forks the rank and watches it; its word on the rank's end stands in rank-R.exit.json.

#include <functional>
#include <string>
#include <vector>

#include "harness/jobs/rank_task.h"

namespace lockstep {

/// `arguments`, after run: the run's folder, then any of
///
///   --prepared[=ATTEMPT]  lockstep has made the folder for this start (Watcher::attempt); else rank 0 makes what is missing in it
///   --mixed               ranks of different builds or processors are fine
///   --within SECONDS      from the start of this process, for all ranks to be there and to answer; by default 120
///   and those of resolve_rank_environment (harness/run/rank_environment.h)
///
/// Returns the process's exit status: the rank's own (128 + the signal that ended it); 2 if it cannot be said which rank
/// this is, or the run wants another world; 4 if the others do not come or cannot be reached.
int started_rank_main(const std::vector<std::string>& arguments, const std::function<int(const RankTask&)>& run_rank);

}  // namespace lockstep
