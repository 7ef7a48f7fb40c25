#pragma once
// What lockstep-rank is, by its arguments: a parent of ranks, a node's agent, or one rank that somebody has started.

#include "harness/jobs/parent.h"

namespace lockstep {

/// The whole `main` of a rank program: reads its arguments and serves, or is the one rank that a run with
/// executed ranks, or another launcher, has started it for. `description` is what --version prints.
int rank_program_main(int argc, char** argv, const char* description, const RankProgram& program);

}  // namespace lockstep
