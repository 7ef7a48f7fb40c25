#include "harness/verdict/stats/mlperf/mlperf.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <iterator>
#include <numeric>

#include "harness/base/counted.h"

namespace lockstep {
namespace {

constexpr double kTolerance = 0.0001;  ///< of their bisection, in whatever unit the runs are counted

bool by_batch(const ReferencePoint& x, const ReferencePoint& y) { return x.batch < y.batch; }

/// numpy.interp between two points: at the upper one, and where both lie at x, the upper one's value.
double interpolate(double x, double x0, double x1, double y0, double y1) {
  if (x >= x1) return y1;
  return y0 + (y1 - y0) / (x1 - x0) * (x - x0);
}

/// Their test of a submission against the point that applies to it.
void hold_against(const ReferencePoint& point, const MlperfRules& rules, MlperfJudgement& judgement) {
  judgement.point = point;
  if (rules.slack > 0) judgement.point->max_speedup = point.mean / (point.least_mean - rules.slack);
  const double least = judgement.point->mean / judgement.point->max_speedup;
  judgement.normalisation = std::max(1.0, point.mean / judgement.mean);
  judgement.verdict = judgement.mean >= least ? MlperfVerdict::passed : MlperfVerdict::failed;
}

std::string unit_of(const MlperfRules& rules) { return rules.samples ? "samples" : "epochs"; }

std::string sentence_of(const MlperfJudgement& j, const MlperfRules& rules) {
  if (!j.point) return "";
  const ReferencePoint& point = *j.point;
  const std::string unit = unit_of(rules);
  const double speedup = point.mean / j.mean;
  if (j.verdict == MlperfVerdict::failed) {
    return fmt::format(
        "It converges {:.4g} times as fast as the reference ({:.6g} against {:.6g} {}); Max Speedup is "
        "{:.4g}.",
        speedup, j.mean, point.mean, unit, point.max_speedup);
  }
  if (speedup > 1) {
    return fmt::format(
        "It converges {:.4g} times as fast as the reference, within Max Speedup {:.4g}; the score is "
        "normalised by {:.4f}.",
        speedup, point.max_speedup, j.normalisation);
  }
  if (speedup == 1) return "It converges as fast as the reference.";
  return fmt::format(
      "It converges {:.1f} % slower than the reference ({:.6g} against {:.6g} {}). The rule is one-sided: it "
      "refuses only a mean below {:.6g} {}, so a slower run passes, however slow.",
      (j.mean / point.mean - 1) * 100, j.mean, point.mean, unit, point.mean / point.max_speedup, unit);
}

/// Why the rule cannot be applied at all: too few runs for olympic scoring and its t-test. Empty: it can.
std::string too_few(const std::vector<ReferencePoint>& points, const Submission& submission,
                    const MlperfRules& rules) {
  const std::size_t least = 2U * static_cast<std::size_t>(rules.rejected) + 1U;
  const auto text = [&](const std::string& name, std::size_t runs, std::size_t needed) {
    return fmt::format(
        "{} has {}; olympic scoring drops the best {} and the worst {}, so that at least {} are "
        "needed.",
        name, counted(static_cast<int64_t>(runs), "run"), rules.rejected, rules.rejected, needed);
  };
  for (const ReferencePoint& point : points) {
    const std::size_t runs = point.to_converge.size();
    if (runs < least) return text(point.name, runs, least);
    const auto kept = static_cast<int>(runs) - 2 * rules.rejected;
    // Two groups of one run each show no spread: their test has no degree of freedom.
    if (kept + rules.runs - 2 < 3) return text(point.name, runs, runs + 1);
  }
  if (submission.to_converge.size() < least)
    return text(submission.name, submission.to_converge.size(), least);
  if (rules.runs < 3) return text(submission.name, static_cast<std::size_t>(rules.runs), 3);
  return "";
}

/// What their package checker says of a submission that has not the runs that the rules require. Empty: it has
/// them, or none are required.
std::string wrong_number(const Submission& submission, const MlperfRules& rules) {
  const auto runs = static_cast<int>(submission.to_converge.size());
  if (!rules.required || runs == rules.runs || (rules.more_runs && runs > rules.runs)) return "";
  return fmt::format("A submission of {} has {}{}, {} has {}; any {} number is refused, whatever the runs show.",
                     rules.benchmark, rules.more_runs ? "at least " : "", counted(rules.runs, "run"),
                     submission.name, runs, rules.more_runs ? "smaller" : "other");
}

std::string never_converged_text(const std::vector<ReferencePoint>& points) {
  for (const ReferencePoint& point : points) {
    const auto failed = std::ranges::count_if(point.to_converge, [](double v) { return !std::isfinite(v); });
    if (failed > 0) {
      return fmt::format(
          "{} of {} runs of {} never reached the target; a reference point is made of runs that "
          "do. Take a target that they all reach.",
          failed, point.to_converge.size(), point.name);
    }
  }
  return "";
}

const ReferencePoint* neighbour(const std::vector<ReferencePoint>& points, int64_t batch, bool above) {
  const ReferencePoint* best = nullptr;
  for (const ReferencePoint& point : points) {
    if (above ? point.batch <= batch : point.batch >= batch) continue;
    if (!best || (above ? point.batch < best->batch : point.batch > best->batch)) best = &point;
  }
  return best;
}

/// As their check_directory does once logs and points are read.
void choose_point(const std::vector<ReferencePoint>& points, int64_t batch, const MlperfRules& rules,
                  MlperfJudgement& j) {
  const std::string missing = fmt::format("Missing RCP, please submit RCP with BS = {}", batch);
  const auto same = std::ranges::find(points, batch, &ReferencePoint::batch);
  const ReferencePoint* low = neighbour(points, batch, false);
  const ReferencePoint* high = neighbour(points, batch, true);
  if (same != points.end()) {
    j.message = "RCP found";
    hold_against(*same, rules, j);
  } else if (low && high) {
    j.message = "RCP Interpolation";
    hold_against(interpolate_points(batch, *low, *high, rules), rules, j);
  } else if (high) {
    // A batch smaller than any reference's need only be no faster than the smallest.
    hold_against(*std::ranges::min_element(points, by_batch), rules, j);
    j.message = j.verdict == MlperfVerdict::passed
                    ? "RCP not found but slower convergence on smaller batch size"
                    : missing;
  } else {
    j.message = low ? missing : "Cannot find any RCPs";
    j.verdict = MlperfVerdict::failed;
    j.sentence = "No reference has so large a batch, and lockstep does not extrapolate.";
  }
}

}  // namespace

double olympic_mean(std::span<const double> values, int rejected) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const auto drop = static_cast<std::size_t>(rejected);
  if (sorted.size() <= 2 * drop) return std::nan("");
  const auto begin = sorted.begin() + rejected, end = sorted.end() - rejected;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

double least_acceptable_mean(double mean, double sd, int reference_runs, int submission_runs, double alpha) {
  if (sd == 0) return mean;
  const boost::math::students_t t(reference_runs + submission_runs - 2);
  const double unit = sd * std::sqrt(1.0 / reference_runs + 1.0 / submission_runs);
  double low = 0.0, high = mean, middle = (low + high) / 2;
  while (high - low > kTolerance) {
    const double p = boost::math::cdf(t, (middle - mean) / unit);
    (p > alpha ? high : low) = middle;
    const double next = (low + high) / 2;
    // For very many samples neighbouring doubles lie farther apart than the tolerance: the bisection would
    // not end.
    if (next == middle) break;
    middle = next;
  }
  return middle;
}

void measure_point(ReferencePoint& point, const MlperfRules& rules) {
  const std::vector<double>& values = point.to_converge;
  point.mean = olympic_mean(values, rules.rejected);
  const auto n = static_cast<double>(values.size());
  const double plain = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - plain) * (value - plain);
  point.sd = std::sqrt(squares / n);
  point.least_mean =
      least_acceptable_mean(point.mean, point.sd, static_cast<int>(values.size()) - 2 * rules.rejected,
                            rules.runs - 2, rules.alpha);
  point.max_speedup = point.mean / point.least_mean;
}

ReferencePoint interpolate_points(int64_t batch, const ReferencePoint& low, const ReferencePoint& high,
                                  const MlperfRules& rules) {
  const auto x = static_cast<double>(batch), x0 = static_cast<double>(low.batch),
             x1 = static_cast<double>(high.batch);
  ReferencePoint point;
  point.benchmark = low.benchmark;
  point.name = fmt::format("{}_interp_{}", low.benchmark, batch);
  point.batch = batch;
  point.interpolated = true;
  point.mean = interpolate(x, x0, x1, low.mean, high.mean);
  point.sd = interpolate(x, x0, x1, low.sd, high.sd);
  // For an interpolated point they count the runs that a reference should have, none of them dropped.
  point.least_mean = least_acceptable_mean(point.mean, point.sd, rules.runs * 2, rules.runs - 2, rules.alpha);
  point.max_speedup = point.mean / point.least_mean;
  return point;
}

std::vector<ReferencePoint> prune_points(std::vector<ReferencePoint> points, const MlperfRules& rules) {
  std::ranges::stable_sort(points, by_batch);
  if (points.empty()) return points;
  const std::vector<ReferencePoint> all = points;
  const int64_t fastest = std::ranges::min_element(points, {}, &ReferencePoint::mean)->batch;
  std::erase_if(points, [&](const ReferencePoint& point) { return point.batch < fastest; });
  // As they do it: one pass, and no second look at a point below one that was removed. What is left need not
  // be convex.
  for (std::size_t i = 1; i + 1 < points.size();) {
    const ReferencePoint line = interpolate_points(points[i].batch, points[i - 1], points[i + 1], rules);
    if (points[i].mean > line.mean) {
      points.erase(points.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  // They look up what is left by batch size, so that a point comes back with another one of its batch.
  std::vector<ReferencePoint> left;
  std::ranges::copy_if(all, std::back_inserter(left), [&](const ReferencePoint& point) {
    return std::ranges::find(points, point.batch, &ReferencePoint::batch) != points.end();
  });
  return left;
}

MlperfJudgement judge_mlperf(std::vector<ReferencePoint> points, const Submission& submission,
                             const MlperfRules& rules) {
  MlperfJudgement judgement;
  judgement.runs = static_cast<int>(submission.to_converge.size());
  judgement.failed_runs = static_cast<int>(
      std::ranges::count_if(submission.to_converge, [](double v) { return !std::isfinite(v); }));
  judgement.mean = olympic_mean(submission.to_converge, rules.rejected);
  judgement.sentence = wrong_number(submission, rules);
  if (!judgement.sentence.empty()) {
    judgement.verdict = MlperfVerdict::failed;
    judgement.check = "package check";
    judgement.message = "Incorrect number of files";
    return judgement;
  }
  judgement.sentence = too_few(points, submission, rules);
  if (judgement.sentence.empty()) judgement.sentence = never_converged_text(points);
  if (!judgement.sentence.empty()) return judgement;
  for (ReferencePoint& point : points) measure_point(point, rules);
  const auto all = static_cast<int>(points.size());
  if (rules.prune) points = prune_points(std::move(points), rules);
  judgement.points = static_cast<int>(points.size());
  judgement.pruned = all - judgement.points;
  if (judgement.failed_runs > rules.rejected) {
    judgement.verdict = MlperfVerdict::failed;
    judgement.message = "Insufficient convergence";
    judgement.sentence = fmt::format("{} of {} runs never reached the target; at most {} may.",
                                     judgement.failed_runs, judgement.runs, rules.rejected);
    return judgement;
  }
  choose_point(points, submission.batch, rules, judgement);
  if (judgement.sentence.empty()) judgement.sentence = sentence_of(judgement, rules);
  return judgement;
}

std::optional<UnpairedDifference> welch_difference(std::span<const double> reference,
                                                   std::span<const double> submission, double alpha) {
  const auto finite = [](double value) { return std::isfinite(value); };
  if (reference.size() < 2 || submission.size() < 2 || !std::ranges::all_of(reference, finite) ||
      !std::ranges::all_of(submission, finite)) {
    return std::nullopt;
  }
  struct Moments {
    double mean = 0, of_mean = 0;  ///< of_mean: variance of the mean
    double n = 0;
  };
  const auto moments = [](std::span<const double> values) {
    Moments m;
    m.n = static_cast<double>(values.size());
    m.mean = std::accumulate(values.begin(), values.end(), 0.0) / m.n;
    for (const double value : values) m.of_mean += (value - m.mean) * (value - m.mean);
    m.of_mean /= (m.n - 1) * m.n;
    return m;
  };
  const Moments a = moments(reference), b = moments(submission);
  UnpairedDifference d;
  d.mean = b.mean - a.mean;
  const double variance = a.of_mean + b.of_mean;
  if (variance == 0) {
    d.interval = {d.mean, d.mean, 1 - alpha};
    d.equivalence = {d.mean, d.mean, 1 - 2 * alpha};
    d.p_slower = d.mean > 0 ? 0 : 1;
    d.p_faster = d.mean < 0 ? 0 : 1;
    return d;
  }
  const double freedom =
      variance * variance / (a.of_mean * a.of_mean / (a.n - 1) + b.of_mean * b.of_mean / (b.n - 1));
  const boost::math::students_t t(freedom);
  const double unit = std::sqrt(variance);
  const auto interval = [&](double level) {
    const double half = boost::math::quantile(t, 0.5 + level / 2) * unit;
    return Interval{d.mean - half, d.mean + half, level};
  };
  d.interval = interval(1 - alpha);
  d.equivalence = interval(1 - 2 * alpha);
  d.p_faster = boost::math::cdf(t, d.mean / unit);
  d.p_slower = boost::math::cdf(t, -d.mean / unit);
  return d;
}

VerdictKind decide_unpaired(const UnpairedDifference& difference, double margin) {
  if (difference.equivalence.low > -margin && difference.equivalence.high < margin)
    return VerdictKind::equivalent;
  if (difference.interval.low > margin || difference.interval.high < -margin) return VerdictKind::divergent;
  return VerdictKind::inconclusive;
}

const char* name_of(MlperfVerdict verdict) {
  switch (verdict) {
    case MlperfVerdict::passed:
      return "PASSED";
    case MlperfVerdict::failed:
      return "FAILED";
    default:
      return "undecided";
  }
}

}  // namespace lockstep
