#include "harness/questions/calibration/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "harness/base/normal.h"
#include "harness/base/parallel.h"
#include "harness/config/stream_keys.h"
#include "harness/stats/rate.h"

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

enum Purpose : uint64_t { fixed_design = 1, sequential_design, pool_draws };

/// Numbers by key and index: none depends on how many others were drawn.
class KeyedDraws {
 public:
  KeyedDraws(int64_t seed, Purpose purpose, uint64_t which)
      : key_(mix_key(mix_key(static_cast<uint64_t>(seed) ^ mix_key(purpose)) ^ which)) {}
  uint64_t bits() { return mix_key(key_ ^ mix_key(next_++)); }
  /// In (0, 1].
  double uniform() { return (static_cast<double>(bits() >> 11) + 1) * 0x1p-53; }
  /// Standard normal, by Box and Muller.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = 1 - uniform(), angle = uniform();
    // The sine of an angle is the cosine of a quarter turn less.
    spare_ = standard_normal(radius, angle < 0.25 ? angle + 0.75 : angle - 0.25);
    has_spare_ = true;
    return standard_normal(radius, angle);
  }
  /// In [0, end).
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(bits() % end); }

 private:
  uint64_t key_, next_ = 0;
  double spare_ = 0;
  bool has_spare_ = false;
};

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
  Calibrator(const CalibrationInputs& inputs, const DecisionRule& rule) : in_(inputs), rule_(rule) {}

  Calibration run() {
    std::vector<std::function<void()>> work;
    fixed_.resize(kPairs.size());
    for (std::size_t i = 0; i < kPairs.size(); ++i) work.emplace_back([this, i] { try_fixed(i); });
    work.emplace_back([this] { try_sequentially(); });
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
    KeyedDraws draws(in_.config.draw_seed, fixed_design, static_cast<uint64_t>(n));
    std::vector<double> sample(static_cast<std::size_t>(n));
    for (int64_t i = 0; i < in_.config.draws; ++i) {
      for (double& value : sample) value = draws.normal();
      const PairedSummary standard = summarize_differences(sample);
      for (std::size_t t = 0; t < truths.size(); ++t) {
        const double scale = truths[t].sd * margin(), truth = truths[t].difference * margin();
        const PairedSummary summary{n, truth + scale * standard.mean, scale * standard.sd};
        tallies[t].count(rule_(summary, in_.primary), covers(summary, in_.primary.alpha, truth));
      }
    }
  }

  void try_sequentially() {
    const std::vector<Truth> truths = sequential_truths();
    sequential_.resize(truths.size());
    const std::vector<SpendingLook> looks = spending_looks(in_.looks, in_.primary.alpha);
    KeyedDraws draws(in_.config.draw_seed, sequential_design, 0);
    std::vector<double> standard(static_cast<std::size_t>(in_.looks.most)), sample(standard.size());
    for (int64_t i = 0; i < in_.config.draws; ++i) {
      for (double& value : standard) value = draws.normal();
      for (std::size_t t = 0; t < truths.size(); ++t) {
        const double truth = truths[t].difference * margin();
        for (std::size_t j = 0; j < sample.size(); ++j) {
          sample[j] = truth + truths[t].sd * margin() * standard[j];
        }
        const std::vector<Look> taken = take_looks(sample, looks, in_.primary, rule_);
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
    KeyedDraws draws(in_.config.draw_seed, pool_draws, 0);
    std::vector<std::size_t> order(in_.pool.size());
    std::vector<double> differences(pairs);
    for (int64_t i = 0; i < in_.config.comparisons; ++i) {
      std::iota(order.begin(), order.end(), std::size_t{0});
      for (std::size_t j = 0; j < 2 * pairs; ++j)
        std::swap(order[j], order[j + draws.below(order.size() - j)]);
      for (std::size_t j = 0; j < pairs; ++j) {
        differences[j] = in_.pool[order[2 * j]] - in_.pool[order[2 * j + 1]];
      }
      PairedSummary summary = summarize_differences(differences);
      const double mean = summary.mean;
      for (std::size_t side = 0; side < pool_.size(); ++side) {
        const double truth = side == 0 ? margin() : -margin();
        summary.mean = mean + truth;
        pool_[side].count(rule_(summary, in_.primary), covers(summary, in_.primary.alpha, truth));
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
    const std::size_t judged = fixed + 6 * kSequentialSds.size() + (has_pool() ? 3 : 0);
    level_ = 1 - kUnlucky / static_cast<double>(judged);
    report_fixed();
    report_sequential();
    if (has_pool()) report_pool();
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
          fmt::format("looks at {} to {} pairs, sd {:g} margins", in_.looks.first, in_.looks.most, truth.sd);
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
      failure.kind = found == run->metrics.end() ? "unmeasured" : "nonfinite";
      failure.message = fmt::format("a run of the pool has no finite {}", matrix.primary.metric);
      cell.verdict = VerdictKind::failed;
      cell.as_expected = false;
      return std::nullopt;
    }
    pool.push_back(found->second);
  }
  return calibrate({matrix.primary, matrix.seeds_auto, section_of<CalibrationConfig>(matrix), std::move(pool), jobs});
}

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
  if (!text.empty()) return "The tests do not keep their promises: " + text + ".";
  text = fmt::format(
      "The tests keep their promises: with the true difference at the margin at most {:.2f} % are called "
      "equivalent, where {:g} % may be",
      100 * calibration.worst_equivalent, 100 * calibration.equivalent_allowed);
  if (calibration.pool_runs > 0) {
    text += fmt::format("; {} real runs scatter with a standard deviation of {:.3g} around {:.3g}",
                        calibration.pool_runs, calibration.pool_sd, calibration.pool_mean);
  }
  return text + ".";
}

}  // namespace lockstep
