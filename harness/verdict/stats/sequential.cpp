#include "harness/verdict/stats/sequential.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/base/text.h"

namespace lockstep {
namespace {

/// The pairs' differences of the primary metric by seed, as far as they can be formed: judge_outcome names
/// what is missing or not finite.
std::vector<double> differences_of(const OutcomeInputs& inputs) {
  std::vector<double> differences;
  for (const auto& [seed, metrics] : inputs.cell_metrics) {
    const auto other = inputs.reference_metrics.find(seed);
    const auto own = metrics.find(inputs.primary.metric);
    if (other == inputs.reference_metrics.end() || own == metrics.end()) return {};
    const auto value = other->second.find(inputs.primary.metric);
    if (value == other->second.end()) return {};
    const double difference = own->second - value->second;
    if (!std::isfinite(difference)) return {};
    differences.push_back(difference);
  }
  return differences;
}

MetricsBySeed first_of(const MetricsBySeed& all, int count) {
  MetricsBySeed first;
  for (const auto& [seed, metrics] : all) {
    if (static_cast<int>(first.size()) == count) break;
    first.emplace(seed, metrics);
  }
  return first;
}

std::string interim_sentence(const Sequential& sequential, const Outcome& outcome, std::size_t planned) {
  const Look& last = sequential.looks.back();
  std::string text =
      fmt::format(" Interim analysis {} of {} at the nominal level {:.2g}; all analyses together keep level {:g}",
                  sequential.looks.size(), planned, last.alpha_here, outcome.alpha);
  if (sequential.ended == InterimEnd::budget) {
    text += fmt::format("; the budget ended before {} seeds", sequential.most);
  } else if (sequential.ended == InterimEnd::most_seeds) {
    text += "; no more seeds were allowed";
  }
  return text + ".";
}

}  // namespace

std::vector<Look> take_interim_analyses(std::span<const double> differences, const std::vector<SpendingAnalysis>& looks,
                             const Primary& primary) {
  std::vector<Look> taken;
  for (const SpendingAnalysis& each : looks) {
    const auto n = static_cast<std::size_t>(each.n);
    if (n > differences.size()) break;
    Primary at_analysis = primary;
    at_analysis.alpha = each.nominal;
    Look look{each.n, each.information, each.spent, each.nominal, VerdictKind::inconclusive};
    look.verdict = decide(differences.first(n), at_analysis);
    taken.push_back(look);
    if (look.verdict != VerdictKind::inconclusive) break;
  }
  return taken;
}

Outcome judge_sequentially(const OutcomeInputs& inputs, const SeedsAuto& seeds) {
  const std::vector<SpendingAnalysis> planned = spending_analyses(seeds, inputs.primary.alpha, inputs.primary.test);
  Sequential sequential;
  sequential.most = seeds.most;
  sequential.looks = take_interim_analyses(differences_of(inputs), planned, inputs.primary);
  // Fewer pairs than the first look takes decide nothing, nor do pairs that judge_outcome refuses.
  if (sequential.looks.empty()) {
    Outcome outcome = judge_outcome(inputs);
    outcome.verdict = VerdictKind::inconclusive;
    return outcome;
  }
  const Look& last = sequential.looks.back();
  const MetricsBySeed cell = first_of(inputs.cell_metrics, last.n);
  const MetricsBySeed reference = first_of(inputs.reference_metrics, last.n);
  OutcomeInputs at_analysis{inputs.cell, inputs.reference, cell, reference, inputs.primary};
  at_analysis.primary.alpha = last.alpha_here;
  at_analysis.samples_ratio = inputs.samples_ratio;
  Outcome outcome = judge_outcome(at_analysis);
  // So that p <= alpha says what the look says at its nominal level.
  outcome.alpha = inputs.primary.alpha;
  for (double* p : {&outcome.p_equivalent, &outcome.p_different, &outcome.p_holm})
    *p = std::min(1.0, *p * outcome.alpha / last.alpha_here);
  sequential.ended = last.verdict != VerdictKind::inconclusive ? InterimEnd::decided
                     : last.n == seeds.most                    ? InterimEnd::most_seeds
                                                               : InterimEnd::budget;
  outcome.sentence += interim_sentence(sequential, outcome, planned.size());
  outcome.sequential = std::move(sequential);
  return outcome;
}

Primary at_last_analysis(Primary primary, const Outcome& outcome) {
  if (outcome.sequential && !outcome.sequential->looks.empty())
    primary.alpha = outcome.sequential->looks.back().alpha_here;
  return primary;
}

bool wants_more_seeds(const CellResult& cell, const SeedsAuto& seeds) {
  return cell.outcome && cell.outcome->sequential && cell.verdict == VerdictKind::inconclusive &&
         cell.outcome->n < seeds.most;
}

std::string pairs_in_words(int fewest, int most) {
  if (fewest != most) return fmt::format("{} to {} paired seeds", fewest, most);
  return counted(most, "paired seed");
}

}  // namespace lockstep
