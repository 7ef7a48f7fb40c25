#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/evidence/run_evidence.h"

// The simple gradient noise scale of a data-parallel run, from what its traces hold anyway: the norms of the
// ranks' own gradients against that of the reduced one.

namespace lockstep {

/// What one step says. A gradient over n of P rows has |G|^2 + S (1 / n - 1 / P) as the mean of its squared
/// norm, where G is the gradient over all P.
struct NoiseStep {
  int64_t step = 0;
  double small_squared = 0;  ///< squared norm of a rank's gradient of its own rows, mean over ranks
  double big_squared = 0;    ///< that of the reduced gradient
  double per_small = 0;      ///< 1 / rows, mean over ranks: 1 / B_small where all ranks have equally many
  double per_big = 0;        ///< 1 / B_big, rows of all ranks
  double per_all = 0;        ///< 1 / rows of the data that steps draw from without replacement; 0: unknown
};

/// Averages numerator and denominator of the unbiased forms over the steps, and only then divides:
/// |G|^2 = (B_big |G_big|^2 - B_small |G_small|^2) / (B_big - B_small),
/// S = (|G_small|^2 - |G_big|^2) / (1 / B_small - 1 / B_big) (McCandlish et al. 2018, appendix A.1), and
/// adds S / P to |G|^2, which that paper does not need because its data are unlimited. The 95 % interval is Fieller's, by
/// Student's t over blocks of consecutive steps; it reaches to infinity where |G|^2 may be 0. The caller fills in the
/// batches and the caveat. Nothing if there is no step with a gradient.
std::optional<NoiseScale> estimate_noise_scale(std::span<const NoiseStep> steps);

/// Why the theory behind the noise scale does not hold for the config, or how far it does, its trainer's
/// reasons first; empty where each row's loss and draws are its own.
std::string noise_caveat(const RunConfig& config);

/// The noise scale of a free run. Nothing for one rank, for traces without norms of gradients (trace: off),
/// for planted faults, and where the rows that count are not in the trace, as the trainer says. Throws
/// TraceError.
std::optional<NoiseScale> read_noise_scale(const RunConfig& config, const std::string& run_dir);

// How far rounding alone carries a run from another that means the same.

/// One seed, trained twice. Both traces' rank 0 kept snapshots of the same steps.
struct DriftPair {
  const RunEvidence* reference = nullptr;
  const RunEvidence* cell = nullptr;
  std::string reference_dir, cell_dir;
};

/// Distances by step; median, smallest and largest over the pairs: |p_cell - p_ref| / |p_ref| over the parameters, before
/// each step of which both runs kept a snapshot, and apart from these over those whose gradient is zero in the trainer of
/// `config`, as a share of the length of all; then of "loss" and of the primary metric the absolute difference, where both runs have the value.
/// What a pair lacks is left out. Throws TraceError.
std::vector<CurveBand> drift_of(const std::vector<DriftPair>& pairs, const RunConfig& config,
                                const std::string& primary_metric);

// From timed runs to the table of layouts: how fast, against one rank, and how much of it is communication.

/// The plan's timed runs, layout by layout: first those that share their global batch with another, then
/// those that share their rows a rank, each by number of ranks; a layout may stand in both. A run's step is
/// that of its slowest rank, in the median over its steps without the first tenth. A layout without a
/// finished run has NaN figures, and one without a timed layout of one rank in its group NaN speed-up.
/// `provenance` names the machine. Nothing if the plan times nothing.
///
///   failures  by run id, as the launcher saw them
std::optional<Timing> judge_timing(const Plan& plan, const std::string& out_dir,
                                   const std::map<std::string, Failure>& failures,
                                   const RankResultReader& read,
                                   const std::vector<std::pair<std::string, std::string>>& provenance);

}  // namespace lockstep
