#pragma once
// `compare --rule tost`: do two cells learn the same?

#include <optional>
#include <string>
#include <vector>

#include "harness/cli/compare_arms.h"
#include "harness/stats/outcome.h"

namespace lockstep {

struct OutcomeComparison {
  std::string reference, cell;  ///< titles
  VerdictKind verdict = VerdictKind::failed;
  std::string sentence;
  std::optional<Outcome> outcome;  ///< nothing if it failed
  std::optional<Failure> failure;
  std::vector<QuestionDifference> differences;
};

/// Paired by seed, by `primary`. A run that failed or a metric that is not finite makes it `failed`.
OutcomeComparison compare_arms(const ArmPair& pair, const Primary& primary);

std::string outcomes_text(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone);
std::string outcomes_json(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone);

}  // namespace lockstep
