#include "harness/verdict/questions/claims/claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "harness/base/special_values.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/evidence/align.h"
#include "harness/verdict/questions/claims/claim_audits.h"
#include "harness/verdict/results/interval_words.h"
#include "harness/verdict/results/metric_names.h"
#include "harness/verdict/stats/decision.h"
#include "harness/verdict/stats/stats.h"

namespace lockstep {
namespace {

using Kind = Condition::Kind;


double mean_of(const std::vector<double>& values, std::size_t first) {
  double sum = 0;
  for (std::size_t i = first; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - first);
}

/// One metric of one run, without the difference of two.
std::optional<double> plain_metric(const RunEvidence& run, const std::string& name) {
  if (name == "seconds") return run.seconds;
  if (name == "activation_bytes") return run.activation_bytes;
  if (name == "resident_growth") return run.resident_growth;
  if (const auto found = run.metrics.find(name); found != run.metrics.end()) return found->second;
  for (const std::string prefix : {"train_", "first_"}) {
    if (!name.starts_with(prefix)) continue;
    const auto curve = run.curves.find(name.substr(prefix.size()));
    if (curve == run.curves.end() || curve->second.values.empty()) return std::nullopt;
    const std::vector<double>& values = curve->second.values;
    if (prefix == "first_") return values.front();
    return mean_of(values, values.size() - std::min(values.size(), kTrainMetricSteps));
  }
  return std::nullopt;
}

std::optional<double> metric_of(const RunEvidence& run, const std::string& name) {
  constexpr std::string_view kMinus = " - ";
  const std::size_t minus = name.find(kMinus);
  if (minus == std::string::npos) return plain_metric(run, name);
  const auto a = plain_metric(run, name.substr(0, minus));
  const auto b = plain_metric(run, name.substr(minus + kMinus.size()));
  return a && b ? std::optional(*a - *b) : std::nullopt;
}

/// Digits that a difference of this size is worth.
std::string figure(double value) { return fmt::format("{:.4g}", value); }

std::string interval_text(const Interval& interval) {
  return fmt::format("{} interval {} to {}", level_words(interval.level), figure(interval.low),
                     figure(interval.high));
}

class ClaimJudge {
 public:
  explicit ClaimJudge(const ClaimEvidence& evidence) : evidence_(evidence) {}

  ConditionResult judge(const Condition& condition) const {
    ConditionResult result;
    result.value = kNaN;
    result.interval = {kNaN, kNaN, 1 - evidence_.primary.alpha};
    try {
      switch (condition.kind) {
        case Kind::outcome:
          outcome(condition, result);
          break;
        case Kind::value:
          value(condition, result);
          break;
        case Kind::ratio:
          ratio(condition, result);
          break;
        case Kind::gradient:
          gradient(condition, result);
          break;
        case Kind::mechanism:
          mechanism(condition, result);
          break;
        case Kind::rule:
          rule(condition, result);
          break;
        case Kind::certified:
          judge_certified(condition, judged(condition, result), result);
          break;
        case Kind::samples:
          judge_samples(condition, arm(condition.cell, result), arm_named(other_of(condition)), result);
          break;
        case Kind::draws:
          judge_draws(condition, arm(condition.cell, result), result);
          break;
        case Kind::first:
          judge_first(condition, arm_named(condition.cell), result);
          break;
        case Kind::suite:
          judge_suite(condition, evidence_.results_beside(condition.cell), result);
          break;
        case Kind::written:
          judge_written(condition, evidence_.results_beside(condition.cell), result);
          break;
        case Kind::timing:
          judge_timing(condition, evidence_.timing, result);
          break;
      }
    } catch (const std::runtime_error& why) {
      result.state = ClaimState::undecided;
      result.figures = why.what();
    }
    return result;
  }

 private:
  const ArmEvidence& arm_named(const std::string& name) const {
    const auto found = evidence_.arms.find(name);
    if (found == evidence_.arms.end()) throw Undecided(name + " was not run");
    return found->second;
  }

  const ArmEvidence& judged(const Condition& condition, ConditionResult& result) const {
    const ArmEvidence& own = arm(condition.cell, result);
    if (!own.cell) throw Undecided(condition.cell + " is a reference and is not judged");
    return own;
  }

  const ArmEvidence& arm(const std::string& name, ConditionResult& result) const {
    const ArmEvidence& arm = arm_named(name);
    result.cells.push_back(name);
    result.runs.push_back(arm.run);
    if (arm.cell && arm.cell->failure) throw Undecided(name + " failed");
    for (const auto& [seed, run] : arm.seeds) {
      if (run->failure) throw Undecided(fmt::format("seed {} of {} failed", seed, name));
    }
    return arm;
  }

  std::string other_of(const Condition& condition) const {
    if (!condition.against.empty()) return condition.against;
    const auto found = evidence_.arms.find(condition.cell);
    return found == evidence_.arms.end() ? "" : found->second.reference;
  }

  static double measured(const ArmEvidence& arm, int64_t seed, const std::string& name,
                         const std::string& metric) {
    const auto run = arm.seeds.find(seed);
    if (run == arm.seeds.end()) throw Undecided(fmt::format("{} has no run of seed {}", name, seed));
    const std::optional<double> value = metric_of(*run->second, metric);
    if (!value) throw Undecided(fmt::format("{} was not measured in {}", metric, name));
    if (!std::isfinite(*value)) throw Undecided(fmt::format("{} is {} in {}", metric, *value, name));
    return *value;
  }

  /// By seed: `combine` of the value of the condition's cell and that of the other.
  template <typename F>
  std::vector<double> paired(const Condition& condition, const std::string& metric, ConditionResult& result,
                       F combine) const {
    const std::string other = other_of(condition);
    const ArmEvidence& a = arm(condition.cell, result);
    const ArmEvidence& b = arm(other, result);
    std::vector<double> values;
    for (const auto& [seed, run] : a.seeds) {
      values.push_back(combine(measured(a, seed, condition.cell, metric), measured(b, seed, other, metric)));
    }
    if (values.empty()) throw Undecided(condition.cell + " has no seed");
    return values;
  }

  static Interval interval_of(const PairedSummary& summary, double level) {
    return student_interval(summary, level).value_or(Interval{-kInfinity, kInfinity, level});
  }

  void outcome(const Condition& condition, ConditionResult& result) const {
    const Primary& primary = evidence_.primary;
    const std::string metric = condition.metric.empty() ? primary.metric : condition.metric;
    const double margin = condition.margin > 0       ? condition.margin
                          : metric == primary.metric ? primary.margin
                                                     : 0;
    result.text = fmt::format("{} against {}: {} {}", condition.cell, other_of(condition),
                              metric_label(metric), fmt::join(condition.is, " or "));
    if (margin > 0) result.text += fmt::format(" (margin {})", figure(margin));
    const std::vector<double> values = paired(condition, metric, result, [](double a, double b) { return a - b; });
    const Decision decision = decide_fully(values, {metric, margin, primary.alpha, 0, primary.test});
    result.value = decision.middle;
    result.interval = decision.interval;
    result.figures = fmt::format("{}{} ({}){}, {} paired seeds", decision.middle < 0 ? "" : "+",
                                 figure(decision.middle), interval_text(result.interval),
                                 primary.test == OutcomeTest::sign ? " in the median" : "", values.size());
    const Interval& wide = result.interval;
    const bool equivalent = margin > 0 && decision.verdict == VerdictKind::equivalent;
    const bool above = wide.low > margin, below = wide.high < -margin;
    const std::optional<bool> up_is_better = higher_is_better(metric);
    bool all_false = true;
    for (const std::string& word : condition.is) {
      bool yes = false, no = false;
      if (word == "equivalent" || word == "different") {
        yes = word == "equivalent" ? equivalent : above || below;
        no = word == "equivalent" ? above || below : equivalent;
      } else {
        if ((word == "better" || word == "worse") && !up_is_better) {
          throw Undecided(metric + " has no better or worse direction");
        }
        const bool up =
            word == "higher" || (word == "better" && *up_is_better) || (word == "worse" && !*up_is_better);
        yes = up ? above : below;
        no = equivalent || (up ? wide.high < 0 : wide.low > 0);
      }
      if (yes) result.state = ClaimState::holds;
      all_false = all_false && no;
    }
    if (result.state != ClaimState::holds && all_false) result.state = ClaimState::does_not_hold;
  }

  /// Within the condition's bounds, outside, or across an edge.
  static ClaimState state_within(const Interval& interval, const Condition& condition) {
    if (interval.low >= condition.low && interval.high <= condition.high) return ClaimState::holds;
    const bool apart = interval.high < condition.low || interval.low > condition.high;
    return apart ? ClaimState::does_not_hold : ClaimState::undecided;
  }

  static std::string within_text(const Condition& condition) {
    return condition.low == condition.high
               ? fmt::format("{:g}", condition.low)
               : fmt::format("within {:g} to {:g}", condition.low, condition.high);
  }

  void value(const Condition& condition, ConditionResult& result) const {
    result.text =
        fmt::format("{} of {} {}", metric_label(condition.metric), condition.cell, within_text(condition));
    const ArmEvidence& own = arm(condition.cell, result);
    std::vector<double> values;
    for (const auto& [seed, run] : own.seeds) {
      values.push_back(measured(own, seed, condition.cell, condition.metric));
    }
    if (values.empty()) throw Undecided(condition.cell + " has no seed");
    const PairedSummary summary = summarize_differences(values);
    result.value = summary.mean;
    result.interval = interval_of(summary, 1 - evidence_.primary.alpha);
    result.figures =
        fmt::format("{} ({}), {} seeds", figure(summary.mean), interval_text(result.interval), summary.n);
    result.state = state_within(result.interval, condition);
  }

  void ratio(const Condition& condition, ConditionResult& result) const {
    const std::string other = other_of(condition);
    result.text = fmt::format("{} of {} over {}: {}", metric_label(condition.metric), condition.cell, other,
                              within_text(condition));
    const std::vector<double> values = paired(condition, condition.metric, result, [&](double a, double b) {
      if (!(a > 0 && b > 0)) throw Undecided(condition.metric + " is not positive: it has no ratio");
      return std::log(a / b);
    });
    const PairedSummary logs = summarize_differences(values);
    const Interval interval = interval_of(logs, 1 - evidence_.primary.alpha);
    result.value = std::exp(logs.mean);
    result.interval = {std::exp(interval.low), std::exp(interval.high), interval.level};
    result.figures =
        fmt::format("{} ({}), {} paired seeds", figure(result.value), interval_text(result.interval), logs.n);
    result.state = state_within(result.interval, condition);
  }

  static double quantity(const GradientSignature& group, const std::string& name) {
    return name == "cosine" ? group.cosine : name == "residual" ? group.residual : group.ratio;
  }

  void gradient(const Condition& condition, ConditionResult& result) const {
    result.text = fmt::format("gradient of {} in {}: {} {} at every forced step", condition.group,
                              condition.cell, condition.metric, within_text(condition));
    const ArmEvidence& own = arm(condition.cell, result);
    if (!own.cell || !own.cell->mechanism || own.cell->mechanism->forced.empty()) {
      throw Undecided(condition.cell + " has no forced comparison");
    }
    double low = 0, high = 0, sum = 0;
    int count = 0;
    for (const ForcedStep& step : own.cell->mechanism->forced) {
      for (const GradientSignature& group : step.groups) {
        if (group.group != condition.group) continue;
        const double found = quantity(group, condition.metric);
        if (!std::isfinite(found)) throw Undecided(fmt::format("{} is {}", condition.metric, found));
        low = count == 0 ? found : std::min(low, found);
        high = count == 0 ? found : std::max(high, found);
        sum += found;
        ++count;
      }
    }
    if (count == 0)
      throw Undecided(fmt::format("{} has no parameter group {}", condition.cell, condition.group));
    result.value = sum / count;
    result.interval = {low, high, 1};
    result.figures = low == high ? fmt::format("{:g}", low)
                                 : fmt::format("{:g} to {:g} over {}", low, high, counted(count, "step"));
    const bool within = low >= condition.low && high <= condition.high;
    result.state = within ? ClaimState::holds : ClaimState::does_not_hold;
  }

  void mechanism(const Condition& condition, ConditionResult& result) const {
    result.text = fmt::format("{} computes the same as {}: {}", condition.cell, other_of(condition),
                              fmt::join(condition.is, " or "));
    const ArmEvidence& own = arm(condition.cell, result);
    if (!own.cell || !own.cell->mechanism) throw Undecided(condition.cell + " was not compared");
    const Mechanism& found = *own.cell->mechanism;
    result.figures = name_of(found.verdict);
    if (found.first_divergence) {
      result.figures += fmt::format(" at step {}, {}, {}", found.first_divergence->step,
                                    found.first_divergence->phase, found.first_divergence->where);
    }
    const bool is = std::ranges::find(condition.is, name_of(found.verdict)) != condition.is.end();
    if (is)
      result.state = ClaimState::holds;
    else if (found.verdict != VerdictKind::inconclusive)
      result.state = ClaimState::does_not_hold;
  }

  static void rule(const Condition& condition, ConditionResult& result) {
    result.text =
        fmt::format("{} at {} takes {}", condition.metric, condition.cell, fmt::join(condition.is, " or "));
    const Layout layout{std::atoi(condition.cell.c_str()),
                        std::atoi(condition.cell.substr(condition.cell.find('x') + 1).c_str())};
    std::string word;
    for (const TrainerSpec* trainer : trainer_specs()) {
      if (word.empty() && trainer->rule_gives != nullptr) word = trainer->rule_gives(condition.metric, layout);
    }
    result.figures = word;
    const bool is = std::ranges::find(condition.is, word) != condition.is.end();
    result.state = is ? ClaimState::holds : ClaimState::does_not_hold;
  }

  const ClaimEvidence& evidence_;
};

std::optional<ClaimState> state_named(const std::string& name) {
  const auto names = claim_state_names();
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<ClaimState>(found - names.begin()));
}

ClaimState state_of(const ClaimResult& claim) {
  const auto any = [&claim](ClaimState state) {
    return std::ranges::find(claim.conditions, state, &ConditionResult::state) != claim.conditions.end();
  };
  // One false condition settles it, whatever the others would have said.
  return any(ClaimState::does_not_hold)  ? ClaimState::does_not_hold
         : any(ClaimState::undecided)    ? ClaimState::undecided
         : any(ClaimState::not_testable) ? ClaimState::not_testable
                                         : ClaimState::holds;
}

}  // namespace

std::vector<ClaimResult> judge_claims(const std::vector<Claim>& claims, const ClaimEvidence& evidence) {
  const ClaimJudge judge(evidence);
  std::vector<ClaimResult> results;
  for (const Claim& claim : claims) {
    ClaimResult result;
    result.id = claim.id;
    result.told = claim.told;
    result.expected = state_named(claim.expected);
    for (const Condition& condition : claim.conditions) result.conditions.push_back(judge.judge(condition));
    for (const std::string& name : cells_of(claim)) result.shows.push_back(name);
    result.reason = claim.waiting_for.empty() ? claim.not_testable : "waits for " + claim.waiting_for;
    result.state = !claim.waiting_for.empty()    ? ClaimState::waiting
                   : !claim.not_testable.empty() ? ClaimState::not_testable
                                                 : state_of(result);
    if (result.state == ClaimState::not_testable && result.reason.empty()) {
      result.reason =
          std::ranges::find(result.conditions, ClaimState::not_testable, &ConditionResult::state)->figures;
    }
    result.as_expected =
        result.expected ? *result.expected == result.state : result.state != ClaimState::undecided;
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace lockstep
