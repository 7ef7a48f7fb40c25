#pragma once
// One node's part of a job: a rank parent that lockstep, on another node, commands over TCP.

#include <functional>
#include <string>

#include "harness/rank/rank_main.h"

namespace lockstep {

/// lockstep-rank --agent HOST:PORT KEY: connects, says in one line who it is (harness/launch/slurm/agents.h) and serves
/// commands as serve_ranks does. Returns the exit status: 4 if nobody is there to connect to.
int agent_main(const std::string& place, const std::string& key, const std::function<int(const RankTask&)>& run_rank);

}  // namespace lockstep
