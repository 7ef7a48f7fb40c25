#pragma once
// Judges what lies on disk; launches nothing.

#include <map>
#include <string>
#include <vector>

#include "harness/verdict/plan/plan.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

struct JudgeOptions {
  std::string out_dir;
  std::string command;                      ///< "lockstep run configs/x.yaml", for the rerun lines
  std::map<std::string, Failure> failures;  ///< by run id, as the launcher saw them
  int jobs = 1;                             ///< threads
  bool outcomes_only =
      false;  ///< verdicts by outcome and nothing else: all that a look of `seeds: auto` asks
};

/// Verdicts of every cell of the plan, from the traces and rank results under out_dir/runs.
Results judge_matrix(const Plan& plan, const JudgeOptions& options);

/// The exit code of a finished matrix from its cells: first of 7, 2, 3, 4, 1, 5 that occurred, else 0; 6 if
/// no cell.
int exit_code_of(const Results& results);

}  // namespace lockstep
