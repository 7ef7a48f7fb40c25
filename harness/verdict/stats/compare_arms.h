#pragma once
// Do two cells learn the same? For any two cells, of one matrix or of two.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/evidence/arm_pairs.h"
#include "harness/verdict/stats/outcome.h"

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

}  // namespace lockstep
