#pragma once
// Ranks that stay up and play one case of rewards after the other over Gloo, instead of training.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

/// Plays the orders of run.json's `reward_cases` and writes an answer a line to rank-<r>.answers, each as soon as it is
/// known. Returns the exit status: 0, or 1 if it threw. A rank that an order lets end is killed.
int play_reward_cases(const std::string& run_dir, int rank, const nlohmann::json& reward_cases);

}  // namespace lockstep
