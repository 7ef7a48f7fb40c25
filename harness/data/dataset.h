#pragma once
// Series, windows and batches without LibTorch: what the trainer turns into tensors.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/plan/pairs.h"
#include "harness/plan/run_config.h"

namespace lockstep {

/// Time series of equal channel count; values are [series][time][channel], channel fastest.
struct SeriesSet {
  int channels = 0;
  std::vector<std::vector<float>> series;  ///< each: steps * channels
  std::vector<std::string> labels;         ///< class of each series, or empty
  int steps_of(std::size_t i) const { return static_cast<int>(series[i].size()) / channels; }
};

/// Reads the `.ts` format of the time-series archives (multivariate, no time stamps, `?` refused).
/// Throws ConfigError with file:line:column (bytes, from 1) and what is wrong, for the first 20 problems at
/// once.
SeriesSet parse_ts(const std::string& text, const std::string& file_name);

/// Sums of keyed sinusoids and noise; the same for the same (data.seed, part) on every machine.
SeriesSet synthetic_series(const DataConfig& config, int part);  ///< part 0: train, 1: test

/// Context and action chunk of one pair.
struct Windows {
  int context_steps = 0, action_steps = 0, channels = 0;
  /// [pairs][context_steps][channels], standardised by the training part; front-padded with 0.
  std::vector<float> contexts;
  std::vector<uint8_t> context_mask;  ///< [pairs][context_steps], 1 = a real step
  std::vector<float> actions;         ///< [pairs][action_steps][channels]
  std::size_t size() const { return actions.size() / (static_cast<std::size_t>(action_steps) * channels); }
};

class PairCutter;

/// Training, held-out (same recordings' part, other series) and test pairs of a run. Sample id = index of a
/// training pair.
/// What a planner asks of the data.
struct DataFacts {
  PairCounts pairs;
  std::string hash;  ///< Dataset::hash
};

struct Dataset {
  Windows train;  ///< empty, but with its shape, if data.cache is false
  Windows holdout, test;
  std::shared_ptr<const PairCutter> training_pairs;  ///< cuts any training pair anew, the same as in `train`
  std::string description;                           ///< "BasicMotions: 36 training series, 1404 pairs, …"
  std::string hash;  ///< hex, of the very bytes that were read, or of the generator's parameters
};

/// Throws ConfigError (missing or corrupt file, too few pairs).
Dataset load_dataset(const DataConfig& config);

/// The pairs that load_dataset would give and Dataset::hash, without cutting a pair; files are read for it.
/// Throws ConfigError as it does.
DataFacts inspect_data(const DataConfig& config);

/// Folder of the BasicMotions files: $LOCKSTEP_DATA, else that of the running program.
std::string data_folder();

/// Where a program in that folder looks for them: in its prefix's share/lockstep/data if it is installed,
/// else in the first `.lockstep/data`, where ci/bootstrap keeps them, at or above the folder; if there is
/// none, the place beside the program where it would be looked for first.
std::string data_folder_of(const std::string& program_folder);

/// The first existing `.lockstep/data` at or above `folder`, or empty.
std::string find_data_folder(const std::string& folder);

/// A data file's bytes. Throws ConfigError if it is missing or unreadable.
std::string read_data_file(const std::string& path);

}  // namespace lockstep
