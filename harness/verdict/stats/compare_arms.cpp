#include "harness/verdict/stats/compare_arms.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/verdict/stats/power.h"

namespace lockstep {
namespace {

std::string failure_text(const Failure& failure) {
  return fmt::format("{}: {}", to_word(failure.kind), failure.message.empty() ? failure.run : failure.message);
}

/// What a control would show stands in the matrix, if anywhere; what pairs that scatter as these could have seen is known.
std::string without_control(const Outcome& outcome) {
  std::string text = "; there is no power control";
  if (outcome.detectable > 0 && std::isfinite(outcome.detectable)) {
    text += fmt::format(": if its pairs have no larger spread than these, a true difference of {} or more would be "
                        "found with probability {:g} or more",
                        format_at_least(outcome.detectable, outcome.margin), kWantedPower);
  }
  return text + ".";
}

}  // namespace

OutcomeComparison compare_arms(const ArmPair& pair, const Primary& primary) {
  OutcomeComparison comparison;
  comparison.reference = title_of(pair.reference);
  comparison.cell = title_of(pair.cell);
  comparison.differences = pair.differences;
  // Within one matrix the names tell cells apart; the same cell of two matrices needs its folder.
  const bool same_name = pair.reference.name == pair.cell.name;
  const std::string cell = same_name ? comparison.cell : pair.cell.name;
  comparison.failure = failure_of(pair.cell);
  if (!comparison.failure) comparison.failure = failure_of(pair.reference);
  if (!comparison.failure) {
    const MetricsBySeed cells = metrics_of(pair.cell), references = metrics_of(pair.reference);
    try {
      comparison.outcome = judge_outcome(
          {cell, pair.reference.name, cells, references, primary, samples_ratio(pair.cell.config, pair.reference.config)});
    } catch (const OutcomeError& error) {
      comparison.failure.emplace();
      comparison.failure->kind = error.kind();
      comparison.failure->message = error.what();
    }
  }
  if (comparison.failure) {
    comparison.sentence = failure_text(*comparison.failure);
    return comparison;
  }
  comparison.verdict = comparison.outcome->verdict;
  std::string& sentence = comparison.outcome->sentence;
  if (comparison.verdict == VerdictKind::equivalent && sentence.ends_with('.'))
    sentence.replace(sentence.size() - 1, 1, without_control(*comparison.outcome));
  comparison.sentence = sentence;
  return comparison;
}

}  // namespace lockstep
