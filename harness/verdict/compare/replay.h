#pragma once
// The smallest thing that shows a divergence again: one step, with the parameters, optimizer state, inputs
// and random state that it had.

#include <cstdint>
#include <string>

#include "harness/base/files.h"
#include "harness/verdict/plan/matrix.h"

namespace lockstep {

/// A config that computes that step alone: of the reference from the kept state, its repeats, and the cell
/// from the same state. Rows and random draws follow from the seed, the step and the sample ids, which the
/// config holds. Without a kept state (`has_step` false) the reference trains up to the step first.
std::string replay_config(const Matrix& matrix, const Cell& cell, int64_t step, bool has_step);

/// Writes DIR/replay.yaml, and DIR/rank-0.trace where the run folder `reference_run` kept the step's state.
/// Throws TraceError, MachineError.
void write_replay(const Matrix& matrix, const Cell& cell, int64_t step, const std::string& reference_run,
                  const std::string& dir, Files& files = real_files());

/// Copies what the trace `from` holds of `step` to the trace `to`: parameters, moments, buffers, sample ids
/// and random streams. False, and no file, if `from` kept no parameters there. Throws TraceError,
/// MachineError.
bool keep_step(const std::string& from, int64_t step, const std::string& to, Files& files = real_files());

}  // namespace lockstep
