#include "harness/judge/outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "harness/judge/metric_names.h"
#include "harness/judge/stats.h"

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
        "lost", fmt::format("seeds without a partner: {}; a paired comparison needs both runs of each seed",
                            fmt::join(alone, ", ")));
  }
  if (inputs.cell_metrics.empty()) throw OutcomeError("lost", inputs.cell + ": no seed has run");
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
    if (!std::isfinite(found->second)) {
      throw OutcomeError("nonfinite", fmt::format("{}, seed {}: {} is {}", arm, seed, metric, found->second));
    }
    values.push_back(found->second);
  }
  if (values.empty()) return std::nullopt;
  if (!missing.empty()) {
    throw OutcomeError("unmeasured",
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
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
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

int seeds_that_decide(const Outcome& outcome) {
  if (outcome.verdict != VerdictKind::inconclusive) return 0;
  if (outcome.n < 2) return 2;
  PowerQuestion question{2, outcome.primary.sd, outcome.margin, outcome.alpha, 0.0};
  const int if_equal = seeds_needed(question);
  if (if_equal > outcome.n) return if_equal;
  // That many seeds have run and did not decide: the difference is hardly 0, so ask for the one that was
  // measured.
  question.true_difference = outcome.primary.mean;
  return std::max(outcome.n + 1, seeds_needed(question));
}

/// +1: the interval lies wholly on the better side of 0, -1: on the worse side, 0: neither, or no direction.
int sense_of(const MetricDifference& d) {
  if (!d.has_direction) return 0;
  const int sign = d.interval.low > 0 ? 1 : d.interval.high < 0 ? -1 : 0;
  return d.higher_is_better ? sign : -sign;
}

/// "0.094 lower (0.074 to 0.114)".
std::string size_in_words(const Outcome& o) {
  const MetricDifference& d = o.primary;
  const bool lower = d.mean < 0;
  const double low = lower ? -d.interval.high : d.interval.low;
  const double high = lower ? -d.interval.low : d.interval.high;
  return fmt::format("{} {} ({} to {})", format_difference(std::abs(d.mean), o.margin),
                     lower ? "lower" : "higher", format_difference(low, o.margin),
                     format_difference(high, o.margin));
}

/// ", although its training loss reads better": other metrics that speak against the primary one, or nothing.
std::string disagreement(const Outcome& o) {
  const int sense = sense_of(o.primary);
  if (sense == 0) return "";
  std::vector<std::string> against, all;
  for (const MetricDifference& other : o.others) {
    all.push_back(other.metric);
    if (sense_of(other) == -sense) against.push_back(other.metric);
  }
  all.push_back(o.metric);
  if (against.empty()) return "";
  // The training loss first: it is the one that people watch.
  std::ranges::stable_partition(against,
                                [](const std::string& metric) { return metric.starts_with("train_"); });
  const bool plural = metric_list(against, all).find(" and ") != std::string::npos;
  return fmt::format(", although {} {} {}", metric_list(against, all), plural ? "read" : "reads",
                     sense < 0 ? "better" : "worse");
}

std::string seeds_in_words(int seeds) {
  return seeds >= kMostSeeds ? "10,000 seeds or more" : fmt::format("about {} seeds", seeds);
}

std::string sentence_of(const OutcomeInputs& inputs, const Outcome& o) {
  const std::string pairs = fmt::format("{} paired seed{}", o.n, o.n == 1 ? "" : "s");
  const std::string mean = format_signed_difference(o.primary.mean, o.margin);
  if (o.n < 2) {
    return fmt::format(
        "{} is undecided: {} differs by {} with one seed, which shows no spread; at least 2 seeds are "
        "needed, more if they scatter.",
        inputs.cell, o.metric, mean);
  }
  switch (o.verdict) {
    case VerdictKind::equivalent:
      return fmt::format("{} learns the same: {} differs by {} ({} to {}), inside the margin of {} ({}).",
                         inputs.cell, o.metric, mean, format_signed_difference(o.equivalence.low, o.margin),
                         format_signed_difference(o.equivalence.high, o.margin), o.margin, pairs);
    case VerdictKind::divergent: {
      const int sense = sense_of(o.primary);
      return fmt::format("{} learns {}: {}.", inputs.cell,
                         sense < 0   ? "worse"
                         : sense > 0 ? "better"
                                     : "differently",
                         difference_in_words(o, o.metric));
    }
    default:
      return fmt::format(
          "{} is undecided: {} differs by {} ({} to {}) against a margin of {} ({}){}; {} would decide.",
          inputs.cell, o.metric, mean, format_signed_difference(o.primary.interval.low, o.margin),
          format_signed_difference(o.primary.interval.high, o.margin), o.margin, pairs, disagreement(o),
          seeds_in_words(o.seeds_needed));
  }
}

}  // namespace

std::string format_difference(double value, double margin) {
  const double digits = margin > 0 ? 1.0 - std::floor(std::log10(margin)) : 6.0;
  const int decimals = static_cast<int>(std::clamp(digits, 0.0, 12.0));
  std::string text = fmt::format("{:.{}f}", value, decimals);
  // "-0.000" says no more than "0.000".
  if (text.starts_with('-') && text.find_first_of("123456789") == std::string::npos && std::isfinite(value)) {
    text.erase(0, 1);
  }
  return text;
}

std::string format_signed_difference(double value, double margin) {
  const std::string text = format_difference(value, margin);
  return text.starts_with('-') ? text : "+" + text;
}

std::string difference_in_words(const Outcome& outcome, const std::string& metric_in_words) {
  return fmt::format("{} {}{}", metric_in_words, size_in_words(outcome), disagreement(outcome));
}

Outcome judge_outcome(const OutcomeInputs& inputs) {
  refuse_unpaired(inputs);
  const Primary& primary = inputs.primary;
  const auto paired = pair_metric(inputs, primary.metric);
  if (!paired) {
    throw OutcomeError("unmeasured", fmt::format("{} against {}: no run has the primary metric {}",
                                                 inputs.cell, inputs.reference, primary.metric));
  }
  Outcome outcome;
  outcome.metric = primary.metric;
  outcome.margin = primary.margin;
  outcome.alpha = primary.alpha;
  outcome.n = paired->summary.n;
  outcome.primary = paired->difference;
  outcome.differences = paired->differences;
  for (const auto& [seed, metrics] : inputs.cell_metrics) outcome.seeds.push_back(seed);
  outcome.verdict = decide_outcome(paired->summary, primary);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double level = 1.0 - 2.0 * primary.alpha;
  outcome.equivalence =
      student_interval(paired->summary, level).value_or(Interval{-kInfinity, kInfinity, level});
  outcome.power = equivalence_power({outcome.n, outcome.primary.sd, primary.margin, primary.alpha, 0.0});
  outcome.seeds_needed = seeds_that_decide(outcome);

  std::set<std::string> names;
  for (const auto& [seed, metrics] : inputs.cell_metrics) {
    for (const auto& [name, value] : metrics) names.insert(name);
  }
  for (const auto& [seed, metrics] : inputs.reference_metrics) {
    for (const auto& [name, value] : metrics) names.insert(name);
  }
  names.erase(primary.metric);
  for (const std::string& name : names) {
    if (const auto other = pair_metric(inputs, name)) outcome.others.push_back(other->difference);
  }
  outcome.sentence = sentence_of(inputs, outcome);
  return outcome;
}

}  // namespace lockstep
