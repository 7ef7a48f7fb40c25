#pragma once
// MLPerf's files: result logs (":::MLLOG {...}" lines) and reference points (rcps_*.json), read and written.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/stats/mlperf/mlperf.h"

namespace lockstep {

struct MllogEvaluation {
  double value = 0;
  std::optional<double> epochs, samples;  ///< epoch_num and samples_count, as far as it was logged
  std::string metric;                     ///< where a benchmark has several
  int line = 0;
};

/// One result log.
struct MllogRun {
  std::string file;
  std::string benchmark;
  int64_t batch = 0;
  std::optional<int64_t> seed;
  std::vector<MllogEvaluation> evaluations;
  bool stopped = false;  ///< it has a run_stop
  bool success = false;  ///< whose status is success
};

/// Throws ConfigError with every problem, by file and line: lines that are cut or not in their format, keys
/// that are missing. A log without run_stop is no mistake: its run did not end, and so did not converge.
MllogRun parse_mllog(const std::string& text, const std::string& file_name);

/// What a run took to converge, in samples or epochs; kNeverConverged if it did not. Throws ConfigError if
/// the log does not say.
double convergence_of(const MllogRun& run, bool samples);

/// Do its evaluations say how many samples they came after?
bool counts_samples(const MllogRun& run);

/// A reference point as their JSON holds it; one of the two lists may be empty.
struct ReferenceRecord {
  std::string name, benchmark;
  int64_t batch = 0;
  std::vector<double> epochs, samples;
  std::vector<std::pair<std::string, std::string>> hyperparameters;  ///< values as JSON
};

/// In the file's order. Throws ConfigError naming file and record.
std::vector<ReferenceRecord> parse_reference_points(const std::string& text, const std::string& file_name);
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

/// Step of the first evaluation that reaches the target; nothing if none does.
std::optional<int64_t> step_of_target(const std::vector<std::pair<int64_t, double>>& evaluations,
                                      double target, bool higher_is_better);

}  // namespace lockstep
