#include "harness/judge/forced.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "harness/judge/compare.h"
#include "harness/judge/forced_gradients.h"
#include "harness/judge/forced_values.h"

namespace lockstep {
namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

bool earlier(const Difference& x, const Difference& y) {
  if (x.divergence.step != y.divergence.step) return x.divergence.step < y.divergence.step;
  return x.phase < y.phase;
}

void keep_earlier(std::optional<Difference>& first, const std::optional<Difference>& other) {
  if (other && (!first || earlier(*other, *first))) first = other;
}

/// What the free runs say: the exact phases at every step, and at one layout the first differing bit.
struct FreeFindings {
  std::optional<Difference> exact, bits;
  int64_t compared = 0;
  bool compared_bits = false;
  std::string ends;
};

FreeFindings read_free_runs(const std::string& reference, const std::string& cell) {
  FreeFindings found;
  StepPairs pairs(reference, cell);
  found.compared_bits = pairs.same_layout();
  while (!found.exact && pairs.next()) {
    const StepOfRun &a = pairs.step_a(), &b = pairs.step_b();
    found.exact = pairs.same_layout() ? first_difference(a, b, true) : first_exact_difference(a, b);
    if (pairs.same_layout() && !found.bits) found.bits = first_difference(a, b);
  }
  if (!found.exact && pairs.missing_step())
    found.exact = Difference{*pairs.missing_step(), Phase::samples, 0};
  found.compared = pairs.compared();
  found.ends = pairs.ends();
  return found;
}

/// Goes through the forced steps of all runs side by side.
class ForcedJudge {
 public:
  explicit ForcedJudge(const ForcedInputs& inputs)
      : inputs_(inputs), reference_(inputs.forced_reference), cell_(inputs.forced_cell) {
    for (const std::string& dir : inputs.forced_repeats) repeats_.emplace_back(dir);
  }

  void run(bool exact_phases_too) {
    while (true) {
      const std::optional<StepOfRun> a = reference_.next(), b = cell_.next();
      if (!a || !b) break;
      if (a->step != b->step) {
        throw TraceError(fmt::format("{}: has forced step {} where {} has step {}", cell_.dir(), b->step,
                                     reference_.dir(), a->step));
      }
      if (exact_phases_too) {
        keep_earlier(first_, same_layout() ? first_difference(*a, *b, true) : first_exact_difference(*a, *b));
      }
      judge_step(*a, *b);
      every_bit_equal_ = every_bit_equal_ && same_layout() && !first_difference(*a, *b);
    }
    ends_ = reference_.end().empty() ? cell_.end() : reference_.end();
  }

  const std::optional<Difference>& first() const { return first_; }
  std::vector<ForcedStep>& steps() { return steps_; }
  const std::string& ends() const { return ends_; }
  bool every_bit_equal() const { return every_bit_equal_; }

 private:
  bool same_layout() const { return reference_.world_size() == cell_.world_size(); }

  std::vector<ForcedValues> repeats_at(int64_t step) {
    std::vector<ForcedValues> values;
    for (RunReader& repeat : repeats_) {
      const std::optional<StepOfRun> records = repeat.next();
      if (!records || records->step != step) {
        throw TraceError(fmt::format("{}: a repeat that lacks forced step {}{}", repeat.dir(), step,
                                     repeat.end().empty() ? "" : "; " + repeat.end()));
      }
      values.push_back(forced_values(*records, repeat.dir()));
    }
    return values;
  }

  Difference made(Phase phase, int rank, const std::string& where, const std::string& kind,
                  const std::string& expected, const std::string& actual) const {
    Difference found;
    found.phase = phase;
    found.divergence = {at_.step, name_of(phase), rank, where, kind, expected, actual, ""};
    found.divergence.sentence =
        fmt::format("They part at step {}, {}, {}: {}: {}.", at_.step, name_of(phase),
                    rank_text(rank, cell_.world_size()), where, expected_found(expected, actual));
    return found;
  }

  /// Counts what `use` takes of its band; true if it lies outside.
  bool outside(const std::string& where, const BandUse& use) {
    const double used = use.used();
    if (at_.worst_tensor.empty() || used > at_.band_used) {
      at_.band_used = used;
      at_.worst_tensor = where;
    }
    return !(used <= 1);
  }

  std::string band_text(const BandUse& use) const {
    return fmt::format("differs by {}, {} times the {} of {}", short_number(use.difference),
                       short_number(use.used()), repeats_.empty() ? "bound (not measured)" : "band",
                       short_number(use.band));
  }

  std::optional<Difference> energies(const ForcedValues& a, const ForcedValues& b,
                                     const std::vector<ForcedValues>& repeats) {
    if (!a.energies && !b.energies) return std::nullopt;
    if (!a.energies || !b.energies) {
      return made(Phase::energies, -1, "energies", "missing",
                  a.energies ? "energies with row and column ids" : "nothing",
                  b.energies ? "energies with row and column ids" : "nothing");
    }
    const EnergyDifference found = energy_difference(*a.energies, *b.energies);
    if (found.missing_rows > 0) {
      return made(Phase::energies, -1, "energies", "missing",
                  counted(static_cast<int64_t>(a.energies->rows.size()), "row"),
                  counted(found.missing_rows, "row") + " missing");
    }
    if (found.missing_columns + found.extra_columns > 0) {
      const int rank = found.every_rank_differs && cell_.world_size() > 1 ? -1 : found.columns_rank;
      if (found.expected_columns != found.actual_columns) {
        return columns_difference(at_.step, found.expected_columns, found.actual_columns, rank,
                                  cell_.world_size());
      }
      return made(Phase::energies, rank, "energies", "missing", "the reference's negatives",
                  counted(found.missing_columns, "other negative") + " a row");
    }
    double repeated = 0;
    for (const ForcedValues& repeat : repeats) {
      if (repeat.energies)
        repeated = std::max(repeated, energy_difference(*a.energies, *repeat.energies).largest);
    }
    const BandUse use{found.largest, scalar_band(repeated, repeats.empty(), largest_energy(*a.energies))};
    if (!outside("energies", use)) return std::nullopt;
    return made(Phase::energies, found.rank,
                fmt::format("energies, row {}, column {}", found.row_id, found.column_id), "band",
                exact_number(found.expected), exact_number(found.actual) + "; " + band_text(use));
  }

  double scalar_band(double repeated, bool unmeasured, double size) const {
    const double floor = inputs_.band.floor * kEpsilon * size;
    return std::max(floor, unmeasured ? rounding_bound(0) * size : inputs_.band.factor * repeated);
  }

  std::optional<Difference> scalar(Phase phase, const std::string& where, std::optional<double> expected,
                                   std::optional<double> actual,
                                   const std::vector<std::optional<double>>& repeats, double size) {
    if (!expected && !actual) return std::nullopt;
    if (!expected || !actual) {
      return made(phase, -1, where, "missing", expected ? exact_number(*expected) : "nothing",
                  actual ? exact_number(*actual) : "nothing");
    }
    double repeated = 0;
    for (const std::optional<double>& repeat : repeats) {
      if (repeat) repeated = std::max(repeated, distance(*expected, *repeat));
    }
    const BandUse use{distance(*expected, *actual), scalar_band(repeated, repeats.empty(), size)};
    if (!outside(where, use)) return std::nullopt;
    return made(phase, -1, where, "band", exact_number(*expected),
                exact_number(*actual) + "; " + band_text(use));
  }

  /// At one layout, where only some ranks' local gradients differ: which rank's first, and in which tensor.
  std::optional<Difference> local_gradient(const StepOfRun& a, const StepOfRun& b) const {
    if (!same_layout()) return std::nullopt;
    std::optional<Difference> first;
    std::size_t differing = 0;
    for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
      bool differs = false;
      for (const Record& expected : a.ranks[rank].records) {
        if (expected.phase != Phase::local_gradients) continue;
        for (const Record& actual : b.ranks[rank].records) {
          if (actual.phase != expected.phase || actual.name != expected.name) continue;
          if (actual.stats.hash == expected.stats.hash) break;
          differs = true;
          if (!first) {
            first = made(
                Phase::local_gradients, static_cast<int>(rank), expected.name, "bits",
                fmt::format("hash {}, norm {}", hex16(expected.stats.hash),
                            exact_number(expected.stats.norm)),
                fmt::format("hash {}, norm {}", hex16(actual.stats.hash), exact_number(actual.stats.norm)));
          }
          break;
        }
      }
      differing += differs;
    }
    // If every rank's differ, that may be rounding somewhere before, and names nobody.
    return differing < a.ranks.size() ? first : std::nullopt;
  }

  std::optional<Difference> gradients(const GradientJudgement& judgement, const StepOfRun& a,
                                      const StepOfRun& b) {
    if (!judgement.missing.empty()) {
      const std::string& name = judgement.missing.front();
      const bool in_reference = std::any_of(
          a.ranks[0].records.begin(), a.ranks[0].records.end(),
          [&](const Record& each) { return each.phase == Phase::reduced_gradients && each.name == name; });
      return made(Phase::reduced_gradients, -1, name, "missing", in_reference ? "a gradient" : "nothing",
                  in_reference ? "nothing" : "a gradient");
    }
    if (!judgement.misshapen.empty()) {
      return made(Phase::reduced_gradients, -1, judgement.misshapen.front(), "shape", "the reference's shape",
                  "another shape");
    }
    bool any_outside = false;
    for (const TensorUse& tensor : judgement.tensors) any_outside |= outside(tensor.name, tensor.use);
    if (!any_outside) return std::nullopt;
    if (auto local = local_gradient(a, b)) return local;
    const TensorUse& worst = *judgement.worst();
    return made(Phase::reduced_gradients, -1, worst.name, "band",
                "norm " + exact_number(worst.norm_reference),
                fmt::format("norm {}; {}", exact_number(worst.norm_cell), band_text(worst.use)));
  }

  void judge_step(const StepOfRun& a, const StepOfRun& b) {
    at_ = {};
    at_.step = a.step;
    const ForcedValues reference = forced_values(a, reference_.dir()), cell = forced_values(b, cell_.dir());
    const std::vector<ForcedValues> repeats = repeats_at(a.step);
    std::vector<std::optional<double>> losses, norms;
    for (const ForcedValues& repeat : repeats) {
      losses.push_back(repeat.loss);
      norms.push_back(repeat.gradient_norm);
    }
    // A loss near 0 comes from energies that are not: rounding follows their size.
    const double loss_size = std::max(std::abs(reference.loss.value_or(0)),
                                      reference.energies ? largest_energy(*reference.energies) : 0);
    double terms = 0;
    for (const NamedTensor& each : reference.term_sums) terms = std::hypot(terms, norm(each.values));
    const double norm_size = std::max(terms, reference.gradient_norm.value_or(0));

    keep_earlier(first_, energies(reference, cell, repeats));
    keep_earlier(first_, scalar(Phase::loss, "loss", reference.loss, cell.loss, losses, loss_size));
    const GradientJudgement judgement = judge_gradients(reference, cell, repeats, inputs_.band);
    keep_earlier(first_, gradients(judgement, a, b));
    keep_earlier(first_, scalar(Phase::gradient_norm, "gradient_norm", reference.gradient_norm,
                                cell.gradient_norm, norms, norm_size));
    at_.groups = judgement.groups;
    steps_.push_back(at_);
  }

  const ForcedInputs& inputs_;
  RunReader reference_, cell_;
  std::vector<RunReader> repeats_;
  ForcedStep at_;
  std::vector<ForcedStep> steps_;
  std::optional<Difference> first_;
  bool every_bit_equal_ = true;
  std::string ends_;
};

std::string within_sentence(const Mechanism& result, const FreeFindings& free) {
  const auto most =
      std::max_element(result.forced.begin(), result.forced.end(),
                       [](const ForcedStep& x, const ForcedStep& y) { return x.band_used < y.band_used; });
  std::string text = fmt::format("Within the {} at {}: {:.2g} % of it used, most by {} at step {}.",
                                 result.band_measured ? "measured floating-point band"
                                                      : "rounding bound (bound, not measured)",
                                 counted(static_cast<int64_t>(result.forced.size()), "forced step"),
                                 100 * result.band_used, most->worst_tensor, most->step);
  if (free.compared > 0) {
    text += fmt::format(" Sample ids, random streams and control values agree exactly over {}.",
                        counted(free.compared, "step"));
  }
  if (free.bits) {
    const Divergence& bits = free.bits->divergence;
    text += fmt::format(" Bits of the free runs first differ at step {}, {}, {}, by rounding.", bits.step,
                        bits.phase, bits.where);
  }
  return text;
}

}  // namespace

Mechanism judge_forced(const ForcedInputs& inputs) {
  if (inputs.forced_reference.empty()) {
    CompareOptions free;
    free.run_a = inputs.reference_free;
    free.run_b = inputs.cell_free;
    return compare_runs(free);
  }
  const bool has_free = !inputs.reference_free.empty() && !inputs.cell_free.empty();
  FreeFindings free;
  if (has_free) free = read_free_runs(inputs.reference_free, inputs.cell_free);
  ForcedJudge judge(inputs);
  judge.run(!has_free);

  Mechanism result;
  result.compared_steps = free.compared;
  result.band_measured = !inputs.forced_repeats.empty();
  result.forced = judge.steps();
  for (const ForcedStep& step : result.forced) result.band_used = std::max(result.band_used, step.band_used);

  std::optional<Difference> first = judge.first();
  keep_earlier(first, free.exact);
  // At one layout a free run may part at a step that was not forced: by more than rounding, that is a
  // divergence too.
  if (free.bits && free.bits->relative > rounding_bound(0)) keep_earlier(first, free.bits);
  const std::string ends = free.ends.empty() ? judge.ends() : free.ends;
  if (first) {
    result.verdict = VerdictKind::divergent;
    result.first_divergence = first->divergence;
    result.sentence = first->divergence.sentence;
    // result.cause is named here, from the forced steps' signatures and the ledgers around the first
    // divergence.
  } else if (result.forced.empty()) {
    result.verdict = VerdictKind::inconclusive;
    result.sentence = "No gradients could be compared: the forced runs hold no whole step.";
  } else if (judge.every_bit_equal() && free.compared_bits && free.compared > 0 && !free.bits) {
    result.verdict = VerdictKind::identical;
    result.sentence = fmt::format("Identical: every bit of {} and of the gradients at {} agrees.",
                                  counted(free.compared, "step"),
                                  counted(static_cast<int64_t>(result.forced.size()), "forced step"));
  } else {
    result.verdict = VerdictKind::within_envelope;
    result.sentence = within_sentence(result, free);
  }
  if (!ends.empty()) result.sentence += fmt::format(" Compared as far as the traces go: {}.", ends);
  return result;
}

}  // namespace lockstep
