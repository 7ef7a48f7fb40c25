#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/trainers/core/checkpoints.h"
#include "harness/trainers/core/task.h"
#include "harness/verdict/trace/rank_result.h"

// The training loop of one rank, and the forced loop that computes gradients at another run's parameters.

namespace lockstep {

/// Trains config->steps steps (or stop_after). Fills curves, metrics and timing of `result`. `resume_trace`: rank 0's trace of
/// the run that it goes on from, which holds a snapshot of config->resume_step; empty: it begins. `setup`: what its checkpoints
/// stand on; null: it has none. Returns 0, or the exit code of a run that a signal stopped after an agreed step.
int train(const RankContext& context, RankResult& result, const std::string& resume_trace = {},
          const CheckpointSetup* setup = nullptr);

/// At each of config->forced.steps: loads the snapshot of `trace_path` (rank 0's trace of the run that
/// training came from), computes and reduces the gradients there, updates, and keeps all of it whole; in one
/// process the sizes of the gradients' terms too. `choosing_path`: this
/// rank's trace of the run whose scores decide which candidates a row takes; empty: its own do. Throws
/// std::runtime_error if a snapshot is missing, or such scores.
void compute_forced(const RankContext& context, const std::string& trace_path, const std::string& choosing_path,
                    RankResult& result);

// Scores of another run by which a loss that takes some of a row's candidates chooses them.

/// By step, of each micro-step [rows, columns] in float64: the scores of that name that a rank's trace kept whole. Throws
/// std::runtime_error naming a step of which it holds none.
std::map<int64_t, std::vector<at::Tensor>> read_choosing(const std::string& trace_path, const std::vector<int64_t>& steps,
                                                         std::string_view scores);

}  // namespace lockstep
