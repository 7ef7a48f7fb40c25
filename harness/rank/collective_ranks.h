#pragma once
// One rank of the laboratory of collectives.

#include <nlohmann/json_fwd.hpp>

#include "harness/rank/rank_task.h"

namespace lockstep {

/// Meets the others, calls what the section `collectives` of run.json asks for, writes its answers into
/// rank-<r>.collectives.json, and returns the exit status.
int play_collectives(const RankTask& task, const nlohmann::json& section);

}  // namespace lockstep
