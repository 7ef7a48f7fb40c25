#include "harness/answer/stats/paired_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>
#include <map>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/base/numbers.h"

namespace lockstep {
namespace {

constexpr uint64_t kBandKey = 0x7375702d74;  // "sup-t"

/// The metric's curves of one arm; empty if a run has none.
std::vector<const Series*> series_of(const std::vector<const RunEvidence*>& runs, const std::string& metric) {
  std::vector<const Series*> series;
  for (const RunEvidence* run : runs) {
    const auto found = run->curves.find(metric);
    if (found == run->curves.end() || found->second.steps.empty()) return {};
    series.push_back(&found->second);
  }
  return series;
}

/// Of each run: samples seen -> place in its curve.
std::vector<std::map<int64_t, std::size_t>> places_of(const std::vector<const Series*>& series, int batch) {
  std::vector<std::map<int64_t, std::size_t>> places;
  for (const Series* one : series) {
    auto& place = places.emplace_back();
    for (std::size_t i = 0; i < one->steps.size(); ++i) place[one->steps[i] * batch] = i;
  }
  return places;
}

bool all_finite(const std::vector<std::vector<double>>& values) {
  return std::ranges::all_of(values, [](const std::vector<double>& of_seed) {
    return std::ranges::all_of(of_seed, [](double value) { return std::isfinite(value); });
  });
}

/// Deviations of each seed's difference from their mean at the points that have any spread: [seed][point].
struct Spread {
  std::vector<std::vector<double>> rest;
  std::size_t points = 0;
};

/// The (1 - alpha) quantile of the largest |t| over the points, by resampling seeds.
double largest_t_quantile(const Spread& spread, double alpha) {
  const std::size_t n = spread.rest.size();
  const double count = static_cast<double>(n);
  const KeyedDraws draws(kBandKey);
  std::vector<double> largest, sum(spread.points), squares(spread.points);
  for (uint64_t b = 0; b < kResamples; ++b) {
    std::ranges::fill(sum, 0.0);
    std::ranges::fill(squares, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const std::vector<double>& rest = spread.rest[draws.below(b * n + i, static_cast<uint32_t>(n))];
      for (std::size_t k = 0; k < spread.points; ++k) {
        sum[k] += rest[k];
        squares[k] += rest[k] * rest[k];
      }
    }
    double most = 0;
    for (std::size_t k = 0; k < spread.points; ++k) {
      // The values are deviations from their mean, so nothing large cancels in this variance.
      const double mean = sum[k] / count, variance = (squares[k] / count - mean * mean) * count / (count - 1);
      const bool flat = variance <= 1e-12 * squares[k] / count;
      const double t = flat ? (mean == 0 ? 0.0 : kInfinity) : std::abs(mean) / std::sqrt(variance / count);
      most = std::max(most, t);
    }
    largest.push_back(most);
  }
  const auto place = static_cast<std::ptrdiff_t>(std::ceil((1.0 - alpha) * kResamples)) - 1;
  std::ranges::nth_element(largest, largest.begin() + place);
  return largest[static_cast<std::size_t>(place)];
}

/// First point at which the metric is at the target or beyond; the number of points if it never is.
std::size_t first_at(const std::vector<double>& values, double target, bool higher_is_better) {
  const auto there = [&](double value) { return higher_is_better ? value >= target : value <= target; };
  return static_cast<std::size_t>(std::ranges::find_if(values, there) - values.begin());
}

/// Of values with infinities where there is none.
double median_with_infinities(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return std::isinf(values[middle]) ? kInfinity : (values[middle - 1] + values[middle]) / 2.0;
}

/// "8x3 local, seed 6: accuracy_24 is nan at step 50" of the first value of the metric's curves that is not
/// finite.
std::string first_nonfinite(const PairedRuns& runs, const PairedCurves& curves) {
  for (const bool own : {true, false}) {
    const auto& values = own ? curves.cell : curves.reference;
    for (std::size_t seed = 0; seed < values.size(); ++seed) {
      for (std::size_t k = 0; k < values[seed].size(); ++k) {
        if (std::isfinite(values[seed][k])) continue;
        return fmt::format("{}, seed {}: {} is {} at step {}", own ? runs.cell : runs.reference,
                           runs.seeds[seed], curves.metric, values[seed][k],
                           own ? curves.cell_steps[k] : curves.reference_steps[k]);
      }
    }
  }
  return "";
}

}  // namespace

std::optional<PairedCurves> PairedCurves::of(const PairedRuns& runs, const std::string& metric) {
  const auto own = series_of(runs.cell_runs, metric), other = series_of(runs.reference_runs, metric);
  if (own.empty() || own.size() != other.size()) return std::nullopt;
  const auto own_places = places_of(own, runs.cell_batch),
             other_places = places_of(other, runs.reference_batch);
  PairedCurves curves;
  curves.metric = metric;
  curves.cell.resize(own.size());
  curves.reference.resize(other.size());
  for (const auto& [samples, unused] : own_places.front()) {
    const auto has = [&, samples = samples](const auto& places) { return places.contains(samples); };
    if (!std::ranges::all_of(own_places, has) || !std::ranges::all_of(other_places, has)) continue;
    curves.cell_steps.push_back(samples / runs.cell_batch);
    curves.reference_steps.push_back(samples / runs.reference_batch);
    for (std::size_t seed = 0; seed < own.size(); ++seed) {
      curves.cell[seed].push_back(own[seed]->values[own_places[seed].at(samples)]);
      curves.reference[seed].push_back(other[seed]->values[other_places[seed].at(samples)]);
    }
  }
  if (curves.cell_steps.empty()) return std::nullopt;
  if (runs.cell_batch != runs.reference_batch) {
    curves.note = fmt::format(
        "matched by samples seen: step {} of {} rows is compared with step {} of {} rows, and so on",
        curves.cell_steps.front(), runs.cell_batch, curves.reference_steps.front(), runs.reference_batch);
  }
  return curves;
}

void align_areas(const PairedRuns& runs, MetricsBySeed& cell_metrics, MetricsBySeed& reference_metrics) {
  if (runs.seeds.empty()) return;
  for (const auto& [metric, value] : MetricsBySeed::mapped_type(cell_metrics.begin()->second)) {
    if (!metric.starts_with(kAreaPrefix)) continue;
    const auto curves = PairedCurves::of(runs, metric.substr(kAreaPrefix.size()));
    const bool enough = curves && curves->cell_steps.size() > 1;
    for (std::size_t i = 0; i < runs.seeds.size(); ++i) {
      auto &own = cell_metrics[runs.seeds[i]], &other = reference_metrics[runs.seeds[i]];
      if (enough) {
        own[metric] = area_under(curves->cell_steps, curves->cell[i]);
        other[metric] = area_under(curves->reference_steps, curves->reference[i]);
      } else {
        own.erase(metric);
        other.erase(metric);
      }
    }
  }
}

std::optional<CurveDifference> difference_of(const PairedCurves& curves, double margin, double alpha) {
  const std::size_t n = curves.cell.size(), points = curves.cell_steps.size();
  if (n < 2) return std::nullopt;
  CurveDifference difference;
  difference.metric = curves.metric;
  difference.margin = margin;
  difference.steps = curves.cell_steps;
  difference.note = curves.note;
  Spread spread;
  spread.rest.resize(n);
  std::vector<double> standard_errors;
  for (std::size_t k = 0; k < points; ++k) {
    std::vector<double> differences;
    for (std::size_t seed = 0; seed < n; ++seed) {
      differences.push_back(curves.cell[seed][k] - curves.reference[seed][k]);
    }
    const PairedSummary summary = summarize_differences(differences);
    difference.mean.push_back(summary.mean);
    standard_errors.push_back(summary.sd / std::sqrt(static_cast<double>(n)));
    if (summary.sd == 0) continue;
    ++spread.points;
    for (std::size_t seed = 0; seed < n; ++seed)
      spread.rest[seed].push_back(differences[seed] - summary.mean);
  }
  double c = 0;
  if (spread.points > 0) {
    const double bonferroni = alpha / (2.0 * static_cast<double>(spread.points));
    const int seeds = static_cast<int>(n);
    c = std::clamp(largest_t_quantile(spread, alpha), student_quantile(1.0 - alpha / 2.0, seeds),
                   student_quantile(1.0 - bonferroni, seeds));
  }
  for (std::size_t k = 0; k < points; ++k) {
    const double low = difference.mean[k] - c * standard_errors[k];
    const double high = difference.mean[k] + c * standard_errors[k];
    difference.low.push_back(low);
    difference.high.push_back(high);
    const int64_t step = difference.steps[k];
    const bool leaves = margin > 0 && (low <= -margin || high >= margin);
    if (leaves && difference.first_leaves < 0) difference.first_leaves = step;
    if ((low > margin || high < -margin) && difference.first_beyond < 0) difference.first_beyond = step;
  }
  return difference;
}

namespace {

/// Samples until point `own` over those until point `other`; `never` is past the last point. As many samples
/// have been seen at one point in both arms, so the reference's steps stand for them.
double sample_ratio(const std::vector<int64_t>& steps, std::size_t own, std::size_t other) {
  const std::size_t never = steps.size();
  if (own == other) return 1;
  if (own == never) return kInfinity;
  if (other == never) return 0;
  return steps[other] == 0 ? kInfinity : static_cast<double>(steps[own]) / static_cast<double>(steps[other]);
}

}  // namespace

TargetReach reach_of(const PairedCurves& curves, double target, bool higher_is_better, double alpha) {
  TargetReach reach;
  reach.target = target;
  reach.n = static_cast<int>(curves.cell.size());
  const std::size_t never = curves.cell_steps.size();
  std::vector<double> own_steps, other_steps, ratios;
  for (std::size_t i = 0; i < curves.cell.size(); ++i) {
    const std::size_t own = first_at(curves.cell[i], target, higher_is_better);
    const std::size_t other = first_at(curves.reference[i], target, higher_is_better);
    reach.cell_reached += own < never ? 1 : 0;
    reach.reference_reached += other < never ? 1 : 0;
    own_steps.push_back(own < never ? static_cast<double>(curves.cell_steps[own]) : kInfinity);
    other_steps.push_back(other < never ? static_cast<double>(curves.reference_steps[other]) : kInfinity);
    ++(own < other ? reach.sooner : own > other ? reach.later : reach.tied);
    if (own < never || other < never) ratios.push_back(sample_ratio(curves.reference_steps, own, other));
  }
  reach.cell_median = median_with_infinities(own_steps);
  reach.reference_median = median_with_infinities(other_steps);
  reach.cell_interval = median_interval(own_steps, 1 - alpha);
  reach.reference_interval = median_interval(other_steps, 1 - alpha);
  reach.ratio_n = static_cast<int>(ratios.size());
  if (!ratios.empty()) {
    reach.ratio = median_with_infinities(ratios);
    reach.ratio_interval = median_interval(ratios, 1 - alpha);
  }
  const int decided = reach.sooner + reach.later;
  if (decided > 0) {
    const boost::math::binomial_distribution<> coin(decided, 0.5);
    reach.p = std::min(1.0, 2.0 * boost::math::cdf(coin, std::min(reach.sooner, reach.later)));
  }
  return reach;
}

void judge_curves(const PairedRuns& runs, const Primary& primary, Outcome& outcome) {
  std::vector<std::string> metrics{primary.metric};
  if (!runs.shown_metric.empty() && primary.metric != runs.shown_metric) metrics.push_back(runs.shown_metric);
  for (const std::string& metric : metrics) {
    const auto curves = PairedCurves::of(runs, metric);
    if (!curves && metric == primary.metric && primary.target != 0) {
      outcome.notes.push_back(
          fmt::format("{} has no curve in every run, so steps to its target are not known", metric));
    }
    if (!curves) continue;
    if (!all_finite(curves->cell) || !all_finite(curves->reference)) {
      outcome.notes.push_back(first_nonfinite(runs, *curves));
      continue;
    }
    const bool judged = metric == primary.metric;
    auto difference = difference_of(*curves, judged ? primary.margin : 0, primary.alpha);
    if (difference) outcome.curves.push_back(std::move(*difference));
    const auto higher = higher_is_better(metric);
    if (judged && primary.target != 0 && higher)
      outcome.target = reach_of(*curves, primary.target, *higher, primary.alpha);
  }
}

}  // namespace lockstep
