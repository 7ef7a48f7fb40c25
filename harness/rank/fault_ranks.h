#pragma once
// One rank of a program of the labelled suite (harness/fault_cases).

#include <nlohmann/json_fwd.hpp>

#include "harness/rank/rank_task.h"

namespace lockstep {

/// Meets the others, runs the program, writes rank-<r>.result.json and returns the exit status. `fault_case`: the section of
/// run.json. When its fault is about to act, the rank writes the monotonic clock into RUN/acted.
int play_fault_case(const RankTask& task, const nlohmann::json& fault_case);

}  // namespace lockstep
