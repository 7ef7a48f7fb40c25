// Rates and powers of the tests themselves decide; the one cell is a pool and its own reference.

#include "harness/verdict/questions/calibration/calibration.h"
#include "harness/verdict/questions/matrix_evidence.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"

namespace lockstep::questions::calibration {
namespace {

void complete(const MatrixEvidence& evidence, Results& results) {
  const Matrix& matrix = evidence.matrix();
  if (matrix.cells.empty()) return;
  results.calibration = calibrate_runs(matrix, evidence.runs_of(matrix.cells.front()), evidence.options().jobs,
                                       results.cells.front());
}

std::vector<std::string> whole_summary(const Results& results) {
  if (!results.calibration) return {};
  return {calibration_sentence(*results.calibration)};
}

std::optional<bool> passed(const Results& results) {
  if (!results.calibration) return std::nullopt;
  return results.calibration->passed;
}

}  // namespace

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = [](const CellResult&) { return VerdictKind::identical; },
      .omits_references = [](const Results& results) { return results.calibration.has_value(); },
      .complete = &complete,
      .sentences = &mechanism_sentences,
      .whole_summary = &whole_summary,
      .passed = &passed,
  };
  return kJudge;
}

}  // namespace lockstep::questions::calibration
