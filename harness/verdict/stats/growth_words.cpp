#include "harness/verdict/stats/growth_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/base/text.h"
#include "harness/verdict/config/layout_name.h"
#include "harness/verdict/results/interval.h"
#include "harness/verdict/results/metric_names.h"
#include "harness/verdict/stats/outcome.h"
#include "harness/verdict/stats/sequential.h"

namespace lockstep {
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
