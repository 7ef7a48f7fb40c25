// Each phase of a forced step against its band: scores, loss, gradients before and after the reduction, their norm, and
// the update that they make.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "harness/base/json.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/evidence/parts.h"
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
        counted(std::ssize(a.scores->rows), "row"),
        fmt::format("{} ({} missing)", counted(std::ssize(a.scores->rows) - found.missing_rows, "row"),
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

namespace {

/// At one layout, where only some ranks' local gradients differ: which rank's first, and in which tensor.
std::optional<Difference> rank_that_differs(const ForcedContext& context) {
  if (!context.same_layout()) return std::nullopt;
  std::optional<Difference> first;
  std::size_t differing = 0;
  for (std::size_t rank = 0; rank < context.a.ranks.size(); ++rank) {
    bool differs = false;
    for (const Record* expected : records_of(context.a.ranks[rank], Phase::local_gradients)) {
      const Record* actual = find_record(context.b.ranks[rank], Phase::local_gradients, expected->name);
      if (!actual || actual->stats.hash == expected->stats.hash) continue;
      differs = true;
      if (!first)
        first = difference_at(context.b, Phase::local_gradients, static_cast<int>(rank), expected->name,
                              DivergenceKind::bits, value_text(*expected), value_text(*actual));
    }
    differing += differs;
  }
  // If every rank's gradients differ, rounding before them may be the reason, and no rank is named.
  return differing < context.a.ranks.size() ? first : std::nullopt;
}

/// "head is 8 times the reference (cosine 1.000); ": of the tensor's parameter group; nothing where the reference's gradient is 0.
std::string factor_of_group(const GradientJudgement& judgement, const std::string& tensor) {
  const std::string name = parameter_group(tensor);
  for (const GradientSignature& group : judgement.groups) {
    if (group.group != name) continue;
    if (group.ratio == 0 || !std::isfinite(group.ratio)) return "";
    return fmt::format("{} is {} times the reference (cosine {:.3f}); ", name, short_number(group.ratio), group.cosine);
  }
  return "";
}

/// The tensor that takes most of its band, if any lies outside; with what people read of it.
std::optional<Difference> worst_outside(ForcedContext& context, const GradientJudgement& judgement,
                                        Phase phase, const std::string& what) {
  bool any_outside = false;
  for (const TensorUse& tensor : judgement.tensors) any_outside |= context.outside(tensor.name, tensor.use);
  if (!any_outside) return std::nullopt;
  const TensorUse& worst = *judgement.worst();
  // A mean of ranks' own gradients tells no rank; nor does a shard of rank 0.
  const NamedTensor* held = find_tensor(context.evidence.cell.gradients, worst.name);
  const bool unknown = phase == Phase::local_gradients || (held && held->may_be_shard);
  return difference_at(context.b, phase, unknown ? kRankUnknown : kAllRanks, worst.name, DivergenceKind::band,
                       "norm " + exact_number(worst.norm_reference),
                       fmt::format("norm {}{}; {}{}", exact_number(worst.norm_cell), what,
                                   factor_of_group(judgement, worst.name), context.band_text(worst.use)));
}

bool has_nonfinite(const std::vector<NamedTensor>& tensors) {
  return std::ranges::any_of(tensors, [](const NamedTensor& tensor) {
    return std::ranges::any_of(tensor.values, [](double value) { return !std::isfinite(value); });
  });
}

/// The rank whose local gradients alone must count otherwise in the reference's, where that is a weighted sum of all
/// ranks'.
int rank_by_factor(const ForcedEvidence& evidence) {
  constexpr double kRoundings = 1000;
  const ForcedValues& cell = evidence.cell;
  const double epsilon = std::max(cell.working_epsilon, cell.epsilon),
               share = cell.reduced_by_sum ? 1 : 1 / static_cast<double>(cell.local.size());
  const Weights weights = weigh(weighed_tensors(evidence.reference.gradients, cell.local), epsilon);
  if (!weights.all_known() || weights.residual > kRoundings * epsilon) return -1;
  int named = -1;
  for (std::size_t rank = 0; rank < weights.of.size(); ++rank) {
    if (std::abs(weights.of[rank] - share) <= kRoundings * epsilon * share) continue;
    if (named >= 0) return -1;
    named = static_cast<int>(rank);
  }
  return named;
}

/// The rank in which a single flipped bit explains every tensor outside its band.
int rank_by_bit(const ForcedEvidence& evidence, const std::vector<NamedTensor>& mean) {
  int named = -1;
  for (const TensorUse& use : evidence.local.tensors) {
    if (use.use.used() <= 1) continue;
    const NamedTensor* reference = find_tensor(evidence.reference.gradients, use.name);
    const NamedTensor* cell = find_tensor(mean, use.name);
    if (!reference || !cell) return -1;
    const auto element = single_difference(reference->values, cell->values, use.use.band);
    if (!element) return -1;
    const WrongElement wrong{
        use.name,     *element,           reference->values[*element], cell->values[*element],
        use.use.band, reference->epsilon, evidence.cell.is_wide()};
    for (const FlippedBit& flip : flips_in_values(wrong, evidence.cell.local)) {
      if (named >= 0 && named != flip.rank) return -1;
      named = flip.rank;
    }
  }
  return named;
}

int place_of_local_fault(const ForcedEvidence& evidence) {
  const auto& local = evidence.cell.local;
  if (local.size() < 2) return -1;
  if (const auto count = std::ranges::count_if(local, has_nonfinite); count > 0)
    return count == 1 ? static_cast<int>(std::ranges::find_if(local, has_nonfinite) - local.begin()) : -1;
  if (evidence.local.tensors.empty()) return -1;
  const std::vector<NamedTensor> mean = mean_of_local(evidence.cell);
  const int by_bit = rank_by_bit(evidence, mean);
  return by_bit >= 0 ? by_bit : rank_by_factor(evidence);
}

}  // namespace

int rank_of_local_fault(const ForcedEvidence& evidence) {
  const int place = place_of_local_fault(evidence);
  const std::vector<int>& ranks = evidence.cell.local_ranks;
  return place < 0 || ranks.empty() ? place : ranks[static_cast<std::size_t>(place)];
}

void note_reduction_by_sum(ForcedEvidence& evidence) {
  ForcedValues& cell = evidence.cell;
  const auto is_within = [](const auto& use) { return use.use.used() <= 1; };
  const GradientJudgement& reduced = evidence.reduced;
  if (cell.local.size() < 2 || reduced.tensors.empty() || !reduced.missing.empty() || !reduced.misshapen.empty()) return;
  if (cell.reduced_by_sum || !std::ranges::all_of(reduced.tensors, is_within)) return;
  const auto fits = [&] {
    const std::vector<ReductionUse> uses = judge_reduction(cell);
    return !uses.empty() && std::ranges::all_of(uses, [](const ReductionUse& use) { return use.used <= 1; });
  };
  if (fits()) return;
  cell.reduced_by_sum = true;
  cell.reduced_by_sum = fits();
}

/// Every tensor of the first beside the second's of that name.
static bool same_values(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b, double tolerance) {
  return !a.empty() && std::ranges::all_of(a, [&](const NamedTensor& x) {
    const NamedTensor* y = find_tensor(b, x.name);
    return y && x.values.size() == y->values.size() && distance(x.values, y->values) <= tolerance * std::max(norm(x.values), norm(y->values));
  });
}

/// A trainer that reduces and clips by hand shows its tracer no gradient between the two: what stands for the reduced one is what the optimizer took.
static bool shows_what_was_taken(const ForcedValues& values) { return !values.gradient_norm && same_values(values.applied, values.gradients, 0); }

/// Does the cell look so, and does the reference work on its gradients likewise?
static bool works_by_hand(const ForcedEvidence& evidence) {
  const ForcedValues& reference = evidence.reference;
  if (reference.gradient_norm || !shows_what_was_taken(evidence.cell)) return false;
  const auto is_off = [](const ReductionUse& use) { return use.used > 1; };
  return !same_values(reference.applied, reference.gradients, 0) || std::ranges::any_of(judge_reduction(reference), is_off);
}

bool agree_as_taken(const ForcedEvidence& evidence) {
  constexpr double kRoundings = 1000;
  const ForcedValues &reference = evidence.reference, &cell = evidence.cell;
  const double tolerance = kRoundings * std::max(reference.working_epsilon, reference.epsilon);
  if (cell.applied.size() != reference.applied.size() || !same_values(cell.applied, reference.applied, tolerance)) return false;
  // Clipping hides a factor.
  const auto takes_all = [&](const ForcedValues& values) { return same_values(values.applied, values.gradients, tolerance); };
  return works_by_hand(evidence) || takes_all(reference) || takes_all(cell);
}

/// Are the gradients one factor of at most 1 times the mean of the local ones, as clipping leaves them?
static bool is_clipped_mean(const ForcedValues& cell) {
  constexpr double kAlike = 1e-4;
  double product = 0, squares = 0;
  const std::vector<NamedTensor> means = mean_of_local(cell);
  for (const NamedTensor& mean : means) {
    const NamedTensor* taken = find_tensor(cell.gradients, mean.name);
    if (!taken || taken->values.size() != mean.values.size()) return false;
    product += dot(mean.values, taken->values);
    squares += dot(mean.values, mean.values);
  }
  const double factor = product / squares;
  if (!(factor > 0 && factor <= 1 + kAlike)) return false;
  return std::ranges::all_of(means, [&](const NamedTensor& mean) {
    std::vector<double> clipped = mean.values;
    for (double& value : clipped) value *= factor;
    return distance(clipped, find_tensor(cell.gradients, mean.name)->values) <= kAlike * std::max(norm(clipped), 1e-6 * std::sqrt(squares));
  });
}

std::optional<Difference> judge_local_forms(ForcedContext& context) {
  const OtherForm found = local_gradient_of_another_form(context.b, context.evidence.cell.local_ranks, context.a);
  if (found.rank < 0) return std::nullopt;
  return difference_at(context.b, Phase::local_gradients, found.rank, found.tensor,
                       found.other_shape ? DivergenceKind::shape : DivergenceKind::dtype, found.expected, found.actual);
}

std::optional<Difference> judge_local_gradients(ForcedContext& context) {
  ForcedEvidence& evidence = context.evidence;
  if (auto form = judge_local_forms(context)) return form;
  if (evidence.cell.local.empty()) return std::nullopt;
  const std::vector<NamedTensor> mean = mean_of_local(evidence.cell);
  // A run's own twin has the same ranks; what their reduction makes of the gradients is no matter yet.
  const bool of_own_twin = context.step.twins && context.step.twins->question() == TwinQuestion::arithmetic;
  const bool has_local = !evidence.reference.local.empty();
  // What stands for the reduced gradients of a reference that clips by hand are clipped ones.
  const bool is_clipped = has_local && shows_what_was_taken(evidence.reference) && is_clipped_mean(evidence.reference);
  const std::vector<NamedTensor> of_own = (of_own_twin && has_local) || is_clipped ? mean_of_local(evidence.reference) : std::vector<NamedTensor>{};
  evidence.local = judge_gradients(evidence.reference, {of_own.empty() ? evidence.reference.gradients : of_own, mean},
                                   context.step.repeats, context.rules.band, context.step.twins);
  if (!evidence.local.tensors.empty()) context.looked_at(Looked::local_gradients);
  if (!evidence.local.misshapen.empty()) {
    return difference_at(context.b, Phase::local_gradients, kRankUnknown, evidence.local.misshapen.front(),
                         DivergenceKind::shape, "the reference's shape", "another shape");
  }
  auto found = worst_outside(context, evidence.local, Phase::local_gradients, " (mean over ranks)");
  if (!found) return std::nullopt;
  if (auto rank = rank_that_differs(context)) return rank;
  const int rank = rank_of_local_fault(evidence);
  if (rank < 0) return found;
  const Divergence& told = found->divergence;
  return difference_at(context.b, Phase::local_gradients, rank, told.where, told.kind, told.expected, told.actual);
}

/// Has the rank what it had at the step before, in all its local gradients?
static bool repeats_local(const StepRecords& now, const StepRecords& before) {
  bool any = false;
  for (const Record* record : records_of(now, Phase::local_gradients)) {
    if (record->is_scalar) continue;
    const Record* old = find_record(before, record->phase, record->name);
    if (!old || old->stats.hash != record->stats.hash) return false;
    any = any || (record->has_stats && record->stats.norm > 0);
  }
  return any;
}

std::optional<Difference> judge_stale_local(ForcedContext& context) {
  if (!context.step.before_b || !context.step.before_a || context.step.before_b->ranks.size() != context.b.ranks.size())
    return std::nullopt;
  // Gradients that the reference repeats, too, are constant.
  for (const Record* record : records_of(context.a.ranks[0], Phase::reduced_gradients)) {
    const Record* old = find_record(context.step.before_a->ranks[0], record->phase, record->name);
    if (old && old->stats.hash == record->stats.hash && record->stats.norm > 0) return std::nullopt;
  }
  for (std::size_t rank = 0; rank < context.b.ranks.size(); ++rank) {
    if (!repeats_local(context.b.ranks[rank], context.step.before_b->ranks[rank]) ||
        sample_ids(context.b.ranks[rank]) == sample_ids(context.step.before_b->ranks[rank]))
      continue;
    return difference_at(context.b, Phase::local_gradients, static_cast<int>(rank), "all", DivergenceKind::bits,
                         "gradients of this step's rows",
                         fmt::format("those of step {}, bit for bit", context.step.before_b->step));
  }
  return std::nullopt;
}

std::optional<Difference> judge_own_reduction(ForcedContext& context) {
  const ForcedEvidence& evidence = context.evidence;
  const ReductionUse* worst = nullptr;
  const std::vector<ReductionUse> uses = judge_reduction(evidence.cell);
  if (!uses.empty()) context.looked_at(Looked::own_reduction);
  for (const ReductionUse& use : uses) {
    if (use.used > 1 && (!worst || use.used > worst->used)) worst = &use;
  }
  if (!worst) return std::nullopt;
  const std::string bucket = bucket_of(context.b.ranks[0], worst->name);
  const std::vector<NamedTensor> means = mean_of_local(evidence.cell);
  return difference_at(
      context.b, Phase::reduced_gradients, -1, worst->name, DivergenceKind::reduction,
      fmt::format("the {} of {} local gradients, norm {}", evidence.cell.reduced_by_sum ? "sum" : "mean",
                  evidence.cell.local.size(), exact_number(norm(find_tensor(means, worst->name)->values))),
      fmt::format("norm {}; the difference is {} times the rounding of {} terms{}",
                  exact_number(norm(find_tensor(evidence.cell.gradients, worst->name)->values)),
                  short_number(worst->used), evidence.cell.local.size(), bucket.empty() ? "" : ", in " + bucket));
}

std::optional<Difference> judge_taken_by_hand(ForcedContext& context) {
  constexpr double kNear = 1e-4, kAlike = 1e-2;
  const ForcedEvidence& evidence = context.evidence;
  const auto apart = relative_distance(evidence.reference_state, evidence.state);
  if (!works_by_hand(evidence) || !apart || !(*apart <= kNear) || evidence.reference.applied.size() != evidence.cell.applied.size()) return std::nullopt;
  const double expected = whole_norm(evidence.reference.applied), found = whole_norm(evidence.cell.applied);
  if (!(std::abs(found - expected) > kAlike * std::max(found, expected))) return std::nullopt;
  return difference_at(context.b, Phase::applied_gradients, kAllRanks, "all", DivergenceKind::value,
                       "norm " + exact_number(expected), "norm " + exact_number(found));
}

std::optional<Difference> judge_own_norm(ForcedContext& context) {
  /// Norms are sums in the precision of the trainer, in an order of its own.
  constexpr double kMost = 1e-4;
  const auto gap = [](const ForcedValues& values) {
    const double own = whole_norm(values.gradients);
    return own > 0 ? distance(own, *values.gradient_norm) / own : 0;
  };
  const ForcedValues &reference = context.evidence.reference, &cell = context.evidence.cell;
  if (!reference.gradient_norm || !cell.gradient_norm || cell.other_stages || reference.other_stages) return std::nullopt;
  // A norm of shards is no norm of the whole.
  const auto is_part = [&](const NamedTensor& tensor) {
    const NamedTensor* whole = find_tensor(reference.gradients, tensor.name);
    return tensor.may_be_shard && (!whole || whole->shape != tensor.shape);
  };
  if (std::ranges::any_of(cell.gradients, is_part)) return std::nullopt;
  if (gap(reference) > kMost) return std::nullopt;
  context.looked_at(Looked::own_norm);
  if (gap(cell) <= kMost) return std::nullopt;
  return difference_at(context.b, Phase::gradient_norm, -1, "gradient_norm", DivergenceKind::value,
                       "the norm of the reduced gradients, " + exact_number(whole_norm(cell.gradients)),
                       exact_number(*cell.gradient_norm));
}

bool is_clipped_by_hand(const ForcedEvidence& evidence) { return works_by_hand(evidence) && is_clipped_mean(evidence.cell); }

std::optional<Difference> judge_reduced_gradients(ForcedContext& context) {
  const ForcedEvidence& evidence = context.evidence;
  const GradientJudgement& judgement = evidence.reduced;
  if (!judgement.missing.empty()) {
    const std::string& name = judgement.missing.front();
    const bool in_reference = find_tensor(evidence.reference.gradients, name) != nullptr;
    return difference_at(context.b, Phase::reduced_gradients, -1, name, DivergenceKind::missing,
                         in_reference ? "a gradient" : "nothing", in_reference ? "nothing" : "a gradient");
  }
  if (!judgement.misshapen.empty()) {
    return difference_at(context.b, Phase::reduced_gradients, -1, judgement.misshapen.front(), DivergenceKind::shape,
                         "the reference's shape", "another shape");
  }
  if (!judgement.tensors.empty()) context.looked_at(Looked::reduced_gradients);
  auto against_reference = worst_outside(context, judgement, Phase::reduced_gradients, "");
  if (auto reduction = judge_own_reduction(context)) return reduction;
  if (!against_reference) return std::nullopt;
  if (auto local = rank_that_differs(context)) return local;
  return against_reference;
}

namespace {

constexpr double kClippingRoundings = 16;  // of an element that was clipped

/// How far what the optimizer took is from `factor` times the reduced gradient, as a multiple of what rounding explains;
/// the worst tensor.
ReductionUse applied_use(const ForcedValues& values, double factor) {
  ReductionUse worst;
  for (const NamedTensor& taken : values.applied) {
    const NamedTensor* reduced = find_tensor(values.gradients, taken.name);
    if (!reduced || reduced->values.size() != taken.values.size()) continue;
    for (std::size_t i = 0; i < taken.values.size(); ++i) {
      const double expected = factor * reduced->values[i], gap = distance(expected, taken.values[i]);
      const double allowance = kClippingRoundings * taken.epsilon * std::abs(expected) + std::numeric_limits<float>::denorm_min();
      if (gap / allowance > worst.used) worst = {taken.name, gap / allowance};
    }
  }
  return worst;
}

double largest_of_all(const std::vector<NamedTensor>& tensors) {
  double largest = 0;
  for (const NamedTensor& tensor : tensors) largest = std::max(largest, largest_of(tensor.values));
  return largest;
}

/// Is every element what it was, cut off at the largest that was taken?
bool is_cut_off(const ForcedValues& values) {
  const double limit = largest_of_all(values.applied);
  return std::ranges::all_of(values.applied, [&](const NamedTensor& taken) {
    const NamedTensor* reduced = find_tensor(values.gradients, taken.name);
    if (!reduced || reduced->values.size() != taken.values.size()) return true;
    for (std::size_t i = 0; i < taken.values.size(); ++i) {
      const double expected = std::clamp(reduced->values[i], -limit, limit);
      if (distance(expected, taken.values[i]) > kClippingRoundings * taken.epsilon * limit) return false;
    }
    return true;
  });
}

/// Did the cell clip to the reference's limit, by hand?
bool clips_as_the_reference(double limit, const ForcedValues& cell) {
  constexpr double kAlike = 1e-4;
  const double size = reduced_norm(cell), factor = whole_norm(cell.applied) / size;
  return limit > 0 && std::abs(factor - clip_factor(limit, size)) <= kAlike * factor && applied_use(cell, factor).used <= 1;
}

/// The reference took its reduced gradient as it was, the cell a smaller one. Nobody has told of clipping: may both clip
/// alike, by the whole norm or each value, at what the cell was clipped to, which the reference stays below?
bool may_both_clip(const ForcedValues& reference, const ForcedValues& cell) {
  constexpr double kRoundings = 1e-4;  // norms are sums in the precision of the trainer, and clipping adds a little to them
  const double limit = whole_norm(cell.applied);
  const double factor = limit / reduced_norm(cell);
  if (factor < 1 && applied_use(cell, factor).used <= 1) return reduced_norm(reference) <= limit * (1 + kRoundings);
  return is_cut_off(cell) && largest_of_all(reference.gradients) <= largest_of_all(cell.applied) * (1 + kRoundings);
}

}  // namespace

std::optional<Difference> judge_applied_gradients(ForcedContext& context) {
  const ForcedValues &reference = context.evidence.reference, &cell = context.evidence.cell;
  if (reference.applied.empty() || cell.applied.empty() || !knows_norm(reference) || !knows_norm(cell)) return std::nullopt;
  const double of_reference = clip_factor(context.rules.reference_facts.clip_norm, reduced_norm(reference)),
               of_cell = clip_factor(context.rules.cell_facts.clip_norm, reduced_norm(cell));
  if (applied_use(reference, of_reference).used > 1) return std::nullopt;
  context.looked_at(Looked::own_clipping);
  const ReductionUse worst = applied_use(cell, of_cell);
  if (worst.used <= 1) return std::nullopt;
  const bool is_told =
      context.rules.ours() || context.rules.reference_facts.clip_norm > 0 || context.rules.cell_facts.clip_norm > 0;
  if (!is_told && may_both_clip(reference, cell)) return std::nullopt;
  if (!context.rules.ours() && context.rules.cell_facts.clip_norm <= 0 &&
      clips_as_the_reference(context.rules.reference_facts.clip_norm, cell))
    return std::nullopt;
  const auto size = [&](const std::vector<NamedTensor>& tensors) { return norm(find_tensor(tensors, worst.name)->values); };
  return difference_at(context.b, Phase::applied_gradients, -1, worst.name, DivergenceKind::clip,
                       fmt::format("{} times the reduced gradient, norm {}", short_number(of_cell),
                                   exact_number(of_cell * size(cell.gradients))),
                       "norm " + exact_number(size(cell.applied)));
}

/// What rounding may make of a buffer. Where it is a mean of scores it follows their size; else its own, or that of
/// values around 1, as the means are that normalisation keeps.
static double buffer_band(const ForcedContext& context, const NamedTensor& expected) {
  const ForcedEvidence& evidence = context.evidence;
  const bool of_scores = context.rules.scores().buffers_are_means && evidence.reference.scores;
  const double others = of_scores ? largest_score(*evidence.reference.scores)
                                  : std::sqrt(static_cast<double>(expected.values.size()));
  const double size = std::max(others, norm(expected.values));
  if (size == 0) return std::numeric_limits<double>::infinity();
  if (context.step.twins) return context.step.twins->of_buffer(expected.name, size);
  if (context.rules.band.exact > 0) return context.rules.band.exact * size;
  double repeated = 0;
  for (const ForcedValues& repeat : context.step.repeats) {
    const NamedTensor* again = of_scores ? nullptr : find_tensor(repeat.parameters, expected.name);
    if (again && again->values.size() == expected.values.size()) {
      repeated = std::max(repeated, distance(expected.values, again->values));
    }
  }
  const double rounding = std::max(rounding_bound(0, evidence.reference.epsilon),
                                   context.rules.band.floor * evidence.reference.working_epsilon);
  return std::max(rounding * size, context.rules.band.factor * repeated);
}

std::optional<Difference> judge_buffers(ForcedContext& context) {
  const ForcedEvidence& evidence = context.evidence;
  if (context.rules.scores().buffers_are_means && !evidence.reference.scores) return std::nullopt;
  for (const NamedTensor& expected : evidence.reference.parameters) {
    if (!is_buffer(expected.name)) continue;
    const NamedTensor* actual = find_tensor(evidence.cell.parameters, expected.name);
    if (!actual || actual->values.size() != expected.values.size() || expected.values.empty()) continue;
    context.looked_at(Looked::buffers);
    if (distance(expected.values, actual->values) <= buffer_band(context, expected)) continue;
    return difference_at(context.b, Phase::parameters, -1, expected.name, DivergenceKind::band,
                         exact_number(expected.values[0]), exact_number(actual->values[0]));
  }
  return std::nullopt;
}

/// A parameter that kept every bit through the cell's update although it has a gradient and moved in the reference's, and that is not
/// among the `recomputed`: its optimizer holds no state of it. Where its update is recomputed, a gradient of rounding alone may give none.
static std::optional<UpdateUse> stood_still(const ForcedContext& context, const std::vector<UpdateUse>& recomputed) {
  constexpr double kTelling = 1e-6;
  const ForcedEvidence& evidence = context.evidence;
  const auto moved = [](const KnownState& state, const ForcedValues& values, const std::string& name) {
    const NamedTensor *before = find_tensor(state->tensors, name), *after = find_tensor(values.parameters, name);
    if (!before || !after || before->values.size() != after->values.size() || after->values.empty()) return -1.0;
    return distance(before->values, after->values);
  };
  for (const NamedTensor& gradient : evidence.cell.gradients) {
    if (std::ranges::find(recomputed, gradient.name, &UpdateUse::name) != recomputed.end()) continue;
    const double in_reference = moved(evidence.reference_state, evidence.reference, gradient.name);
    if (moved(evidence.state, evidence.cell, gradient.name) != 0) continue;
    // A gradient that is zero but for rounding may move a parameter by less than its last place.
    const double size = norm(find_tensor(evidence.state->tensors, gradient.name)->values);
    if (!(in_reference > kTelling * size) || !(in_reference > 0)) continue;
    if (norm(gradient.values) > 0) return UpdateUse{gradient.name, std::numeric_limits<double>::infinity(), in_reference, 0};
  }
  return std::nullopt;
}

/// A rank's part of a parameter that stood still while the others moved, see shard_stood_still.
static std::optional<Difference> still_shard(const ForcedContext& context) {
  const ForcedEvidence& evidence = context.evidence;
  const BeforeUpdate before{evidence.state.get(), pointer_to(context.step.before_b), &evidence.cell.parameters,
                            evidence.reference_state.get(), &evidence.reference.parameters};
  for (std::size_t rank = 0; rank < context.b.parts.size(); ++rank) {
    for (const Record& part : context.b.parts[rank]) {
      if (part.phase != Phase::parameters || !shard_stood_still(context.b, before, rank, part.name)) continue;
      return difference_at(context.b, Phase::parameters, static_cast<int>(rank), part.name, DivergenceKind::update,
                           "a change of the rank's part",
                           "a change of norm 0: it did not move, although its gradient is not 0");
    }
  }
  return std::nullopt;
}

/// Updates of an optimizer that cannot be recomputed, by what the reference's made of the same gradients.
static std::optional<Difference> update_beside_reference(const ForcedContext& context) {
  const auto unlike = context.begins_equal ? unlike_update(context.evidence) : std::nullopt;
  if (!unlike) return std::nullopt;
  return difference_at(context.b, Phase::parameters, kAllRanks, unlike->name, DivergenceKind::update,
                       "a change of norm " + exact_number(unlike->expected),
                       fmt::format("a change of norm {}; the two differ by {} where the gradients are not small, from "
                                   "equal parameters and gradients",
                                   exact_number(unlike->actual), short_number(unlike->gap)));
}

std::optional<Difference> judge_parameters(ForcedContext& context) {
  const ForcedEvidence& evidence = context.evidence;
  if (auto still = still_shard(context)) return still;
  if (!evidence.state || !evidence.reference_state) return std::nullopt;
  const auto of_reference = update_inputs(*evidence.reference_state, evidence.reference, context.rules.reference_facts);
  const auto of_cell = update_inputs(*evidence.state, evidence.cell, context.rules.cell_facts);
  // The recomputation must give the reference's own update; otherwise it is too uncertain to blame the cell.
  const std::vector<UpdateUse> own = of_reference ? judge_update(*of_reference, evidence.reference.parameters) : std::vector<UpdateUse>{};
  const bool certain = of_reference && of_cell && std::ranges::all_of(own, [](const UpdateUse& use) { return use.used <= 1; });
  if (!certain || own.empty()) {
    auto unlike = update_beside_reference(context);
    if (unlike || !certain) return unlike;
  }
  std::optional<UpdateUse> worst;
  const std::vector<UpdateUse> recomputed = judge_update(*of_cell, evidence.cell.parameters);
  for (const UpdateUse& use : recomputed) {
    context.looked_at(Looked::updates);
    if (use.used > 1 && (!worst || use.used > worst->used)) worst = use;
  }
  if (!worst) worst = stood_still(context, recomputed);
  if (!worst) return std::nullopt;
  const bool stood = worst->actual == 0 && !std::isfinite(worst->used);
  return difference_at(
      context.b, Phase::parameters, -1, worst->name, DivergenceKind::update,
      "a change of norm " + exact_number(worst->expected),
      stood ? std::string("a change of norm 0: it did not move, although its gradient is not 0")
            : fmt::format(
                  "a change of norm {}; the difference from the update that its own gradient gives is {} times the "
                  "rounding tolerance",
                  exact_number(worst->actual), short_number(worst->used)));
}

}  // namespace lockstep
