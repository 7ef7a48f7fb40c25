#include "harness/compare/layouts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "harness/compare/bits.h"
#include "harness/compare/forced/free.h"
#include "harness/compare/rounding_bound.h"
#include "harness/compare/step_records.h"
#include "harness/compare/trainer_of.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Where the bound reaches this share it says nothing any more, and only the exact phases are compared.
constexpr double kUselessBound = 0.1;

/// The free traces' bounded phases at one step. `alike`: both runs began it with the same parameters.
class BoundedStep {
 public:
  BoundedStep(const StepOfRun& a, const StepOfRun& b, const ScoreSpec& scores, double bound, bool alike)
      : a_(a), b_(b), scores_(scores), record_(scores.record), bound_(bound), alike_(alike) {}

  /// Phase by phase: the first difference that no rounding explains.
  std::optional<Difference> first() {
    for (auto part : {&BoundedStep::scores, &BoundedStep::loss, &BoundedStep::gradients,
                      &BoundedStep::gradient_norm, &BoundedStep::parameters}) {
      auto found = (this->*part)();
      if (!found) continue;
      if (!may_be_rounding(*found)) return found;
      if (!doubt_) doubt_ = std::move(found);
    }
    return std::nullopt;
  }
  /// After first(): the first difference beyond the bound that rounding may explain all the same.
  const std::optional<Difference>& doubt() const { return doubt_; }
  double used() const { return used_; }

 private:
  /// Once parameters differ, everything may differ by rounding that training has amplified, and no bound is
  /// known for that. The same holds for parameters after their update: Adam takes a full step where a
  /// gradient is nothing but rounding.
  bool may_be_rounding(const Difference& found) const {
    return found.divergence.kind == "band" && std::isfinite(found.relative) &&
           (!alike_ || found.phase == Phase::parameters);
  }

  /// Nothing if |expected - actual| <= bound * size; counts how much of the bound it takes.
  std::optional<Difference> within(Phase phase, const std::string& where, double expected, double actual,
                                   double size) {
    const double gap = distance(expected, actual);
    const double share = gap == 0 ? 0 : size > 0 && std::isfinite(gap) ? gap / (bound_ * size) : kInfinity;
    if (share <= 1) {
      used_ = std::max(used_, share);
      return std::nullopt;
    }
    used_ = share;
    Difference found = difference_at(a_.step, phase, -1, where, "band", exact_number(expected),
                                     exact_number(actual), static_cast<int>(b_.ranks.size()));
    found.relative = std::isfinite(gap) ? share : kInfinity;
    found.divergence.sentence.pop_back();
    found.divergence.sentence += fmt::format(
        ", which is {} times what rounding may explain (bound, not measured).", short_number(share));
    return found;
  }

  /// Columns of one rank's scores, -1 if it recorded none.
  int64_t columns_of(const StepRecords& rank) const {
    const Record* columns = find_record(rank, Phase::energies, "columns");
    if (columns && columns->shape.size() == 1) return columns->shape[0];
    const Record* scores = find_record(rank, Phase::energies, record_);
    return scores && scores->shape.size() == 2 ? scores->shape[1] : -1;
  }

  double merged_norm(const StepOfRun& step) const {
    double squares = 0;
    for (const StepRecords& rank : step.ranks) {
      const Record* scores = find_record(rank, Phase::energies, record_);
      if (!scores || !scores->has_stats || scores->stats.nonfinite > 0) return -1;
      squares += scores->stats.norm * scores->stats.norm;
    }
    return std::sqrt(squares);
  }

  std::optional<Difference> scores() {
    const int world_size = static_cast<int>(b_.ranks.size());
    const int64_t expected = columns_of(a_.ranks[0]);
    if (expected < 0) return std::nullopt;
    std::vector<int> wrong;
    int64_t found = expected;
    for (int rank = 0; rank < world_size; ++rank) {
      const int64_t actual = columns_of(b_.ranks[static_cast<std::size_t>(rank)]);
      if (actual == expected || actual < 0) continue;
      if (wrong.empty()) found = actual;
      wrong.push_back(rank);
    }
    if (!wrong.empty()) {
      const bool on_all = world_size > 1 && static_cast<int>(wrong.size()) == world_size;
      return columns_difference(scores_, a_.step, expected, found, on_all ? -1 : wrong[0], world_size);
    }
    const double norm_a = merged_norm(a_), norm_b = merged_norm(b_);
    if (norm_a < 0 || norm_b < 0) return std::nullopt;
    return within(Phase::energies, record_ + " (norm)", norm_a, norm_b, norm_a);
  }

  static std::optional<double> mean_loss(const StepOfRun& step) {
    double sum = 0;
    for (const StepRecords& rank : step.ranks) {
      const Record* loss = find_record(rank, Phase::loss, "loss");
      if (!loss) return std::nullopt;
      sum += loss->value;
    }
    return sum / static_cast<double>(step.ranks.size());
  }

  std::optional<Difference> loss() {
    const std::optional<double> expected = mean_loss(a_), actual = mean_loss(b_);
    if (!expected || !actual) return std::nullopt;
    return within(Phase::loss, "loss (mean over ranks)", *expected, *actual,
                  std::max(1.0, std::abs(*expected)));
  }

  static double total_norm(const StepOfRun& step, Phase phase) {
    double squares = 0;
    for (const Record* record : records_of(step.ranks[0], phase))
      squares += record->stats.norm * record->stats.norm;
    return std::sqrt(squares);
  }

  std::optional<Difference> gradients() {
    // Against the whole gradient: the noise of a bias whose terms cancel is large against the bias's own
    // norm.
    const double size = total_norm(a_, Phase::reduced_gradients);
    std::optional<Difference> worst;
    double most = 1;
    for (const Record* record : records_of(a_.ranks[0], Phase::reduced_gradients)) {
      const Record* other = find_record(b_.ranks[0], Phase::reduced_gradients, record->name);
      if (!other) {
        return difference_at(a_.step, Phase::reduced_gradients, 0, record->name, "missing", "a gradient",
                             "nothing", static_cast<int>(b_.ranks.size()));
      }
      if (record->stats.hash == other->stats.hash || !record->has_stats || !other->has_stats) continue;
      auto found = within(Phase::reduced_gradients, record->name + " (norm)", record->stats.norm,
                          other->stats.norm, size);
      if (!found || used_ <= most) continue;
      most = used_;
      worst = std::move(found);
    }
    if (worst) used_ = most;
    return worst;
  }

  std::optional<Difference> gradient_norm() {
    const std::vector<const Record*> expected = records_of(a_.ranks[0], Phase::gradient_norm);
    for (const Record* record : expected) {
      const Record* other = find_record(b_.ranks[0], Phase::gradient_norm, record->name);
      if (!other || !record->is_scalar) continue;
      if (auto found = within(Phase::gradient_norm, record->name, record->value, other->value,
                              std::abs(record->value))) {
        return found;
      }
    }
    return std::nullopt;
  }

  std::optional<Difference> parameters() {
    // Adam gives a parameter whose gradient is nothing but rounding a full step in a random direction: only
    // the norm of all parameters together is steady enough to be bounded.
    const double expected = total_norm(a_, Phase::parameters), actual = total_norm(b_, Phase::parameters);
    if (expected == 0) return std::nullopt;
    return within(Phase::parameters, "all parameters (norm)", expected, actual, expected);
  }

  const StepOfRun &a_, &b_;
  const ScoreSpec& scores_;
  std::string record_;  ///< their name
  double bound_;
  bool alike_;
  double used_ = 0;
  std::optional<Difference> doubt_;
};

/// Does rank 0 of both hold the same parameters, bit for bit, at the end of the step? True where neither
/// trace says so, as when it begins with its first step.
bool same_parameters(const StepOfRun& a, const StepOfRun& b) {
  for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
    const Record* other = find_record(b.ranks[0], Phase::parameters, record->name);
    if (other && other->stats.hash != record->stats.hash) return false;
  }
  return true;
}

/// What the free traces of two layouts leave open, and why.
struct OpenQuestion {
  std::optional<Difference> beyond;  ///< the first difference beyond the bound that may be rounding
  double times = 0;                  ///< so many times the bound
  int64_t bounded_steps = 0;         ///< steps at which the bound said anything
};

std::string undecided_sentence(const OpenQuestion& open, const ScoreSpec& scores, int64_t compared) {
  std::string text = fmt::format(
      "Sample ids, random streams, control values, collectives and replicas agree exactly over {}; {}, "
      "losses and gradients cannot be judged: ",
      counted(compared, "step"), scores.record);
  if (open.beyond) {
    const Divergence& first = open.beyond->divergence;
    text += fmt::format(
        "from step {} on ({}, {}) they differ by more than the rounding of one step, {} times it at first, "
        "and training may have amplified mere rounding that far.",
        first.step, first.phase, first.where, short_number(open.times));
  } else {
    text += "rounding in their precision has no useful bound.";
  }
  return text +
         " Gradients at forced_steps, from equal parameters and against a measured band, would decide.";
}

/// The verdict where nothing was found to differ beyond rounding.
void judge_undiverged(const OpenQuestion& open, const ScoreSpec& scores, const std::string& ends,
                      Mechanism& result) {
  if (result.compared_steps == 0) {
    result.sentence = fmt::format("Nothing could be compared: {}.",
                                  ends.empty() ? "both traces end before the first step" : ends);
    return;
  }
  if (open.beyond || open.bounded_steps == 0) {
    result.verdict = VerdictKind::inconclusive;
    result.sentence = undecided_sentence(open, scores, result.compared_steps);
  } else {
    result.verdict = VerdictKind::within_envelope;
    result.sentence = fmt::format(
        "Within rounding (bound, not measured): {:.2g} % of it used over the first {}; sample ids, random "
        "streams and control values agree exactly over {}.",
        100 * result.band_used, counted(open.bounded_steps, "step"), counted(result.compared_steps, "step"));
  }
  if (!ends.empty()) result.sentence += fmt::format(" Compared as far as both traces go: {}.", ends);
}

}  // namespace

Difference columns_difference(const ScoreSpec& scores, int64_t step, int64_t expected, int64_t actual,
                              int rank, int world_size) {
  const std::string column(scores.column);
  const int64_t missing = expected - actual;
  Difference found = difference_at(step, Phase::energies, rank, std::string(scores.record), "missing",
                                   counted(expected - scores.own_columns, column) + " a row",
                                   counted(actual - scores.own_columns, column) + " a row", world_size);
  if (missing > 0) found.divergence.actual += fmt::format(" ({} missing)", missing);
  found.divergence.sentence =
      fmt::format("They part at step {}, {}, {}: {} of {} a row.", step, name_of(Phase::energies),
                  rank_text(rank, world_size), counted(actual - scores.own_columns, column),
                  expected - scores.own_columns);
  return found;
}

Comparison compare_layouts(StepPairs& pairs, const RunConfig* reference_config, const RunConfig* cell_config) {
  Mechanism result;
  std::optional<CauseInputs> inputs;
  SampleHistory samples_a, samples_b;
  OpenQuestion open;
  std::optional<int64_t> first_step;
  bool alike = true;
  const TrainerSpec* const trainer = trainer_of(pairs.a(), pairs.b());
  const ScoreSpec& scores = scores_of(trainer);
  const double epsilon = working_epsilon(reference_config, std::numeric_limits<float>::epsilon());
  while (!result.first_divergence && pairs.next()) {
    const StepOfRun &a = pairs.step_a(), &b = pairs.step_b();
    if (!first_step) first_step = a.step;
    remember_samples(samples_a, a);
    remember_samples(samples_b, b);
    const OwnFindings own = own_findings(a, b, pairs.before_b() ? &*pairs.before_b() : nullptr, true);
    std::optional<Difference> found = own.difference;
    // Nothing lies before an exact phase; a finding in the ledger or the replicas may come after the bounded
    // phases.
    const bool exact = found && is_exact(found->phase);
    const double bound = rounding_bound(a.step - *first_step, epsilon);
    if (!exact && bound <= kUselessBound) {
      BoundedStep bounded(a, b, scores, bound, alike);
      keep_earlier(found, bounded.first());
      result.band_used = std::max(result.band_used, bounded.used());
      ++open.bounded_steps;
      if (!open.beyond && bounded.doubt()) {
        open.beyond = bounded.doubt();
        open.times = bounded.doubt()->relative;
      }
    }
    alike = alike && same_parameters(a, b);
    if (!found) continue;
    result.first_divergence = found->divergence;
    result.compared_steps = pairs.compared();
    inputs.emplace();
    inputs->difference = *found;
    inputs->reference = a;
    inputs->cell = b;
    inputs->reference_before = pairs.before_a();
    inputs->cell_before = pairs.before_b();
    inputs->reference_samples = samples_a;
    inputs->cell_samples = samples_b;
    if (found->phase == Phase::collective) inputs->ledger = own.ledger;
  }
  if (!result.first_divergence) result.first_divergence = pairs.missing_step();
  if (!inputs) result.compared_steps = pairs.compared();
  if (result.first_divergence) {
    result.verdict = VerdictKind::divergent;
    result.sentence = result.first_divergence->sentence;
    if (inputs) {
      inputs->reference_config = reference_config;
      inputs->cell_config = cell_config;
      inputs->trainer = trainer;
      if (pairs.next()) {
        remember_samples(inputs->reference_samples, pairs.step_a());
        remember_samples(inputs->cell_samples, pairs.step_b());
      }
    }
    return {std::move(result), std::move(inputs)};
  }
  judge_undiverged(open, scores, pairs.ends(), result);
  return {std::move(result), std::nullopt};
}

}  // namespace lockstep
