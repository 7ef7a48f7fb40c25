#pragma once
// Time series: read from `.ts` files, or generated.

#include <string>
#include <vector>

#include "harness/verdict/config/run_config.h"

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

}  // namespace lockstep
