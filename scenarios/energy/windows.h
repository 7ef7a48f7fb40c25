#pragma once
// From series to standardised pairs of context and action chunk.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/lib/data/series.h"
#include "harness/lib/data/series_parts.h"
#include "scenarios/energy/config.h"

namespace lockstep {

/// Context and action chunk of one pair.
struct Windows {
  int context_steps = 0, action_steps = 0, channels = 0;
  /// [pairs][context_steps][channels], standardised by the training part; front-padded with 0.
  std::vector<float> contexts;
  std::vector<uint8_t> context_mask;  ///< [pairs][context_steps], 1 = a real step
  std::vector<float> actions;         ///< [pairs][action_steps][channels]
  std::size_t size() const { return actions.size() / (static_cast<std::size_t>(action_steps) * channels); }
};

/// Which part of the data windows belong to; a part of the key of each context's length.
enum class WindowPart { train, holdout, test };

/// In [min_context, context_steps], by a hash of the part and the pair's index.
int keyed_context_length(const PairConfig& config, WindowPart part, int64_t pair);

}  // namespace lockstep
