#pragma once
// Runs of one batch size, wherever they come from: MLPerf's files, or cells of our own.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/evidence/same_question.h"

namespace lockstep {

/// Runs of one batch size: of logs, of a reference point, or of a cell.
struct RunGroup {
  std::string name;
  std::string benchmark;  ///< by its name in MLPerf's rules, whatever the file calls it
  int64_t batch = 0;
  std::vector<double> epochs, samples;  ///< empty: not counted so
  std::optional<Arm> arm;
  std::string note;  ///< what was made of another name of the benchmark; empty: nothing
};

/// Groups of runs from MLPerf's files: a result log, a folder of result_*.txt, an rcps_*.json. Throws
/// ConfigError: nothing there, benchmarks or batch sizes that do not go together.
std::vector<RunGroup> read_mlperf_files(const std::string& path);
/// Is it a file, or a folder with result_*.txt?
bool is_mlperf_files(const std::string& path);

/// The runs of a cell, counted in samples to the metric's target.
RunGroup group_of_arm(const Arm& arm, const Given& given);

/// The groups of MLPerf's files, or of the cells that the word names (read_arms).
std::vector<RunGroup> groups_of(const std::string& word, const Given& given);

}  // namespace lockstep
