#pragma once
// What every trainer does with the series that it reads: keeps some back, and standardises channels.

#include <span>
#include <vector>

#include "harness/lib/data/series.h"

namespace lockstep {

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

}  // namespace lockstep
