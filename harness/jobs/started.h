#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/jobs/parent.h"

// A rank that torchrun, srun, mpirun or Kubernetes has started: lockstep-rank run FOLDER (or --run FOLDER: torchrun takes
// that for an option of its own). This process says which rank
// it is, meets the others, forks the rank and watches it; its word on the rank's end stands in rank-R.exit.json.

namespace lockstep {

// What lockstep-rank is, by its arguments: a parent of ranks, a node's agent, or one rank that somebody has started.

/// The whole `main` of a rank program: reads its arguments and serves, or is the one rank that a run with
/// executed ranks, or another launcher, has started it for. `description` is what --version prints.
int rank_program_main(int argc, char** argv, const char* description, const RankProgram& program);

}  // namespace lockstep
