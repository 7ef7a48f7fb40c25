#pragma once
// What lockstep-rank is, by its arguments: a parent of ranks, a node's agent, or one rank that somebody has started.

#include <functional>
#include <string>

#include "harness/rank/rank_task.h"

namespace lockstep {

/// What a rank program does.
struct RankProgram {
  std::function<int(const RankTask&)> run;  ///< one rank, or all of a run: returns the exit status
  /// Called before the ranks of a run are forked, which share what it has made. It runs no tensor, and nothing that it throws
  /// escapes: a rank will find the same. May be empty.
  std::function<void(const std::string& run_dir)> make_ready = {};
};

/// The whole `main` of a rank program: reads its arguments and serves, or is the one rank that a run with
/// executed ranks, or another starter, has started it for. `description` is what --version prints.
int rank_program_main(int argc, char** argv, const char* description, const RankProgram& program);

}  // namespace lockstep
