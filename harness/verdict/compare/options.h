#pragma once
// Which runs are compared, and what is known of them.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/verdict/compare/cause_inputs.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/plan/matrix.h"

namespace lockstep {

struct CompareOptions {
  std::string run_a, run_b;  ///< run folders; A is the reference
  std::vector<std::string>
      repeats;  ///< run folders of permuted repeats of A (forced runs), to measure the band
  BandConfig band;
  const RunConfig* reference_config = nullptr;  ///< null: unknown, and causes that need it are not named
  const RunConfig* cell_config = nullptr;
  std::vector<std::string> declared = {};  ///< keys in which the two may differ: see ConfigDifference
  int64_t steps = 0;  ///< the first so many steps alone are judged, and the traces may end where they like after them; 0: all
  /// Does a cause explain a difference? Asked of steps that runs of two layouts do not begin at the same bits, where a difference alone proves
  /// nothing. Null: such steps are not judged against the reference.
  std::function<bool(const CauseInputs&)> explains = nullptr;

  bool replayed = false;  ///< steps that the runs do not begin with equal weights are judged by replays: nothing is left open

  ConfigPair configs() const { return {reference_config, cell_config, declared}; }
};

}  // namespace lockstep
