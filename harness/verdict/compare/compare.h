#pragma once
// Two runs by their traces: bit for bit at one layout, by what layouts share otherwise, and by forced steps where there are repeats.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/verdict/compare/cause_inputs.h"
#include "harness/verdict/config/config_difference.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/results/results.h"

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

  ConfigPair configs() const { return {reference_config, cell_config, declared}; }
};

/// How two runs are configured otherwise, by their configs or by what their traces' headers declare. Throws TraceError.
std::vector<ConfigDifference> differences_of(const CompareOptions& options);

/// Run B against run A from their traces alone, whatever their layouts. Throws TraceError.
Comparison compare_traces(const CompareOptions& options);

/// How far a run on real ranks agrees bit for bit with the emulated one, at most `asked` steps. `seed` and
/// `backend` are left to the caller, who knows the plan. Throws TraceError.
Certification certify(const std::string& emulated_dir, const std::string& real_dir, int64_t asked);

}  // namespace lockstep
