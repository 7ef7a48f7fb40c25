#pragma once
// From timed runs to the table of layouts: how fast, against one rank, and how much of it is communication.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// The plan's timed runs, layout by layout: first those that share their global batch with another, then
/// those that share their rows a rank, each by number of ranks; a layout may stand in both. A run's step is
/// that of its slowest rank, in the median over its steps without the first tenth. A layout without a
/// finished run has NaN figures, and one without a timed layout of one rank in its group NaN speed-up.
/// `provenance` names the machine. Nothing if the plan times nothing.
///
///   failures  by run id, as the launcher saw them
std::optional<Timing> judge_timing(const Plan& plan, const std::string& out_dir,
                                   const std::map<std::string, Failure>& failures,
                                   const RankResultReader& read,
                                   const std::vector<std::pair<std::string, std::string>>& provenance);

}  // namespace lockstep
