// Scores, loss and gradient norm of a forced step against their bands.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/gradients.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/layouts.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {

bool ForcedContext::outside(const std::string& where, const BandUse& use) {
  const double used = use.used();
  if (at.worst_tensor.empty() || used > at.band_used) {
    at.band_used = used;
    at.worst_tensor = where;
  }
  return !(used <= 1);
}

std::string ForcedContext::band_text(const BandUse& use) const {
  const char* what = "measured tolerance";
  if (step.twins) {
    what = step.twins->question() == TwinQuestion::meaning ? "float64 tolerance" : "rounding tolerance";
  } else if (rules.band.exact > 0) {
    what = "exact tolerance";
  } else if (step.repeats.empty()) {
    what = "estimated tolerance";
  }
  return fmt::format("differs by {}, {} times the {} of {}", short_number(use.difference),
                     short_number(use.used()), what, short_number(use.band));
}

double ForcedContext::scalar_band(double repeated, double size, double epsilon) const {
  const BandConfig& band = rules.band;
  if (band.exact > 0) return band.exact * size;
  // Each rank rounds its own rows' values, which permuted rows of one process do not show.
  constexpr double kCoarse = 8;
  const bool coarse = !rules.ours() && epsilon > evidence.reference.epsilon;
  const double floor = band.floor * (coarse ? kCoarse : 1) * epsilon * size;
  return std::max(floor, step.repeats.empty() ? rounding_bound(0, epsilon) * size : band.factor * repeated);
}

namespace {

/// How large a value is, in which precision it was computed, and what it takes over from values before it.
struct ScalarScale {
  double size = 0, epsilon = 0, inherited = 0;
  double (TwinBounds::*by_twins)(double size) const = nullptr;
};

std::optional<Difference> scalar(ForcedContext& context, Phase phase, const std::string& where,
                                 std::optional<double> ForcedValues::*member, const ScalarScale& scale) {
  const std::optional<double> expected = context.evidence.reference.*member,
                              actual = context.evidence.cell.*member;
  if (!expected && !actual) return std::nullopt;
  if (context.step.free && (!expected || !actual)) return std::nullopt;
  // A loss is the mean of all ranks', and which of them is wrong it does not tell; the norm is alike on all.
  const int rank = phase == Phase::loss ? kRankUnknown : kAllRanks;
  if (!expected || !actual) {
    return difference_at(context.b, phase, rank, where, DivergenceKind::missing,
                         expected ? exact_number(*expected) : "nothing", actual ? exact_number(*actual) : "nothing");
  }
  double repeated = 0;
  for (const ForcedValues& repeat : context.step.repeats) {
    if (repeat.*member) repeated = std::max(repeated, distance(*expected, *(repeat.*member)));
  }
  const double rounding = context.step.twins ? (context.step.twins->*scale.by_twins)(scale.size)
                                             : context.scalar_band(repeated, scale.size, scale.epsilon);
  const BandUse use{distance(*expected, *actual), rounding + scale.inherited};
  if (phase == Phase::loss) context.evidence.loss_band = use.band;
  context.looked_at(phase == Phase::loss ? Looked::loss : Looked::gradient_norm);
  if (!context.outside(where, use)) return std::nullopt;
  return difference_at(context.b, phase, rank, where, DivergenceKind::band, exact_number(*expected),
                       exact_number(*actual) + "; " + context.band_text(use));
}

/// A row's loss with the rank that had it.
struct RowLoss {
  int64_t id = 0;
  int rank = 0;
  double loss = 0;
};

/// Of all ranks, by sample id; empty unless each rank recorded its rows' with their ids.
std::vector<RowLoss> row_losses_of(const ForcedValues& values) {
  std::vector<RowLoss> rows;
  for (std::size_t rank = 0; rank < values.losses.size(); ++rank) {
    const RankLoss& own = values.losses[rank];
    if (own.row_ids.size() != own.row_losses.size()) return {};
    for (std::size_t i = 0; i < own.row_ids.size(); ++i) rows.push_back({own.row_ids[i], static_cast<int>(rank), own.row_losses[i]});
  }
  std::ranges::stable_sort(rows, {}, &RowLoss::id);
  return rows;
}

/// Where the loss of one rank's rows alone is not the reference's: that rank, and the row that lies furthest from it.
void place_by_rows(const ForcedContext& context, Difference& found) {
  constexpr double kClearly = 1e-3;
  const std::vector<RowLoss> expected = row_losses_of(context.evidence.reference), actual = row_losses_of(context.evidence.cell);
  if (context.world_size() == 1 || actual.empty() || !std::ranges::equal(expected, actual, {}, &RowLoss::id, &RowLoss::id)) return;
  const auto gap = [&](std::size_t i) { return distance(expected[i].loss, actual[i].loss); };
  std::size_t worst = 0;
  for (std::size_t i = 1; i < actual.size(); ++i) {
    if (gap(i) > gap(worst)) worst = i;
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i].rank != actual[worst].rank && !(gap(i) <= kClearly * gap(worst))) return;
  }
  if (!(gap(worst) > 0)) return;
  const Divergence& told = found.divergence;
  found = difference_at(context.b, found.phase, actual[worst].rank, told.where, told.kind, told.expected, told.actual);
  found.divergence.sample = actual[worst].id;
  found.divergence.sentence.pop_back();
  found.divergence.sentence += fmt::format(", most for sample {} on rank {}: {}.", actual[worst].id, actual[worst].rank,
                                           expected_found(exact_number(expected[worst].loss), exact_number(actual[worst].loss)));
}

std::string column_words(const ScoreSpec& scores, int64_t id) {
  return scores.column_name ? scores.column_name(id) : fmt::format("column {}", id);
}

}  // namespace

std::optional<Difference> judge_scores(ForcedContext& context) {
  const ForcedValues &a = context.evidence.reference, &b = context.evidence.cell;
  const std::string record(context.rules.scores().record), column(context.rules.scores().column);
  if (!a.scores && !b.scores) return std::nullopt;
  if (context.step.free && (!a.scores || !b.scores)) return std::nullopt;
  if (!a.scores || !b.scores) {
    const std::string there = record + " with row and column ids";
    return difference_at(context.b, Phase::scores, -1, record, DivergenceKind::missing, a.scores ? there : "nothing",
                         b.scores ? there : "nothing");
  }
  const ScoreDifference found = score_difference(*a.scores, *b.scores);
  if (found.missing_rows > 0) {
    return difference_at(
        context.b, Phase::scores, kRankUnknown, record, DivergenceKind::missing,
        counted(static_cast<int64_t>(a.scores->rows.size()), "row"),
        fmt::format("{} ({} missing)", counted(static_cast<int64_t>(a.scores->rows.size()) - found.missing_rows, "row"),
                    found.missing_rows));
  }
  const int world_size = context.world_size();
  if (found.missing_columns + found.extra_columns > 0) {
    const int rank = found.every_rank_differs && world_size > 1 ? -1 : found.columns_rank;
    if (found.expected_columns != found.actual_columns) {
      return columns_difference(context.rules.scores(), context.b, found.expected_columns, found.actual_columns, rank);
    }
    return difference_at(context.b, Phase::scores, rank, record, DivergenceKind::missing,
                         fmt::format("the reference's {}s", column),
                         counted(found.missing_columns, "other " + column) + " a row");
  }
  double repeated = 0;
  for (const ForcedValues& repeat : context.step.repeats) {
    if (repeat.scores)
      repeated = std::max(repeated, score_difference(*a.scores, *repeat.scores).largest);
  }
  const double largest = largest_score(*a.scores);
  const BandUse use{found.largest, context.step.twins ? context.step.twins->of_scores(largest)
                                                      : context.scalar_band(repeated, largest, a.working_epsilon)};
  context.evidence.score_band = use.band;
  if (found.compared > 0) context.looked_at(Looked::scores);
  if (!context.outside(record, use)) return std::nullopt;
  return difference_at(context.b, Phase::scores, found.rank,
                       fmt::format("{}, {} {}, {}", record, context.rules.scores().row, found.row_id,
                                   column_words(context.rules.scores(), found.column_id)),
                       DivergenceKind::band, exact_number(found.expected),
                       exact_number(found.actual) + "; " + context.band_text(use));
}

/// What a difference of the scores makes of the mean loss at most, where they are computed in a lower
/// precision than the loss, or where rounding is what is judged: no row's loss changes by more than the sum of its
/// scores' changes over the temperature.
static double loss_by_scores(const ForcedContext& context) {
  const ForcedValues &a = context.evidence.reference, &b = context.evidence.cell;
  const bool of_rounding = context.step.twins && context.step.twins->question() == TwinQuestion::arithmetic;
  if ((a.working_epsilon <= a.epsilon && !of_rounding) || !a.scores || !b.scores || a.scores->rows.empty()) return 0;
  const double temperature = a.losses.empty() ? 0 : a.losses.front().temperature;
  if (!(temperature > 0)) return 0;
  const auto rows = static_cast<double>(a.scores->rows.size());
  return score_difference(*a.scores, *b.scores).sum / (rows * temperature);
}

std::optional<Difference> judge_loss(ForcedContext& context) {
  // A loss near 0 comes from scores that are not: rounding follows their size.
  const ForcedValues& reference = context.evidence.reference;
  const double size = std::max(std::abs(reference.loss.value_or(0)),
                               reference.scores ? largest_score(*reference.scores) : 0);
  // Where gradients are added up, ranks record their shares of the loss or what they add up to.
  ForcedValues& cell = context.evidence.cell;
  if (cell.reduced_by_sum && cell.loss && reference.loss) {
    const double sum = *cell.loss * static_cast<double>(cell.losses.size());
    if (distance(sum, *reference.loss) < distance(*cell.loss, *reference.loss)) cell.loss = sum;
  }
  // What scores of a low precision make of the loss is known where they are; else it has that precision itself.
  auto found = scalar(context, Phase::loss, "loss", &ForcedValues::loss,
                      {size, context.rules.ours() && reference.scores ? reference.epsilon : reference.working_epsilon,
                       loss_by_scores(context), &TwinBounds::of_loss});
  if (found) place_by_rows(context, *found);
  return found;
}

std::optional<Difference> judge_gradient_norm(ForcedContext& context) {
  const ForcedValues& reference = context.evidence.reference;
  double terms = 0;
  for (const NamedTensor& each : reference.term_sums) terms = std::hypot(terms, norm(each.values));
  return scalar(context, Phase::gradient_norm, "gradient_norm", &ForcedValues::gradient_norm,
                {std::max(terms, reference.gradient_norm.value_or(0)), reference.working_epsilon, 0,
                 &TwinBounds::of_gradient_norm});
}

}  // namespace lockstep
