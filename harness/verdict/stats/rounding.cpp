#include "harness/verdict/stats/rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/stats/estimates.h"
#include "harness/verdict/stats/outcome.h"
#include "harness/verdict/stats/sequential.h"

namespace lockstep {
namespace {

/// A shift of so many margins is worth a word, whatever the verdict.
constexpr double kLargeShift = 0.5;

bool differs_in_rounding(const CellResult& pair) {
  const auto perturb = std::ranges::find(pair.settings, "perturb", &std::pair<std::string, std::string>::first);
  return pair.noise && !pair.failure && pair.outcome && pair.outcome->n >= 2 && perturb != pair.settings.end() &&
         (perturb->second == "row_order" || perturb->second == "epsilon");
}

/// The widest A/A pair of what has this name; null: none.
const CellResult* widest_of(const std::vector<CellResult>& cells, const std::string& name) {
  const CellResult* widest = nullptr;
  for (const CellResult& cell : cells) {
    if (cell.reference != name || !differs_in_rounding(cell)) continue;
    if (widest == nullptr || cell.outcome->primary.sd > widest->outcome->primary.sd) widest = &cell;
  }
  return widest;
}

VerdictKind shifted_verdict(const Outcome& o, double shift) {
  if (o.equivalence.low + shift > -o.margin && o.equivalence.high + shift < o.margin) return VerdictKind::equivalent;
  const Interval& wide = o.primary.interval;
  if (wide.low + shift > o.margin || wide.high + shift < -o.margin) return VerdictKind::divergent;
  return VerdictKind::inconclusive;
}

}  // namespace

void note_rounding(std::vector<CellResult>& cells) {
  for (CellResult& cell : cells) {
    if (cell.noise || cell.anchor || cell.failure || !cell.outcome || cell.outcome->n < 2) continue;
    const CellResult* own = widest_of(cells, cell.scenario);
    const CellResult* other = widest_of(cells, cell.reference);
    if (own == nullptr && other == nullptr) continue;
    RoundingShift rounding;
    double variance = 0;
    int measured = 0;
    for (const CellResult* pair : {own, other}) {
      if (pair == nullptr) continue;
      rounding.pairs += (rounding.pairs.empty() ? "" : " and ") + pair->scenario;
      rounding.n = measured == 0 ? pair->outcome->n : std::min(rounding.n, pair->outcome->n);
      variance += pair->outcome->primary.sd * pair->outcome->primary.sd;
      ++measured;
    }
    Outcome& outcome = *cell.outcome;
    rounding.of_cell = own != nullptr;
    rounding.sd = std::sqrt(variance / measured);
    rounding.shift =
        student_quantile(1.0 - outcome.alpha / 2.0, rounding.n) * rounding.sd * std::sqrt(2.0 / outcome.n);
    outcome.rounding = std::move(rounding);
    if (!is_unsteady(outcome)) continue;
    if (outcome.sentence.ends_with('.')) outcome.sentence.pop_back();
    outcome.sentence += "; " + rounding_in_words(outcome) + ".";
  }
}

bool may_turn(const Outcome& outcome) {
  if (!outcome.rounding || outcome.n < 2) return false;
  const double most = outcome.rounding->shift;
  const double centre = std::clamp(-(outcome.equivalence.low + outcome.equivalence.high) / 2, -most, most);
  return std::ranges::any_of(std::vector{-most, most, centre}, [&](double shift) {
    return shifted_verdict(outcome, shift) != outcome.verdict;
  });
}

bool is_unsteady(const Outcome& outcome) {
  return outcome.rounding && (may_turn(outcome) || outcome.rounding->shift >= kLargeShift * outcome.margin);
}

std::string rounding_in_words(const Outcome& outcome) {
  const RoundingShift& rounding = *outcome.rounding;
  return fmt::format(
      "rounding alone changes it: where only rounding differs ({}), runs of one seed differ with a "
      "standard deviation "
      "of {} ({} seeds), so on another machine the difference may be {}{} higher or lower{}",
      rounding.pairs, format_difference(rounding.sd, outcome.margin), rounding.n,
      format_difference(rounding.shift, outcome.margin), rounding.of_cell ? "" : " or more",
      may_turn(outcome) ? ", and the verdict may change" : "");
}

}  // namespace lockstep
