#pragma once
// `compare --rule mlperf`: MLPerf's rule, and beside it what a two-sided test says.

#include <optional>
#include <string>
#include <vector>

#include "harness/cli/compare_outcome.h"
#include "harness/mlperf/mlperf.h"
#include "harness/mlperf/mlperf_log.h"

namespace lockstep {

/// Runs of one batch size: of logs, of a reference point, or of a cell.
struct RunGroup {
  std::string name, benchmark;
  int64_t batch = 0;
  std::vector<double> epochs, samples;  ///< empty: not counted so
  std::optional<Arm> arm;
};

/// Groups of runs from MLPerf's files: a result log, a folder of result_*.txt, an rcps_*.json. Throws
/// ConfigError: nothing there, benchmarks or batch sizes that do not go together.
std::vector<RunGroup> read_mlperf_files(const std::string& path);
/// Is it a file, or a folder with result_*.txt?
bool is_mlperf_files(const std::string& path);

/// What our own test says of the same runs.
struct OwnVerdict {
  VerdictKind verdict = VerdictKind::inconclusive;
  std::string sentence;
  std::optional<UnpairedDifference> difference;  ///< of what they took to converge
  std::optional<OutcomeComparison> outcome;      ///< of cells with paired seeds: of the metric itself
};

struct MlperfComparison {
  std::string reference, submission;
  MlperfRules rules;
  MlperfJudgement judgement;
  OwnVerdict own;
  std::vector<std::string> notes;
  std::vector<QuestionDifference> differences;
};

/// `reference`: points of one benchmark at any batch sizes. Throws ConfigError if the two do not count alike.
MlperfComparison compare_groups(const std::vector<RunGroup>& reference, const RunGroup& submission,
                                const Given& given);

std::string mlperf_text(const std::vector<MlperfComparison>& comparisons);
std::string mlperf_json(const std::vector<MlperfComparison>& comparisons);

}  // namespace lockstep
