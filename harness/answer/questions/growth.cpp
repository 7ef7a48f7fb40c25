#include "harness/answer/questions/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/answer/stats/spending.h"
#include "harness/base/numbers.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

constexpr double kLevel = 0.95;

/// One cell of a group: its rule, and how it fared against the reference that all share.
struct RuleArm {
  const Cell* cell = nullptr;
  const CellResult* result = nullptr;
  std::string rule;
  double exponent = kNaN;
  bool plain = false;                    ///< a rule of the rate alone: none, sqrt or linear
  DifferenceBySeed difference;           ///< empty without an outcome
};

/// What the rule multiplies the rate by with that many ranks.
double rate_factor(LrRule rule, int ranks) {
  switch (rule) {
    case LrRule::none:
      return 1;
    case LrRule::linear:
      return ranks;
    case LrRule::sqrt:
    case LrRule::adam_sqrt:
      return std::sqrt(static_cast<double>(ranks));
  }
  return 1;
}

const char* word_of(LrRule rule) {
  switch (rule) {
    case LrRule::none:
      return "none";
    case LrRule::linear:
      return "linear";
    case LrRule::sqrt:
      return "sqrt";
    case LrRule::adam_sqrt:
      return "adam_sqrt";
  }
  return "none";
}

/// "sqrt", "sqrt beta2=0.99": the rule and what of Adam's settings is not the reference's.
std::string rule_words(const RunConfig& config, const RunConfig& reference) {
  std::string text = word_of(config.lr_rule);
  if (config.beta1 != reference.beta1) text += fmt::format(" beta1={:g}", config.beta1);
  if (config.beta2 != reference.beta2) text += fmt::format(" beta2={:g}", config.beta2);
  if (config.eps != reference.eps) text += fmt::format(" eps={:g}", config.eps);
  return text;
}

/// Without what tells the rules of one group apart.
RunConfig without_rule(RunConfig config) {
  const RunConfig standard;
  config.seed = standard.seed;
  config.lr_rule = standard.lr_rule;
  config.beta1 = standard.beta1;
  config.beta2 = standard.beta2;
  config.eps = standard.eps;
  return config;
}

/// Does the cell differ from its reference in layout, length and rule alone? Only then does a rule explain
/// the difference.
bool grows_alone(const Cell& cell) {
  RunConfig config = without_rule(cell.config);
  const RunConfig& reference = cell.reference;
  config.layout = reference.layout;
  config.steps = reference.steps;
  config.stop_after = reference.stop_after;
  config.eval_every = reference.eval_every;
  config.warmup_steps = reference.warmup_steps;
  config.backend = reference.backend;
  config.trace = reference.trace;
  config.snapshot_steps = reference.snapshot_steps;
  config.timeout_s = reference.timeout_s;
  return same_config(config, without_rule(reference));
}

/// Equal for the cells of one group: the cell's config without its rule, and the reference's config. In a
/// reference of one process the rule does not count: it scales with the number of ranks.
std::string group_of(const Cell& cell) {
  RunConfig reference = cell.reference;
  reference.seed = 0;
  if (reference.layout.world_size == 1) reference.lr_rule = LrRule::none;
  return canonical_json(without_rule(cell.config)) + canonical_json(reference);
}

RuleArm arm_of(const Cell& cell, const CellResult& result) {
  RuleArm arm{&cell, &result, rule_words(cell.config, cell.reference), kNaN, false, {}};
  const int from = cell.reference.layout.global_batch(), to = cell.config.layout.global_batch();
  const double factor = rate_factor(cell.config.lr_rule, cell.config.layout.world_size) /
                        rate_factor(cell.reference.lr_rule, cell.reference.layout.world_size);
  if (to != from) arm.exponent = std::log(factor) / std::log(static_cast<double>(to) / from);
  arm.plain = arm.rule == word_of(cell.config.lr_rule) && cell.config.lr_rule != LrRule::adam_sqrt;
  if (!result.failure && result.outcome) {
    const Outcome& outcome = *result.outcome;
    for (std::size_t i = 0; i < outcome.seeds.size(); ++i)
      arm.difference.emplace(outcome.seeds[i], outcome.differences[i]);
  }
  return arm;
}

/// +1 if more of the metric is better, -1 if less is, 0 if its name does not tell.
int sense_of(const RuleArm& arm) {
  const MetricDifference& d = arm.result->outcome->primary;
  return !d.has_direction ? 0 : d.higher_is_better ? 1 : -1;
}

std::vector<int64_t> common_seeds(const std::vector<const RuleArm*>& arms) {
  std::vector<int64_t> seeds;
  for (const auto& [seed, value] : arms.front()->difference) {
    if (std::ranges::all_of(arms, [&](const RuleArm* arm) { return arm->difference.contains(seed); }))
      seeds.push_back(seed);
  }
  return seeds;
}

/// The arm with the best mean over the seeds that all have (else over its own). All differ from the same runs
/// of the reference, so the best difference is the best mean.
const RuleArm* best_arm(const std::vector<const RuleArm*>& judged) {
  const std::vector<int64_t> seeds = common_seeds(judged);
  return *std::ranges::max_element(judged, {}, [&](const RuleArm* arm) {
    double sum = 0;
    for (int64_t seed : seeds) sum += arm->difference.at(seed);
    const double mean =
        seeds.empty() ? arm->result->outcome->primary.mean : sum / static_cast<double>(seeds.size());
    return sense_of(*arm) * mean;
  });
}

/// Rules that no other rule is shown to be better than, but for the best itself.
std::vector<std::string> rules_not_worse(const std::vector<const RuleArm*>& judged, const RuleArm& best,
                                         const Matrix& matrix) {
  std::vector<const DifferenceBySeed*> differences;
  for (const RuleArm* arm : judged) differences.push_back(&arm->difference);
  const std::vector<bool> worse = shown_worse(differences, {sense_of(best), matrix.primary, matrix.seeds_auto});
  std::vector<std::string> names;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    if (judged[i] != &best && !worse[i]) names.push_back(judged[i]->rule);
  }
  return names;
}

/// The plain rules in the order of their exponents, if there are the three that a parabola takes.
std::vector<const RuleArm*> plain_arms(const std::vector<const RuleArm*>& judged) {
  std::vector<const RuleArm*> plain;
  for (const RuleArm* arm : judged) {
    if (arm->plain && std::isfinite(arm->exponent)) plain.push_back(arm);
  }
  std::ranges::stable_sort(plain, {}, &RuleArm::exponent);
  if (plain.size() != 3 || plain[0]->exponent == plain[1]->exponent ||
      plain[1]->exponent == plain[2]->exponent)
    plain.clear();
  return plain;
}

/// Why there is no measured exponent, in words; empty if there is one.
std::string measure_exponent(const std::vector<const RuleArm*>& judged, Growth& growth) {
  growth.measured_exponent = kNaN;
  growth.measured_interval = {-kInfinity, kInfinity, kLevel};
  const std::vector<const RuleArm*> plain = plain_arms(judged);
  if (plain.empty()) return "not measured: that needs the rules none, sqrt and linear";
  const int sense = sense_of(*plain.front());
  const std::vector<int64_t> seeds = common_seeds(plain);
  if (sense == 0) return "not measured: the metric has no better direction";
  if (seeds.empty()) return "not measured: the rules share no seed";
  const double x[3] = {plain[0]->exponent, plain[1]->exponent, plain[2]->exponent};
  // One seed's three values belong together: they share samples and initial weights.
  std::vector<std::array<double, 3>> values;
  for (int64_t seed : seeds) {
    values.push_back({sense * plain[0]->difference.at(seed), sense * plain[1]->difference.at(seed),
                      sense * plain[2]->difference.at(seed)});
  }
  double sums[3] = {};
  for (const auto& value : values) {
    for (int i = 0; i < 3; ++i) sums[i] += value[i];
  }
  const double vertex = parabola_maximum(x, sums);
  const bool inside = vertex >= x[0] && vertex <= x[2];
  if (inside) growth.measured_exponent = vertex;
  const std::string word = inside ? ""
                           : std::isnan(vertex)
                               ? "none measured: the rule in between is worse than both ends"
                           : vertex > x[2] ? fmt::format("measured at or beyond {:.2g}", x[2])
                                           : fmt::format("measured at or below {:.2g}", x[0]);
  if (seeds.size() < 2) return word;
  growth.measured_interval = exponent_interval(x, values, kLevel);
  return word;
}

/// In what the cell's objective is another than the reference's because the batch grew; empty: in nothing.
std::string other_objective(const RunConfig& config, const RunConfig& reference) {
  const TrainerSpec* const trainer = find_trainer_spec(config.trainer);
  return trainer && trainer->other_objective ? trainer->other_objective(config, reference) : "";
}

/// The noise scale of the cell at the reference's own rate; else of the first that has one.
const NoiseScale* noise_of(const std::vector<RuleArm>& arms) {
  const NoiseScale* found = nullptr;
  for (const RuleArm& arm : arms) {
    if (!arm.result->noise_scale) continue;
    if (arm.rule == "none") return &*arm.result->noise_scale;
    if (!found) found = &*arm.result->noise_scale;
  }
  return found;
}

void predict_exponent(const std::vector<RuleArm>& arms, Growth& growth) {
  growth.predicted_exponent = growth.noise_batch = kNaN;
  growth.predicted_interval = {-kInfinity, kInfinity, kLevel};
  const RunConfig &config = arms.front().cell->config, &reference = arms.front().cell->reference;
  if (growth.from_batch == growth.to_batch) {
    growth.caveat = "The batch does not grow, so no learning-rate rule is needed.";
    return;
  }
  if (const std::string other = other_objective(config, reference); !other.empty()) {
    growth.caveat = fmt::format(
        "No prediction: {}, so the objective changes with the batch and the theory of the noise scale "
        "does not apply.",
        other);
    return;
  }
  const NoiseScale* noise = noise_of(arms);
  if (!noise) {
    growth.caveat =
        "No prediction: no cell has a noise scale (one rank, or traces without gradients).";
    return;
  }
  growth.noise_batch = noise->batch;
  const bool sgd = config.optimizer == OptimizerKind::sgd;
  const double least = sgd ? 1.0 : kAdamLeast, most = sgd ? 1.0 : kAdamMost;
  const auto exponent = [&](double batch, double a) {
    return predicted_exponent(batch, growth.from_batch, growth.to_batch, a);
  };
  growth.predicted_exponent = exponent(noise->batch, (least + most) / 2);
  growth.predicted_interval = {exponent(noise->interval.low, least), exponent(noise->interval.high, most),
                               noise->interval.level};
}

Growth judge_group(const std::vector<RuleArm>& arms, const Matrix& matrix) {
  const Primary& primary = matrix.primary;
  const Cell& first = *arms.front().cell;
  Growth growth;
  growth.reference = first.reference_name;
  growth.from = first.reference.layout;
  growth.to = first.config.layout;
  growth.from_batch = growth.from.global_batch();
  growth.to_batch = growth.to.global_batch();
  growth.samples_ratio = samples_ratio(first.config, first.reference);
  std::vector<const RuleArm*> judged;
  for (const RuleArm& arm : arms) {
    Growth::Rule rule{arm.cell->name, arm.rule, arm.exponent, arm.result->verdict, {}};
    if (!arm.difference.empty()) {
      rule.difference = arm.result->outcome->primary;
      rule.n = arm.result->outcome->n;
      judged.push_back(&arm);
    } else {
      rule.difference.metric = primary.metric;
      rule.difference.mean = rule.difference.sd = kNaN;
      rule.difference.reference_mean = rule.difference.cell_mean = kNaN;
      rule.difference.interval = {-kInfinity, kInfinity, 1 - primary.alpha};
    }
    growth.rules.push_back(std::move(rule));
  }
  predict_exponent(arms, growth);
  const std::string unmeasured = measure_exponent(judged, growth);
  if (!judged.empty() && sense_of(*judged.front()) != 0) {
    const RuleArm* best = best_arm(judged);
    growth.best = best->rule;
    growth.not_worse = rules_not_worse(judged, *best, matrix);
  }
  if (!judged.empty()) growth.n = static_cast<int>(common_seeds(judged).size());
  growth.sentence = growth_sentence(growth, unmeasured);
  return growth;
}

}  // namespace

double predicted_exponent(double noise_batch, int from_batch, int to_batch, double a) {
  const double growth = static_cast<double>(to_batch) / from_batch;
  if (std::isinf(noise_batch)) return a;
  return a * std::log((1 + noise_batch / from_batch) / (1 + noise_batch / to_batch)) / std::log(growth);
}

double parabola_maximum(const double (&x)[3], const double (&y)[3]) {
  const double left = (y[1] - y[0]) / (x[1] - x[0]), right = (y[2] - y[1]) / (x[2] - x[1]);
  const double curvature = (right - left) / (x[2] - x[0]);
  if (!(curvature < 0)) return kNaN;
  // The slope of the parabola is `left` at the middle of its first two points.
  return (x[0] + x[1]) / 2 - left / (2 * curvature);
}

Interval exponent_interval(const double (&x)[3], const std::vector<std::array<double, 3>>& values, double level) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) return {-kInfinity, kInfinity, level};
  // The slope of a seed's parabola at v is l + k (2 v - x0 - x1).
  std::vector<std::array<double, 2>> slopes;
  double l = 0, k = 0;
  for (const std::array<double, 3>& y : values) {
    const double left = (y[1] - y[0]) / (x[1] - x[0]), right = (y[2] - y[1]) / (x[2] - x[1]);
    slopes.push_back({left, (right - left) / (x[2] - x[0])});
    l += slopes.back()[0] / n;
    k += slopes.back()[1] / n;
  }
  double ll = 0, lk = 0, kk = 0;
  for (const auto& [left, bend] : slopes) {
    ll += (left - l) * (left - l);
    lk += (left - l) * (bend - k);
    kk += (bend - k) * (bend - k);
  }
  const double t = student_quantile(1 - (1 - level) / 2, static_cast<int>(values.size()));
  const double q = t * t / (n * (n - 1));
  // Squares of the slope's mean and of t standard errors, as polynomials in w: equal where t decides.
  const double a = k * k - q * kk, b = 2 * (l * k - q * lk), c = l * l - q * ll;
  const auto w_of = [&x](double v) { return 2 * v - x[0] - x[1]; };
  const auto is_open = [&](double v) { return (a * w_of(v) + b) * w_of(v) + c <= 0; };
  const auto slope = [&](double v) { return l + k * w_of(v); };
  std::vector<double> inside;
  if (is_open(x[0]) || slope(x[0]) <= 0) inside.push_back(x[0]);
  if (is_open(x[2]) || slope(x[2]) >= 0) inside.push_back(x[2]);
  const double root = std::sqrt(std::max(0.0, b * b - 4 * a * c));
  for (const double sign : {-1.0, 1.0}) {
    const double w = a != 0 ? (-b + sign * root) / (2 * a) : -c / b;
    const double v = (w + x[0] + x[1]) / 2;
    if (b * b >= 4 * a * c && v >= x[0] && v <= x[2]) inside.push_back(v);
  }
  if (inside.empty()) return {x[0], x[2], level};
  const auto [low, high] = std::ranges::minmax(inside);
  return {low, high, level};
}

std::vector<Growth> judge_growth(const Matrix& matrix, const std::vector<CellResult>& cells) {
  std::vector<std::vector<RuleArm>> groups;
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < matrix.cells.size(); ++i) {
    const Cell& cell = matrix.cells[i];
    const int from = cell.reference.layout.global_batch(), to = cell.config.layout.global_batch();
    if (cell.power_control || cell.noise || cell.anchor || from > to ||
        cell.config.layout == cell.reference.layout || !grows_alone(cell))
      continue;
    const auto [at, is_new] = index.emplace(group_of(cell), groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(arm_of(cell, cells[i]));
  }
  std::vector<Growth> all;
  for (const std::vector<RuleArm>& arms : groups) {
    const Cell& first = *arms.front().cell;
    const bool grows = first.reference.layout.global_batch() < first.config.layout.global_batch();
    const bool scaled =
        std::ranges::any_of(arms, [](const RuleArm& arm) { return arm.cell->config.lr_rule != LrRule::none; });
    const bool judged = std::ranges::any_of(arms, [](const RuleArm& arm) { return !arm.difference.empty(); });
    if ((grows || scaled) && judged) all.push_back(judge_group(arms, matrix));
  }
  return all;
}

}  // namespace lockstep
