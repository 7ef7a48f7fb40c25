#include "harness/verdict/questions/calibration/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "harness/base/parallel.h"
#include "harness/verdict/questions/calibration/draws.h"
#include "harness/verdict/questions/calibration/shapes.h"
#include "harness/verdict/stats/power.h"
#include "harness/verdict/stats/rate.h"
#include "harness/verdict/stats/skewness.h"
#include "harness/verdict/stats/stats.h"

namespace lockstep {
namespace {

/// Designs that are tried: pairs, and standard deviations in margins.
constexpr std::array kPairs{5, 10, 20};
constexpr std::array kErrorSds{0.3, 1.0};
constexpr std::array kPowerSds{0.3, 0.6, 1.0};
constexpr std::array kSequentialSds{0.5, 2.0};
constexpr std::array kInside{0.0, 0.5};  ///< true differences at which power is taken, in margins
/// The chance that a rule which keeps every promise exactly is refused all the same.
constexpr double kUnlucky = 0.01;

/// What came of one design's draws.
struct Tally {
  int64_t equivalent = 0, divergent = 0, covered = 0;
  void count(VerdictKind verdict, bool covers) {
    equivalent += verdict == VerdictKind::equivalent;
    divergent += verdict == VerdictKind::divergent;
    covered += covers;
  }
};

bool covers(const PairedSummary& summary, double alpha, double truth) {
  const auto interval = student_interval(summary, 1 - alpha);
  return interval && interval->low <= truth && truth <= interval->high;
}

/// A true difference and a standard deviation, in margins.
struct Truth {
  double difference = 0, sd = 0;
};

class Calibrator {
 public:
  Calibrator(const CalibrationInputs& inputs, const DecisionRule& rule)
      : in_(inputs), rule_(rule), by_t_(inputs.primary), shapes_(shape_trials({kPairs.begin(), kPairs.end()})) {
    by_t_.test = OutcomeTest::t;
  }

  Calibration run() {
    std::vector<std::function<void()>> work;
    fixed_.resize(kPairs.size());
    for (std::size_t i = 0; i < kPairs.size(); ++i) work.emplace_back([this, i] { try_fixed(i); });
    work.emplace_back([this] { try_sequentially(); });
    for (ShapeTrial& trial : shapes_) work.emplace_back([this, &trial] { run_trial(in_, rule_, trial); });
    if (has_pool()) work.emplace_back([this] { try_pool(); });
    parallel_for(work.size(), in_.jobs, [&](std::size_t i) { work[i](); });
    report();
    return std::move(out_);
  }

 private:
  bool has_pool() const { return in_.pool.size() >= 2 * static_cast<std::size_t>(in_.config.pairs); }
  double margin() const { return in_.primary.margin; }

  static std::vector<Truth> fixed_truths() {
    std::vector<Truth> truths;
    for (const double sd : kErrorSds) {
      for (const double side : {1.0, -1.0}) truths.push_back({side, sd});
    }
    for (const double sd : kPowerSds) {
      for (const double inside : kInside) truths.push_back({inside, sd});
    }
    return truths;
  }
  static std::vector<Truth> sequential_truths() {
    std::vector<Truth> truths;
    for (const double sd : kSequentialSds) {
      for (const double difference : {1.0, -1.0, 0.0}) truths.push_back({difference, sd});
    }
    return truths;
  }

  /// One sample of standard normal values serves every truth: each rate is taken over draws of its own.
  void try_fixed(std::size_t which) {
    const std::vector<Truth> truths = fixed_truths();
    std::vector<Tally>& tallies = fixed_[which];
    tallies.resize(truths.size());
    const int n = kPairs[which];
    CalibrationDraws draws(in_.config.draw_seed, DrawPurpose::fixed_design, static_cast<uint64_t>(n));
    std::vector<double> standard(static_cast<std::size_t>(n)), sample(standard.size());
    for (int64_t i = 0; i < in_.config.draws; ++i) {
      for (double& value : standard) value = draws.normal();
      for (std::size_t t = 0; t < truths.size(); ++t) {
        const double scale = truths[t].sd * margin(), truth = truths[t].difference * margin();
        for (std::size_t j = 0; j < sample.size(); ++j) sample[j] = truth + scale * standard[j];
        tallies[t].count(rule_(sample, by_t_), covers(summarize_differences(sample), by_t_.alpha, truth));
      }
    }
  }

  void try_sequentially() {
    const std::vector<Truth> truths = sequential_truths();
    sequential_.resize(truths.size());
    const std::vector<SpendingAnalysis> looks = spending_analyses(in_.looks, in_.primary.alpha);
    CalibrationDraws draws(in_.config.draw_seed, DrawPurpose::sequential_design, 0);
    std::vector<double> standard(static_cast<std::size_t>(in_.looks.most)), sample(standard.size());
    for (int64_t i = 0; i < in_.config.draws; ++i) {
      for (double& value : standard) value = draws.normal();
      for (std::size_t t = 0; t < truths.size(); ++t) {
        const double truth = truths[t].difference * margin();
        for (std::size_t j = 0; j < sample.size(); ++j) {
          sample[j] = truth + truths[t].sd * margin() * standard[j];
        }
        const std::vector<Look> taken = take_interim_analyses(sample, looks, by_t_, rule_);
        const auto last =
            summarize_differences(std::span(sample).first(static_cast<std::size_t>(taken.back().n)));
        sequential_[t].count(taken.back().verdict, covers(last, taken.back().alpha_here, truth));
      }
    }
  }

  /// Two arms without a run in common, drawn from one pool, differ by 0 in the mean over all draws, and their
  /// pairs' differences are uncorrelated: the margin added, the true difference is the margin.
  void try_pool() {
    const auto pairs = static_cast<std::size_t>(in_.config.pairs);
    CalibrationDraws draws(in_.config.draw_seed, DrawPurpose::pool, 0);
    std::vector<std::size_t> order(in_.pool.size());
    std::vector<double> differences(pairs), shifted(pairs);
    for (int64_t i = 0; i < in_.config.comparisons; ++i) {
      std::iota(order.begin(), order.end(), std::size_t{0});
      for (std::size_t j = 0; j < 2 * pairs; ++j)
        std::swap(order[j], order[j + draws.below(order.size() - j)]);
      for (std::size_t j = 0; j < pairs; ++j) {
        differences[j] = in_.pool[order[2 * j]] - in_.pool[order[2 * j + 1]];
      }
      for (std::size_t side = 0; side < pool_.size(); ++side) {
        const double truth = side == 0 ? margin() : -margin();
        for (std::size_t j = 0; j < pairs; ++j) shifted[j] = differences[j] + truth;
        const bool covered = covers(summarize_differences(shifted), in_.primary.alpha, truth);
        pool_[side].count(rule_(shifted, in_.primary), covered);
      }
    }
  }

  DetectionRate rate(std::string what, int64_t hits, int64_t of) const {
    return detection_rate(std::move(what), hits, of, level_);
  }
  void at_most(DetectionRate rate) {
    rate.asked = in_.primary.alpha;
    rate.at_most = true;
    rate.enough = rate.interval.low <= rate.asked;
    out_.rates.push_back(std::move(rate));
  }
  /// What is called equivalent where the true difference is the margin.
  void at_margin(DetectionRate rate) {
    if (rate.of > 0) {
      const double share = static_cast<double>(rate.hits) / static_cast<double>(rate.of);
      out_.worst_equivalent = std::max(out_.worst_equivalent, share);
    }
    out_.equivalent_allowed = in_.primary.alpha;
    at_most(std::move(rate));
  }
  void at_least(DetectionRate rate) {
    rate.asked = 1 - in_.primary.alpha;
    rate.enough = rate.interval.high >= rate.asked;
    out_.rates.push_back(std::move(rate));
  }

  void report() {
    // All intervals that are judged share the chance of a false refusal.
    const std::size_t fixed = kPairs.size() * (4 * kErrorSds.size() + 1 + kPowerSds.size() * kInside.size());
    std::size_t of_shapes = 0;
    for (const ShapeTrial& trial : shapes_) of_shapes += rates_judged_of(trial);
    const std::size_t judged = fixed + 6 * kSequentialSds.size() + (has_pool() ? 3 : 0) + of_shapes;
    level_ = 1 - kUnlucky / static_cast<double>(judged);
    report_fixed();
    report_sequential();
    if (has_pool()) report_pool();
    for (const ShapeTrial& trial : shapes_) report_shape(trial);
    const auto enough = [](const DetectionRate& rate) { return rate.enough; };
    const auto fits = [](const PowerPoint& point) {
      return point.interval.low <= point.theory && point.theory <= point.interval.high;
    };
    out_.passed = std::all_of(out_.rates.begin(), out_.rates.end(), enough) &&
                  std::all_of(out_.power.begin(), out_.power.end(), fits);
  }

  static std::string side_words(double difference) { return difference > 0 ? "+margin" : "-margin"; }

  void report_fixed() {
    const std::vector<Truth> truths = fixed_truths();
    const int64_t draws = in_.config.draws;
    for (std::size_t i = 0; i < kPairs.size(); ++i) {
      const int n = kPairs[i];
      for (std::size_t t = 0; t < truths.size(); ++t) {
        const Truth& truth = truths[t];
        const Tally& tally = fixed_[i][t];
        const std::string design = fmt::format("{} pairs, sd {:g} margins", n, truth.sd);
        if (std::abs(truth.difference) == 1) {
          const std::string at = side_words(truth.difference);
          at_margin(rate(fmt::format("{}: equivalent at {}", design, at), tally.equivalent, draws));
          at_most(rate(fmt::format("{}: divergent at {}", design, at), tally.divergent, draws));
          continue;
        }
        const DetectionRate found = rate("", tally.equivalent, draws);
        out_.power.push_back({n, truth.sd, truth.difference,
                              static_cast<double>(tally.equivalent) / static_cast<double>(draws),
                              found.interval,
                              equivalence_power({n, truth.sd * margin(), margin(), in_.primary.alpha,
                                                 truth.difference * margin()})});
      }
      // Coverage does not depend on mean and spread: one design's is that of all.
      at_least(rate(fmt::format("{} pairs: interval covers", n), fixed_[i].front().covered, draws));
    }
  }

  void report_sequential() {
    const std::vector<Truth> truths = sequential_truths();
    const int64_t draws = in_.config.draws;
    for (std::size_t t = 0; t < truths.size(); ++t) {
      const Truth& truth = truths[t];
      const Tally& tally = sequential_[t];
      const std::string design =
          fmt::format("interim analyses at {} to {} pairs, sd {:g} margins", in_.looks.first, in_.looks.most, truth.sd);
      if (truth.difference == 0) {
        out_.rates.push_back(rate(design + ": equivalent at 0", tally.equivalent, draws));
        continue;
      }
      const std::string at = side_words(truth.difference);
      at_margin(rate(fmt::format("{}: equivalent at {}", design, at), tally.equivalent, draws));
      at_most(rate(fmt::format("{}: divergent at {}", design, at), tally.divergent, draws));
      at_least(rate(fmt::format("{}: last interval covers {}", design, at), tally.covered, draws));
    }
  }

  /// Equivalent and divergent where the test promises something; of fixed normal pairs also how often they are
  /// warned of.
  static std::size_t rates_judged_of(const ShapeTrial& trial) {
    return !trial.promised() ? 0 : warns_of(trial) ? 3 : 2;
  }
  static bool warns_of(const ShapeTrial& trial) {
    return trial.shape == ShapeTrial::Shape::normal && trial.pairs > 0;
  }

  void report_shape(const ShapeTrial& trial) {
    const std::string design = trial.design(in_.looks), test = name_of(trial.test);
    if (trial.promised()) {
      at_most(rate(fmt::format("{}: equivalent by {}", design, test), trial.equivalent, trial.of));
      at_most(rate(fmt::format("{}: divergent by {}", design, test), trial.divergent, trial.of));
    } else {
      out_.rates.push_back(rate(fmt::format("{}: equivalent by {}", design, test), trial.equivalent, trial.of));
    }
    if (warns_of(trial)) {
      at_most(rate(fmt::format("{}: warned of skewness", design), trial.warned, trial.of));
      out_.rates.back().asked = kSkewLevel;
      out_.rates.back().enough = out_.rates.back().interval.low <= kSkewLevel;
    }
    if (trial.test == OutcomeTest::t) {
      out_.rates.push_back(
          rate(fmt::format("{}: equivalent by t, without a warning", design), trial.unwarned, trial.of));
    }
    note_shape(trial);
  }

  /// What the report's first sentence says of a shape: the worst over all numbers of pairs.
  void note_shape(const ShapeTrial& trial) {
    if (trial.shape == ShapeTrial::Shape::normal) return;
    const std::string at = trial.median_at_margin ? "median" : "mean";
    auto found = std::find_if(out_.shapes.begin(), out_.shapes.end(), [&](const ShapeRate& rate) {
      return rate.shape == trial.shape_words() && rate.test == trial.test && rate.at_margin == at;
    });
    if (found == out_.shapes.end())
      found = out_.shapes.insert(found, {trial.shape_words(), trial.test, at, trial.promised(), 0, 0, 0});
    const double of = static_cast<double>(std::max<int64_t>(trial.of, 1));
    const auto share = [of](int64_t hits) { return static_cast<double>(hits) / of; };
    double& worst = trial.pairs > 0 ? found->equivalent : found->looks;
    worst = std::max(worst, share(trial.equivalent));
    if (trial.test == OutcomeTest::t) found->unwarned = std::max(found->unwarned, share(trial.unwarned));
  }

  void report_pool() {
    const PairedSummary pool = summarize_differences(in_.pool);
    out_.pool_runs = pool.n;
    out_.pool_mean = pool.mean;
    out_.pool_sd = pool.sd;
    const int64_t comparisons = in_.config.comparisons;
    const std::string design = fmt::format("{} pairs drawn from {} runs", in_.config.pairs, pool.n);
    at_margin(rate(design + ": equivalent at +margin", pool_[0].equivalent, comparisons));
    at_margin(rate(design + ": equivalent at -margin", pool_[1].equivalent, comparisons));
    at_least(rate(design + ": interval covers", pool_[0].covered, comparisons));
  }

  const CalibrationInputs& in_;
  const DecisionRule& rule_;
  Primary by_t_;
  std::vector<ShapeTrial> shapes_;
  std::vector<std::vector<Tally>> fixed_;  ///< by kPairs, fixed_truths()
  std::vector<Tally> sequential_;          ///< by sequential_truths()
  std::array<Tally, 2> pool_;              ///< at the margin, at minus the margin
  double level_ = 0.95;
  Calibration out_;
};

}  // namespace

Calibration calibrate(const CalibrationInputs& inputs, const DecisionRule& rule) {
  return Calibrator(inputs, rule).run();
}

std::optional<Calibration> calibrate_runs(const Matrix& matrix, const std::vector<const RunEvidence*>& runs,
                                          int jobs, CellResult& cell) {
  std::vector<double> pool;
  for (const RunEvidence* run : runs) {
    if (!run || run->failure) return std::nullopt;
    const auto found = run->metrics.find(matrix.primary.metric);
    if (found == run->metrics.end() || !std::isfinite(found->second)) {
      Failure& failure = cell.failure.emplace();
      failure.kind = found == run->metrics.end() ? FailureKind::unmeasured : FailureKind::nonfinite;
      failure.message = fmt::format("a run of the pool has no finite {}", matrix.primary.metric);
      cell.verdict = VerdictKind::failed;
      cell.as_expected = false;
      return std::nullopt;
    }
    pool.push_back(found->second);
  }
  return calibrate({matrix.primary, matrix.seeds_auto, section_of<CalibrationConfig>(matrix), std::move(pool), jobs});
}

namespace {

std::string percent(double share) { return fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0); }

/// What the tests do where differences are not normal, promised or not; empty in results that do not tell.
std::string shapes_in_words(const Calibration& calibration) {
  double kept = 0;
  bool has_promise = false;
  std::string broken;
  for (const ShapeRate& rate : calibration.shapes) {
    if (rate.promised) {
      has_promise = true;
      kept = std::max({kept, rate.equivalent, rate.looks});
    } else {
      const bool by_t = rate.test == OutcomeTest::t;
      const std::string unwarned =
          by_t ? fmt::format("; {} without a warning of skewness", percent(rate.unwarned)) : "";
      broken += fmt::format("{} {} called equivalent up to {} ({} with interim analyses{}) where {}", broken.empty() ? "" : ",",
                            by_t ? "t" : "the sign test", percent(rate.equivalent), percent(rate.looks), unwarned,
                            rate.shape == "log-normal" ? "differences are log-normal" : rate.shape);
    }
  }
  std::string text;
  if (has_promise) {
    text += fmt::format(
        " The sign test states the same rate for any shape whose median is the margin: there at most {} are called "
        "equivalent.",
        percent(kept));
  }
  if (!broken.empty()) {
    text += fmt::format(
        " Neither test states a rate for the mean of other shapes: with the mean at the margin{}.", broken);
  }
  return text;
}

}  // namespace

std::string calibration_sentence(const Calibration& calibration) {
  std::string text;
  for (const DetectionRate& rate : calibration.rates) {
    if (rate.enough) continue;
    text += fmt::format("{}{}: {} of {}, where {} {:g} % are allowed", text.empty() ? "" : "; ", rate.what,
                        rate.hits, rate.of, rate.at_most ? "at most" : "no less than", 100 * rate.asked);
  }
  for (const PowerPoint& point : calibration.power) {
    if (point.interval.low <= point.theory && point.theory <= point.interval.high) continue;
    text += fmt::format(
        "{}power with {} pairs, sd {:g} and difference {:g} margins: {:.4f}, where theory says {:.4f}",
        text.empty() ? "" : "; ", point.n, point.sd, point.true_difference, point.measured, point.theory);
  }
  if (!text.empty()) return "The tests do not meet their stated rates: " + text + "." + shapes_in_words(calibration);
  text = fmt::format(
      "The tests meet their stated rates: of normal differences whose true mean is the margin at most {:.2f} % are "
      "called equivalent, and {:g} % is allowed (no rate's interval lies above it)",
      100 * calibration.worst_equivalent, 100 * calibration.equivalent_allowed);
  if (calibration.pool_runs > 0) {
    text += fmt::format("; {} real runs scatter with a standard deviation of {:.3g} around {:.3g}",
                        calibration.pool_runs, calibration.pool_sd, calibration.pool_mean);
  }
  return text + "." + shapes_in_words(calibration);
}

}  // namespace lockstep
