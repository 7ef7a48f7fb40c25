// Rates over all trials decide, not each trial.

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/verdict/questions/detection/detection.h"
#include "harness/verdict/questions/matrix_evidence.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"

namespace lockstep::questions::detection {
namespace {

/// The largest relative difference of the training loss to the reference's at any step; infinite if the
/// cell's run left no finite curve.
double loss_gap(const MatrixEvidence& evidence, const Cell& cell) {
  const SeedPair pair = evidence.arms().pair_seeds(cell).front();
  if (!pair.cell || !pair.reference) return std::numeric_limits<double>::infinity();
  const RunEvidence &own = evidence.of(*pair.cell), &reference = evidence.of(*pair.reference);
  const auto a = reference.curves.find("loss"), b = own.curves.find("loss");
  if (own.failure || a == reference.curves.end() || b == own.curves.end())
    return std::numeric_limits<double>::infinity();
  double gap = 0;
  for (std::size_t i = 0; i < std::min(a->second.values.size(), b->second.values.size()); ++i) {
    const double expected = a->second.values[i];
    gap = std::max(gap, std::abs(b->second.values[i] - expected) / std::max(std::abs(expected), 1e-12));
  }
  return gap;
}

void complete(const MatrixEvidence& evidence, Results& results) {
  std::vector<double> gaps;
  for (const Cell& cell : evidence.matrix().cells) gaps.push_back(loss_gap(evidence, cell));
  results.detection = score_detection(evidence.matrix(), results.cells, gaps);
}

std::vector<std::string> whole_summary(const Results& results) {
  return results.detection ? detection_sentences(*results.detection) : std::vector<std::string>{};
}

std::optional<bool> passed(const Results& results) {
  if (!results.detection || results.cells.empty()) return std::nullopt;
  return results.detection->passed;
}

}  // namespace

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_mechanism,
      // Hundreds of references that only serve a trial each say nothing by themselves.
      .omits_references = [](const Results&) { return true; },
      .complete = &complete,
      .sentences = &mechanism_sentences,
      .whole_summary = &whole_summary,
      .passed = &passed,
  };
  return kJudge;
}

}  // namespace lockstep::questions::detection
