#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/config/run_config.h"

// Time series: read from `.ts` files, or generated.

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

/// A data file's bytes. Throws ConfigError if it is missing or unreadable.
std::string read_data_file(const std::string& path);

// What every trainer does with the series that it reads: keeps some back, and standardises channels.

/// Indices of the `held_out` of `series` series that are kept back: the last of each of `held_out` even
/// blocks, (k + 1) * series / held_out - 1. Archives list series class by class, so every class loses its
/// share.
std::vector<int> holdout_indices(int series, int held_out);

/// Which of the training series are trained on, and which are kept back.
struct SeriesSplit {
  std::vector<int> kept, held_out;
};

/// Throws ConfigError if none is left to train on.
SeriesSplit split_series(int series, int held_out);

/// Mean and standard deviation (divided by n) of every channel; a constant channel has a standard deviation
/// of 1.
struct ChannelScale {
  std::vector<double> mean, sd;
};

/// In double and in two passes, over all steps of the chosen series.
ChannelScale channel_scale(const SeriesSet& set, std::span<const int> chosen);

// Where a run's series come from: BasicMotions, other `.ts` files, or the generator.

// Fixed by the archive's files: so many series of so many steps in each part.
inline constexpr int kBasicMotionsSeries = 40;
inline constexpr int kBasicMotionsSteps = 100;

/// Training and test series as they were read, with labels if their files have classes.
struct SourceSeries {
  SeriesSet train, test;
  std::string train_file, test_file;  ///< empty: generated
  std::string hash;                   ///< hex, of the very bytes that were read, or of the generator's parameters
};

/// Reads or generates. Throws ConfigError: a file that is missing or corrupt, parts of different dimensions.
SourceSeries load_series(const DataConfig& config);

/// SourceSeries::hash of generated series, without generating them.
std::string hash_of_generator(const DataConfig& config);

/// Throws ConfigError if generated series would be too many values.
void require_generable(const DataConfig& config);

/// "BasicMotions".
const char* title_of(DataSource source);

// Where the files of BasicMotions lie.

/// Folder of the BasicMotions files: $LOCKSTEP_DATA, else that of the running program.
std::string data_folder();

/// Where a program in that folder looks for them: in its prefix's share/lockstep/data if it is installed,
/// else in the first `.lockstep/data`, where ci/bootstrap keeps them, at or above the folder; if there is
/// none, the place beside the program where it would be looked for first.
std::string data_folder_of(const std::string& program_folder);

/// The first existing `.lockstep/data` at or above `folder`, or empty.
std::string find_data_folder(const std::string& folder);

}  // namespace lockstep
