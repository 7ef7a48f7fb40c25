#pragma once
// From series to standardised pairs of context and action chunk.

#include <span>
#include <vector>

#include "harness/data/dataset.h"
#include "harness/plan/pairs.h"

namespace lockstep {

/// Indices of the `held_out` of `series` series that are kept back: the last of each of `held_out` even
/// blocks, (k + 1) * series / held_out - 1. Archives list series class by class, so every class loses its
/// share.
std::vector<int> holdout_indices(int series, int held_out);

/// Mean and standard deviation (divided by n) of every channel; a constant channel has a standard deviation
/// of 1.
struct ChannelScale {
  std::vector<double> mean, sd;
};

/// In double and in two passes, over all steps of the chosen series.
ChannelScale channel_scale(const SeriesSet& set, std::span<const int> chosen);

/// Which part of the data windows belong to; a part of the key of each context's length.
enum class WindowPart { train, holdout, test };

/// Pairs of the chosen series in order: starts 0, stride, 2 * stride, … while a context and an action chunk
/// fit. Pair i keeps the last keyed_context_length(config, part, i) steps of its context; the steps before
/// have mask 0, value 0.
Windows make_windows(const SeriesSet& set, std::span<const int> chosen, const ChannelScale& scale,
                     const DataConfig& config, WindowPart part);

/// In [min_context, context_steps], by a hash of the part and the pair's index.
int keyed_context_length(const DataConfig& config, WindowPart part, int64_t pair);

}  // namespace lockstep
