#pragma once
// A prefix on real ranks whose sums may have been added in any order, compared with what another order may give.

#include <cstdint>
#include <string>

#include "harness/verdict/config/run_config.h"
#include "harness/verdict/results/results.h"

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

}  // namespace lockstep
