#pragma once
// MLPerf Training's reference convergence points: does a submission reach the target too soon to be the same
// training? The arithmetic follows mlcommons/logging, mlperf_logging/rcp_checker/rcp_checker.py.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/results/results.h"
#include "harness/verdict/stats/mlperf/benchmarks.h"

namespace lockstep {

/// The figure of a run that never reached its target. Their log readers write 1e9; here no number is
/// invented.
inline constexpr double kNeverConverged = std::numeric_limits<double>::infinity();

/// Reference runs at one global batch size.
struct ReferencePoint {
  std::string name;
  std::string benchmark;
  int64_t batch = 0;
  std::vector<double> to_converge;  ///< epochs or samples; empty if interpolated
  double mean = 0;                  ///< olympic
  double sd = 0;          ///< of all runs, with n (not n - 1) in the denominator, as they take it
  double least_mean = 0;  ///< "Min Epochs": a mean below it is refused
  double max_speedup = 0;
  bool interpolated = false;
};

/// Mean without the `rejected` best and worst. NaN if nothing is left.
double olympic_mean(std::span<const double> values, int rejected);

/// The smallest mean that their one-sided t-test of equal variances, with the reference's standard deviation
/// on both sides, does not call faster at `alpha`. By their bisection, to 1e-4: the same digits.
double least_acceptable_mean(double mean, double sd, int reference_runs, int submission_runs, double alpha);

/// Fills mean, sd, least_mean and max_speedup from to_converge.
void measure_point(ReferencePoint& point, const MlperfRules& rules);

/// The point between two others at another batch size: mean and standard deviation lie on the straight line.
ReferencePoint interpolate_points(int64_t batch, const ReferencePoint& low, const ReferencePoint& high,
                                  const MlperfRules& rules);

/// Measured points by batch size, those of one batch in the order given, without the batches that their pruning
/// removes: those below the fastest point's, and points that converge slower than the line between their
/// neighbours. Of several points at one batch all stay if one does.
std::vector<ReferencePoint> prune_points(std::vector<ReferencePoint> points, const MlperfRules& rules);

struct Submission {
  std::string name;
  int64_t batch = 0;
  std::vector<double> to_converge;  ///< in the unit of the reference points; kNeverConverged: it did not
};

enum class MlperfVerdict { passed, failed, undecided };

struct MlperfJudgement {
  MlperfVerdict verdict = MlperfVerdict::undecided;
  std::string check = "RCP test";       ///< of theirs that decided it; the number of runs is their "package check"
  std::string message;                  ///< in their words: "RCP found", "RCP Interpolation", ...
  std::optional<ReferencePoint> point;  ///< what the submission was compared with
  int points = 0, pruned = 0;           ///< reference points used, and left out by pruning
  int runs = 0, failed_runs = 0;        ///< of the submission
  double mean = 0;                      ///< olympic, of the submission; NaN if there is none
  double normalisation = 1;  ///< by which they multiply the score of a submission that is faster but allowed
  std::string sentence;      ///< what that means, in ours
};

/// `points` need no order; of several at the submission's batch the first is compared with, as they do. Failed
/// where the rules require another number of runs. Undecided where olympic scoring leaves too few runs; says how
/// many it takes.
MlperfJudgement judge_mlperf(std::vector<ReferencePoint> points, const Submission& submission,
                             const MlperfRules& rules);

/// The difference of two unpaired groups of runs, submission less reference, by Welch's t.
struct UnpairedDifference {
  double mean = 0;
  Interval interval;                  ///< 1 - alpha, two-sided
  Interval equivalence;               ///< 1 - 2 alpha
  double p_slower = 1, p_faster = 1;  ///< one-sided
};
/// Nothing if either group has fewer than two runs or one that is not finite.
std::optional<UnpairedDifference> welch_difference(std::span<const double> reference,
                                                   std::span<const double> submission, double alpha);

/// Two-sided, as everywhere else here: equivalent inside +- margin, divergent beyond, else inconclusive.
VerdictKind decide_unpaired(const UnpairedDifference& difference, double margin);

const char* name_of(MlperfVerdict verdict);  ///< "PASSED", "FAILED", "undecided"

}  // namespace lockstep
