#pragma once
// A matrix's runs in MLPerf's terms: what each took to reach the target, as figures and as files in their formats: result logs
// (":::MLLOG {...}" lines) and reference points (rcps_*.json).

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/files.h"
#include "harness/judge/evidence/arms.h"

namespace lockstep {

/// The figure of a run that never reached its target. Their log readers write 1e9; here no number is
/// invented.
inline constexpr double kNeverConverged = std::numeric_limits<double>::infinity();

/// A reference point as their JSON holds it; one of the two lists may be empty.
struct ReferenceRecord {
  std::string name, benchmark;
  int64_t batch = 0;
  std::vector<double> epochs, samples;
  std::vector<std::pair<std::string, std::string>> hyperparameters;  ///< values as JSON
};

std::string reference_points_json(const std::vector<ReferenceRecord>& records);

/// What a run's log is written from.
struct MllogSource {
  std::string benchmark, platform, optimizer, metric;
  int64_t seed = 0, batch = 0, accumulation = 1, steps = 0;
  double learning_rate = 0;
  int64_t warmup_steps = 0;
  double target = 0;
  bool higher_is_better = true;
  int64_t train_samples = 0, eval_samples = 0;  ///< 0: unknown, and then epochs are too
  int64_t started_ms = 0;                       ///< since 1970
  double seconds = 0;                           ///< of training
  bool finished = true;
  std::vector<std::pair<int64_t, double>> evaluations;  ///< step, metric
};

/// Their format, up to the first evaluation that reaches the target. Between start and end the times are
/// spread evenly over the steps: runs keep none.
std::string mllog_text(const MllogSource& source);

/// The metric whose target runs are timed to.
struct TimedMetric {
  std::string metric;
  double target = 0;
  bool higher_is_better = true;
};

/// `given`, else what the arm's matrix declares. Throws ConfigError if there is no target or if neither
/// direction of the metric is better.
TimedMetric timed_metric(const Arm& arm, const Given& given);

/// Samples until the first evaluation that reaches the target, by seed; kNeverConverged where none does, and
/// of a run that failed.
std::vector<double> samples_to_target(const Arm& arm, const TimedMetric& timed);

/// Writes OUT/mllog/<cell>/result_<seed>.txt of every cell and reference, and beside them
/// rcps_<benchmark>.json where all runs converged. Returns the files' paths. Throws ConfigError,
/// MachineError.
std::vector<std::string> write_mllog(const std::string& out_dir, const Given& given,
                                     Files& files = real_files());

}  // namespace lockstep
