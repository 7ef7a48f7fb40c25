#pragma once
// A matrix's runs in MLPerf's terms: what each took to reach the target, as figures and as their files.

#include <optional>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/verdict/evidence/same_question.h"
#include "harness/verdict/stats/mlperf/mlperf_log.h"

namespace lockstep {

/// The metric whose target runs are timed to.
struct TimedMetric {
  std::string metric;
  double target = 0;
  bool higher_is_better = true;
};

/// `given`, else what the arm's matrix declares. Throws ConfigError if there is no target or if neither
/// direction of the metric is better.
TimedMetric timed_metric(const Arm& arm, const Given& given);

/// "lockstep_energy": the trainer under a name that is none of MLPerf's.
std::string benchmark_of(const RunConfig& config);

/// Samples until the first evaluation that reaches the target, by seed; kNeverConverged where none does, and
/// of a run that failed.
std::vector<double> samples_to_target(const Arm& arm, const TimedMetric& timed);

/// Writes OUT/mllog/<cell>/result_<seed>.txt of every cell and reference, and beside them
/// rcps_<benchmark>.json where all runs converged. Returns the files' paths. Throws ConfigError,
/// MachineError.
std::vector<std::string> write_mllog(const std::string& out_dir, const Given& given,
                                     Files& files = real_files());

}  // namespace lockstep
