#pragma once
// Two runs by their traces: bit for bit at one layout, by what layouts share otherwise, and by forced steps where there are repeats.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/judge/compare/compared.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/matrix/matrix.h"

namespace lockstep {

/// How two runs are configured otherwise, by their configs or by what their traces' headers declare. Throws TraceError.
std::vector<ConfigDifference> differences_of(const CompareOptions& options);

/// Did both runs compute in exact arithmetic? False where a config is not known.
bool both_exact(const RunConfig* reference, const RunConfig* cell);

/// Run B against run A from their traces alone, whatever their layouts. Throws TraceError.
Comparison compare_traces(const CompareOptions& options);

/// How far a run on real ranks agrees bit for bit with the emulated one, at most `asked` steps. `seed` and
/// `backend` are left to the caller, who knows the plan. Throws TraceError.
Certification certify(const std::string& emulated_dir, const std::string& real_dir, int64_t asked);

}  // namespace lockstep
