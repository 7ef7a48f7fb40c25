#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/cli/options.h"
#include "harness/cli/session/progress.h"
#include "harness/judge/evidence/arms.h"
#include "harness/lib/flight/dump.h"

// What `compare` prints and how it ends.

namespace lockstep {

/// `across`: settings that differ between the runs and ask another question; `--across` shows them. `configured`: keys that
/// they set otherwise.
std::string comparison_json(const Mechanism& mechanism, const std::string& run_a, const std::string& run_b,
                            const std::vector<QuestionDifference>& across = {},
                            const std::vector<ConfigDifference>& configured = {});

/// `expected`: names of verdicts that are fine; empty: identical, within_envelope and equivalent.
int comparison_exit_code(VerdictKind verdict, const std::vector<std::string>& expected);

/// Flight records, lockstep's or PyTorch's, B against A: the first rank and number at which they part. Identical if every collective
/// that stands in both is the same and every rank has a record in both; inconclusive if none stands in both, or a rank lacks one.
Mechanism compare_flight_records(const flight::Records& a, const flight::Records& b);

}  // namespace lockstep
