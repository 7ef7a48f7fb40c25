#pragma once

#include <cstdint>
#include <string>

#include "harness/answer/results/results.h"
#include "harness/base/files.h"

// A prefix on real ranks whose sums may have been added in any order, compared with what another order may give.

namespace lockstep {

struct BandInputs {
  std::string real;    ///< folder of the prefix, which kept all its values and the parameters before each step
  std::string forced;  ///< of the same steps on emulated ranks, each at the prefix's own parameters
  const RunConfig* config = nullptr;  ///< of the cell
  int64_t asked = 0;
};

/// Holds each step of the prefix to a band by itself: both sides begin it with the same bits, so that nothing has grown since. Sample
/// ids, streams, control values, the ledger's calls and what is only moved (all_gather, broadcast) must agree exactly, replicas
/// among themselves, and each reduced gradient with the mean of the V local ones by the rounding of V terms in any order (Higham,
/// Accuracy and Stability of Numerical Algorithms, section 4.2). Scores, loss and local gradients may differ from the emulated
/// ranks' by rounding alone, and updates must be what their gradients give. A planted fault that the emulated ranks show at the
/// same place is no difference. `steps`: so many lie within, from the first on; `band_used`: the largest share of the band of
/// V terms, or of a bound on what is made of them. Throws TraceError.
Certification hold_to_band(const BandInputs& inputs);

// The smallest thing that shows a divergence again: one step, with the parameters, optimizer state, inputs
// and random state that it had.

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
