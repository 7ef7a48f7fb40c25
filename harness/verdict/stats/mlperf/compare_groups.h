#pragma once
// Groups of runs compared with reference points by MLPerf's rule, and beside it what a two-sided test says.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/stats/compare_arms.h"
#include "harness/verdict/stats/mlperf/mlperf.h"
#include "harness/verdict/stats/mlperf/run_groups.h"
#include "harness/verdict/stats/outcome.h"

namespace lockstep {

/// What our own test says of the same runs.
struct OwnVerdict {
  VerdictKind verdict = VerdictKind::inconclusive;
  std::string sentence;
  std::optional<UnpairedDifference> difference;  ///< of what they took to converge
  std::optional<OutcomeComparison> outcome;      ///< of cells with paired seeds: of the metric itself
};

struct MlperfComparison {
  std::string reference, submission;
  MlperfRules rules;
  MlperfJudgement judgement;
  OwnVerdict own;
  std::vector<std::string> notes;
  std::vector<QuestionDifference> differences;
};

/// `reference`: points of one benchmark at any batch sizes. Throws ConfigError if the two count in different
/// units.
MlperfComparison compare_groups(const std::vector<RunGroup>& reference, const RunGroup& submission,
                                const Given& given);

/// Each pair's cell against its reference. The notes of the last one say what is not compared.
std::vector<MlperfComparison> compare_cells(const MatchedArms& matched, const Given& given);

}  // namespace lockstep
