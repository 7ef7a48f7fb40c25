#include "harness/answer/stats/outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "harness/answer/results/suite_results.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/plan/config/run_config.h"

namespace lockstep {
namespace {

void refuse_unpaired(const OutcomeInputs& inputs) {
  std::vector<std::string> alone;
  for (const auto& [seed, metrics] : inputs.cell_metrics) {
    if (!inputs.reference_metrics.contains(seed))
      alone.push_back(fmt::format("{} ({} alone)", seed, inputs.cell));
  }
  for (const auto& [seed, metrics] : inputs.reference_metrics) {
    if (!inputs.cell_metrics.contains(seed))
      alone.push_back(fmt::format("{} ({} alone)", seed, inputs.reference));
  }
  if (!alone.empty()) {
    throw OutcomeError(
        FailureKind::lost, fmt::format("seeds without a partner: {}; a paired comparison needs both runs of each seed",
                            fmt::join(alone, ", ")));
  }
  if (inputs.cell_metrics.empty()) throw OutcomeError(FailureKind::lost, inputs.cell + ": no seed has run");
}

/// "8x3 local, seed 6: train_loss is nan": the first value of the metric that is not finite; empty if all
/// are.
std::string nonfinite_value(const OutcomeInputs& inputs, const std::string& metric) {
  for (const auto& [arm, seeds] : {std::pair(inputs.cell, &inputs.cell_metrics),
                                   std::pair(inputs.reference, &inputs.reference_metrics)}) {
    for (const auto& [seed, metrics] : *seeds) {
      const auto found = metrics.find(metric);
      if (found == metrics.end() || std::isfinite(found->second)) continue;
      return fmt::format("{}, seed {}: {} is {}", arm, seed, metric, found->second);
    }
  }
  return "";
}

/// The metric of every seed of one arm; nothing if no seed has it.
std::optional<std::vector<double>> values_of(const std::string& arm, const MetricsBySeed& seeds,
                                             const std::string& metric) {
  std::vector<double> values;
  std::vector<std::string> missing;
  for (const auto& [seed, metrics] : seeds) {
    const auto found = metrics.find(metric);
    if (found == metrics.end()) {
      missing.push_back(std::to_string(seed));
      continue;
    }
    values.push_back(found->second);
  }
  if (values.empty()) return std::nullopt;
  if (!missing.empty()) {
    throw OutcomeError(FailureKind::unmeasured,
                       fmt::format("{}: seeds {} have no {}", arm, fmt::join(missing, ", "), metric));
  }
  return values;
}

struct PairedMetric {
  MetricDifference difference;
  PairedSummary summary;
  std::vector<double> differences;
};

/// Nothing if one of the arms did not measure it at all.
std::optional<PairedMetric> pair_metric(const OutcomeInputs& inputs, const std::string& metric) {
  const auto cell = values_of(inputs.cell, inputs.cell_metrics, metric);
  const auto reference = values_of(inputs.reference, inputs.reference_metrics, metric);
  if (!cell || !reference) return std::nullopt;
  PairedMetric paired;
  for (std::size_t i = 0; i < cell->size(); ++i) paired.differences.push_back((*cell)[i] - (*reference)[i]);
  paired.summary = summarize_differences(paired.differences);
  const double level = 1.0 - inputs.primary.alpha;
  MetricDifference& d = paired.difference;
  d.metric = metric;
  d.reference_mean = summarize_differences(*reference).mean;
  d.cell_mean = summarize_differences(*cell).mean;
  d.mean = paired.summary.mean;
  d.sd = paired.summary.sd;
  d.interval = student_interval(paired.summary, level).value_or(Interval{-kInfinity, kInfinity, level});
  d.has_direction = higher_is_better(metric).has_value();
  d.higher_is_better = higher_is_better(metric).value_or(true);
  return paired;
}

/// Bound of the sd, power, seeds needed and what could be seen: what a design can show, whatever difference was
/// measured.
void plan_design(const PairedSummary& summary, Outcome& outcome) {
  outcome.sd_upper = sd_upper_bound(summary);
  outcome.detectable = std::numeric_limits<double>::infinity();
  if (outcome.n < 2) {
    outcome.seeds_needed = outcome.seeds_needed_half = 2;
    return;
  }
  const PowerQuestion equal{outcome.n, outcome.sd_upper, outcome.margin, outcome.alpha, 0.0, outcome.test};
  outcome.detectable = detectable_difference(equal);
  PowerQuestion half = equal;
  half.true_difference = outcome.margin / 2.0;
  outcome.power = equivalence_power(equal);
  outcome.power_half = equivalence_power(half);
  if (outcome.verdict != VerdictKind::inconclusive) return;
  outcome.seeds_needed = seeds_needed(equal);
  outcome.seeds_needed_half = seeds_needed(half);
}

/// +1: the interval lies wholly on the better side of 0, -1: on the worse side, 0: neither, or no direction.
int sense_of(const MetricDifference& d) {
  if (!d.has_direction) return 0;
  const int sign = d.interval.low > 0 ? 1 : d.interval.high < 0 ? -1 : 0;
  return d.higher_is_better ? sign : -sign;
}

/// "0.094 lower (95 % interval 0.074 to 0.114, 10 paired seeds)".
std::string size_in_words(const Outcome& o) {
  const MetricDifference& d = o.primary;
  const bool lower = d.mean < 0;
  const double low = lower ? -d.interval.high : d.interval.low;
  const double high = lower ? -d.interval.low : d.interval.high;
  return fmt::format("{} {} ({} interval {} to {}, {}){}", format_difference(std::abs(d.mean), o.margin),
                     lower ? "lower" : "higher", level_words(d.interval.level), format_difference(low, o.margin),
                     format_difference(high, o.margin), pairs_in_words(o), middle_in_words(o));
}

/// ", although its training loss is lower": other metrics that speak against the primary one, or nothing.
std::string disagreement(const Outcome& o) {
  const int sense = sense_of(o.primary);
  if (sense == 0) return "";
  std::vector<std::string> against, all;
  for (const MetricDifference& other : o.others) {
    all.push_back(other.metric);
    if (sense_of(other) == -sense) against.push_back(other.metric);
  }
  all.push_back(o.metric);
  // Where a curve's end speaks, its area says nothing more.
  std::erase_if(against, [&](const std::string& metric) {
    return metric.starts_with(kAreaPrefix) &&
           std::ranges::find(all, metric.substr(kAreaPrefix.size())) != all.end();
  });
  if (against.empty()) return "";
  // The training loss first: it is the one that people watch.
  std::ranges::stable_partition(against,
                                [](const std::string& metric) { return metric.starts_with("train_"); });
  const bool plural = metric_list(against, all).find(" and ") != std::string::npos;
  const auto mean_of = [&o](const std::string& metric) {
    const auto other = std::ranges::find(o.others, metric, &MetricDifference::metric);
    return other == o.others.end() ? 0.0 : other->mean;
  };
  const bool lower = std::ranges::all_of(against, [&](const std::string& metric) { return mean_of(metric) < 0; });
  const bool higher = std::ranges::all_of(against, [&](const std::string& metric) { return mean_of(metric) > 0; });
  return fmt::format(", although {} {} {}", metric_list(against, all), plural ? "are" : "is",
                     lower       ? "lower"
                     : higher    ? "higher"
                     : sense < 0 ? "better"
                                 : "worse");
}

int decimals_of(double margin) {
  const double digits = margin > 0 ? 1.0 - std::floor(std::log10(margin)) : 6.0;
  return static_cast<int>(std::clamp(digits, 0.0, 12.0));
}

std::string count_of(int seeds) { return seeds >= kMostSeeds ? "10,000 or more" : std::to_string(seeds); }

std::string sentence_of(const OutcomeInputs& inputs, const Outcome& o) {
  const std::string pairs = pairs_in_words(o);
  const std::string mean = format_signed_difference(o.primary.mean, o.margin);
  if (o.n < 2) {
    return fmt::format(
        "{} is undecided: {} differs by {} with one seed, which gives no spread: at least 2 seeds are "
        "needed, more if they vary.",
        inputs.cell, o.metric, mean);
  }
  const std::string shape = is_skewed(o) ? "; " + skew_in_words(o) : "";
  switch (o.verdict) {
    case VerdictKind::equivalent:
      return fmt::format("{} learns the same: {} differs by {} ({}){}, inside the margin of {} ({}{}){}.", inputs.cell,
                         o.metric, mean, interval_in_words(o.equivalence, o.margin), middle_in_words(o), o.margin, pairs,
                         beyond_in_words(o), shape);
    case VerdictKind::divergent: {
      const int sense = sense_of(o.primary);
      return fmt::format("{} learns {}: {}{}.", inputs.cell,
                         sense < 0   ? "worse"
                         : sense > 0 ? "better"
                                     : "differently",
                         difference_in_words(o, o.metric), shape);
    }
    default:
      return fmt::format("{} is undecided: {} differs by {} ({}){} against a margin of {} ({}){}; {}{}.", inputs.cell,
                         o.metric, mean, interval_in_words(o.primary.interval, o.margin), middle_in_words(o), o.margin,
                         pairs, disagreement(o), seeds_in_words(o), shape);
  }
}

}  // namespace

std::string format_difference(double value, double margin) {
  std::string text = fmt::format("{:.{}f}", value, decimals_of(margin));
  // "-0.000" says no more than "0.000".
  if (text.starts_with('-') && text.find_first_of("123456789") == std::string::npos && std::isfinite(value)) {
    text.erase(0, 1);
  }
  return text;
}

std::string format_at_least(double value, double margin) {
  const double unit = std::pow(10.0, -decimals_of(margin));
  return format_difference(std::isfinite(value) ? std::ceil(value / unit) * unit : value, margin);
}

std::string format_signed_difference(double value, double margin) {
  const std::string text = format_difference(value, margin);
  return text.starts_with('-') ? text : "+" + text;
}

std::string interval_in_words(const Interval& interval, double margin) {
  return fmt::format("{} interval {} to {}", level_words(interval.level),
                     format_signed_difference(interval.low, margin),
                     format_signed_difference(interval.high, margin));
}

std::string figures_in_words(const Outcome& o) {
  const std::string mean = format_signed_difference(o.primary.mean, o.margin);
  if (o.n < 2) return mean + ", one seed, which has no interval";
  return fmt::format("{}, {}, {}", mean, interval_in_words(o.primary.interval, o.margin), pairs_in_words(o));
}

double samples_ratio(const RunConfig& cell, const RunConfig& reference) {
  const auto seen = [](const RunConfig& config) {
    return static_cast<double>(steps_to_run(config)) * meant_layout(config).global_batch();
  };
  return seen(reference) > 0 ? seen(cell) / seen(reference) : 1;
}

std::string pairs_in_words(const Outcome& o) {
  const std::string pairs = counted(o.n, "paired seed");
  return o.samples_ratio == 1 ? pairs : fmt::format("{}, {:.3g} times the samples", pairs, o.samples_ratio);
}

std::string middle_in_words(const Outcome& o) { return o.test == OutcomeTest::sign ? " in the median" : ""; }

std::string beyond_in_words(const Outcome& o) {
  if (o.test != OutcomeTest::sign) return "";
  const auto beyond = std::ranges::count_if(o.differences, [&](double d) { return std::abs(d) >= o.margin; });
  if (beyond == 0) return "";
  return fmt::format(", of which {} {} beyond it", beyond, beyond == 1 ? "lies" : "lie");
}

bool leaves_out(const Interval& interval, double size) {
  const auto holds = [&](double value) { return interval.low <= value && value <= interval.high; };
  return !holds(size) && !holds(-size);
}

std::string seeds_in_words(const Outcome& o) {
  const Interval& interval = o.primary.interval;
  const std::string half = count_of(o.seeds_needed_half);
  // Tests at the full level after each addition find too often what is not there.
  const std::string anew =
      "; these numbers hold for a new run of so many seeds; to extend this one use seeds: auto";
  const std::string near = "the true difference may be larger than the margin";
  if (leaves_out(interval, 0)) {
    if (leaves_out(interval, o.margin / 2) || o.seeds_needed_half <= o.n)
      return fmt::format("the interval excludes 0, and {}: no number of seeds is sure to decide", near);
    return fmt::format("the interval excludes 0: {} seeds would decide this with probability {:g} if the true "
                       "difference is half the margin{}",
                       half, kWantedPower, anew);
  }
  if (o.seeds_needed > o.n) {
    return fmt::format(
        "{} seeds would decide this with probability {:g} if the true difference is 0, {} if it is half the "
        "margin{}",
        count_of(o.seeds_needed), kWantedPower, half, anew);
  }
  if (o.seeds_needed_half > o.n) {
    return fmt::format(
        "{} seeds would decide this with probability {:g} if the true difference were 0, so {}: {} would decide this if it is "
        "half the margin{}",
        count_of(o.seeds_needed), kWantedPower, near, half, anew);
  }
  return fmt::format(
      "{} seeds would decide this with probability {:g} if the true difference were half the margin, so {}: no number "
      "of seeds is sure to decide",
      half, kWantedPower, near);
}

std::string family_in_words(const Outcome& outcome) {
  if (outcome.n < 2 || outcome.p_holm <= outcome.alpha) return "";
  return fmt::format("; with so many cells it may be chance (Holm-adjusted p {:.2g})", outcome.p_holm);
}

void adjust_for_family(std::vector<CellResult>& cells) {
  std::vector<Outcome*> family;
  std::vector<double> p;
  for (CellResult& cell : cells) {
    if (!cell.outcome) continue;
    cell.outcome->p_holm = cell.outcome->p_different;
    if (cell.power_control || cell.noise || cell.anchor || cell.failure || cell.outcome->n < 2) continue;
    family.push_back(&*cell.outcome);
    p.push_back(cell.outcome->p_different);
  }
  const std::vector<double> adjusted = holm_adjusted(p);
  for (std::size_t i = 0; i < family.size(); ++i) {
    Outcome& outcome = *family[i];
    outcome.p_holm = adjusted[i];
    if (outcome.verdict != VerdictKind::divergent || !outcome.sentence.ends_with('.')) continue;
    outcome.sentence.insert(outcome.sentence.size() - 1, family_in_words(outcome));
  }
}

std::string difference_in_words(const Outcome& outcome, const std::string& metric_in_words) {
  return fmt::format("{} {}{}", metric_in_words, size_in_words(outcome), disagreement(outcome));
}

Outcome judge_outcome(const OutcomeInputs& inputs) {
  refuse_unpaired(inputs);
  const Primary& primary = inputs.primary;
  const std::string bad = nonfinite_value(inputs, primary.metric);
  if (!bad.empty()) throw OutcomeError(FailureKind::nonfinite, bad);
  const auto paired = pair_metric(inputs, primary.metric);
  if (!paired) {
    throw OutcomeError(FailureKind::unmeasured, fmt::format("{} against {}: no run has the primary metric {}",
                                                 inputs.cell, inputs.reference, primary.metric));
  }
  Outcome outcome;
  outcome.metric = primary.metric;
  outcome.samples_ratio = inputs.samples_ratio;
  outcome.margin = primary.margin;
  outcome.alpha = primary.alpha;
  outcome.test = primary.test;
  outcome.n = paired->summary.n;
  outcome.primary = paired->difference;
  outcome.differences = paired->differences;
  for (const auto& [seed, metrics] : inputs.cell_metrics) outcome.seeds.push_back(seed);
  const Decision decision = decide_fully(paired->differences, primary);
  outcome.verdict = decision.verdict;
  outcome.primary.mean = decision.middle;
  outcome.primary.interval = decision.interval;
  outcome.equivalence = decision.equivalence;
  plan_design(paired->summary, outcome);
  outcome.p_equivalent = decision.p.equivalent;
  outcome.p_different = outcome.p_holm = decision.p.different;
  outcome.estimates = estimate_middle(paired->differences, primary.alpha);
  outcome.skewness = skewness_of(paired->differences);
  outcome.p_skewed = skewness_p(paired->differences);

  std::set<std::string> names;
  for (const auto& [seed, metrics] : inputs.cell_metrics) {
    for (const auto& [name, value] : metrics) names.insert(name);
  }
  for (const auto& [seed, metrics] : inputs.reference_metrics) {
    for (const auto& [name, value] : metrics) names.insert(name);
  }
  names.erase(primary.metric);
  for (const std::string& name : names) {
    const std::string unusable = nonfinite_value(inputs, name);
    if (!unusable.empty()) {
      outcome.notes.push_back(unusable);
      continue;
    }
    if (const auto other = pair_metric(inputs, name)) outcome.others.push_back(other->difference);
  }
  outcome.sentence = sentence_of(inputs, outcome);
  return outcome;
}

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

namespace {

/// "35", "1.2", "infinite": rows need no decimals once they are many.
std::string rows_words(double rows) {
  if (std::isinf(rows)) return "infinite";
  return fmt::format("{:.{}f}", rows, rows < 10 ? 1 : 0);
}

/// `what`: "95 % interval" of an estimate, "range" of what has no level.
std::string exponent_words(double value, const Interval& interval, const std::string& what) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return fmt::format("{:.2f}", value);
  return fmt::format("{:.2f} ({} {:.2f} to {:.2f})", value, what, interval.low, interval.high);
}

bool is_judged(const Growth::Rule& rule) { return !std::isnan(rule.difference.mean); }

std::string without_stop(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

/// "linear changes 24-way accuracy by -0.094 (95 % interval -0.114 to -0.074, 10 paired seeds)", of the rules that
/// change the rate.
std::string at_equal_batch(const Growth& growth) {
  std::vector<std::string> changes;
  for (const Growth::Rule& rule : growth.rules) {
    if (rule.rule == "none" || !is_judged(rule)) continue;
    const MetricDifference& d = rule.difference;
    const double unit = 0.01;
    std::string change = fmt::format("{} changes {} by {}", rule.rule, metric_label(d.metric),
                                     format_signed_difference(d.mean, unit));
    const std::string pairs = rule.n > 0 ? ", " + counted(rule.n, "paired seed") : "";
    if (std::isfinite(d.interval.low)) change += fmt::format(" ({}{})", interval_in_words(d.interval, unit), pairs);
    changes.push_back(std::move(change));
  }
  return fmt::format(
      "At an equal global batch of {} rows ({} and {}) no learning-rate rule is needed{}.",
      growth.to_batch, layout_name(growth.from), layout_name(growth.to),
      changes.empty() ? "" : ": " + join_words(changes));
}

/// One of the rules is called "none", which must not be read as a word of the sentence.
std::string rules_in_words(const std::vector<std::string>& rules) {
  return rules.size() == 1 ? fmt::format("the rule {} is", rules.front())
                           : fmt::format("the rules {} are", join_words(rules));
}

std::string which_fits(const Growth& growth) {
  if (growth.best.empty()) return "no learning-rate rule could be judged";
  std::vector<std::string> worse;
  std::string metric;
  for (const Growth::Rule& rule : growth.rules) {
    if (rule.rule == growth.best) metric = metric_label(rule.difference.metric);
    if (is_judged(rule) && rule.rule != growth.best &&
        std::ranges::find(growth.not_worse, rule.rule) == growth.not_worse.end())
      worse.push_back(rule.rule);
  }
  if (growth.not_worse.empty() && worse.empty()) return growth.best + " is the only rule that was judged";
  std::string text = fmt::format("{} has the best mean {}", growth.best, metric);
  if (growth.n > 0) text += " over " + pairs_in_words(growth.n, growth.n);
  if (!worse.empty())
    text += fmt::format("; {} shown to be worse", rules_in_words(worse));
  if (!growth.not_worse.empty())
    text += fmt::format("; {} not shown to be worse", rules_in_words(growth.not_worse));
  return text;
}

}  // namespace

std::string samples_in_words(double ratio) {
  return ratio == 1 ? "at equally many samples" : fmt::format("at {:.3g} times the samples", ratio);
}

std::string growth_sentence(const Growth& growth, const std::string& unmeasured) {
  if (growth.from_batch == growth.to_batch) return at_equal_batch(growth);
  std::string text = fmt::format(
      "From {} to {} ({} to {} rows, {}) {}. Exponent of the rate in the batch: ", layout_name(growth.from),
      layout_name(growth.to), growth.from_batch, growth.to_batch, samples_in_words(growth.samples_ratio), which_fits(growth));
  if (!std::isnan(growth.predicted_exponent)) {
    text += fmt::format("predicted {} at a noise scale of {} rows",
                        // Over the noise scale's interval, and for Adam over a from 0.5 to 1 too.
                        exponent_words(growth.predicted_exponent, growth.predicted_interval, "range"),
                        rows_words(growth.noise_batch));
  } else {
    text += "none predicted";
  }
  text += ", ";
  if (!std::isnan(growth.measured_exponent)) {
    text += "measured " + exponent_words(growth.measured_exponent, growth.measured_interval,
                                         level_words(growth.measured_interval.level) + " interval");
  } else {
    text += unmeasured;
  }
  return text + "." + (growth.caveat.empty() ? "" : " " + without_stop(growth.caveat) + ".");
}

std::string noise_scale_words(const NoiseScale& scale) {
  return fmt::format("{} rows ({} interval {} to {}), over {} steps", rows_words(scale.batch),
                     level_words(scale.interval.level), rows_words(scale.interval.low),
                     rows_words(scale.interval.high), scale.steps);
}

}  // namespace lockstep
