#pragma once

#include <string>
#include <vector>

#include "harness/cli/doctor/check.h"

// What `doctor` finds, and how it says so.

namespace lockstep {

std::string checks_text(const std::vector<Check>& checks, bool colour);
std::string checks_json(const std::vector<Check>& checks);
bool fit_to_run(const std::vector<Check>& checks);

/// Cores, memory, threads, descriptors, programs, data, disk of `out`: what can be seen without starting anything.
std::vector<Check> machine_checks(const std::string& out);

/// The tiny matrix of two real ranks that the last check runs.
const char* all_reduce_matrix();

/// Runs two real ranks over the launcher for two steps and compares what each got out of the reductions.
Check all_reduce_check(const std::string& rank_program);

/// Do the traces in `run_dir` hold reduced gradients, and the same ones on both ranks? Empty if so, else what
/// is wrong.
std::string disagreement_of_ranks(const std::string& run_dir);

}  // namespace lockstep
