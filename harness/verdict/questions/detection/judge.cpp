// Rates over all trials decide, not each trial.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/text.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/plan/cells.h"
#include "harness/verdict/questions/detection/detection.h"
#include "harness/verdict/questions/detection/trials.h"
#include "harness/verdict/questions/certification.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"
#include "harness/verdict/trace/record.h"

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

/// Reports own faults whose cause or phase nothing can say. The planner knows neither.
std::vector<ConfigProblem> problems(const Matrix& matrix) {
  std::vector<std::string_view> codes, phases{"failed"};
  for (const CausePage& page : cause_pages()) codes.push_back(page.code);
  for (const Phase phase : phases_in_order()) phases.emplace_back(name_of(phase));
  std::vector<ConfigProblem> problems;
  const auto add = [&](const Place& place, std::string message, std::string_view near = {}) {
    problems.push_back({matrix.file, place.line, place.column, std::move(message), std::string(near)});
  };
  for (const OwnFault& fault : section_of<DetectionConfig>(matrix).faults) {
    for (const std::string_view code : split_words(fault.causes, ' ')) {
      const CausePage* page = find_cause_page(code);
      if (page == nullptr)
        add(fault.cause_place, fmt::format("there is no cause {}; `lockstep explain` lists all", in_quotes(code)), nearest(code, codes));
      else if (page->family == "failed" && !fault.fails())
        add(fault.cause_place, fmt::format("{} is the cause of a run that ends by its fault: it needs phase: failed", code));
    }
    for (const std::string_view phase : split_words(fault.phase, '|')) {
      if (std::ranges::find(phases, phase) == phases.end())
        add(fault.phase_place, fmt::format("there is no phase {}; phases are {}", in_quotes(phase), fmt::join(phases, ", ")), nearest(phase, phases));
    }
  }
  return problems;
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
      .omits_references = true,
      .problems = &problems,
      .complete = &complete,
      .sentences = &mechanism_sentences,
      .whole_summary = &whole_summary,
      .passed = &passed,
  };
  return kJudge;
}

}  // namespace lockstep::questions::detection
