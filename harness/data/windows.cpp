#include "harness/data/windows.h"

#include <algorithm>
#include <cmath>

#include "harness/data/hashing.h"
#include "harness/plan/errors.h"

namespace lockstep {
namespace {

constexpr uint64_t kContextLengthKey = 0x636f6e74657874;  // "context"

}  // namespace

std::vector<int> holdout_indices(int series, int held_out) {
  LOCKSTEP_CHECK(held_out >= 0 && held_out <= series, "no more series can be held out than there are");
  std::vector<int> indices;
  for (int64_t k = 0; k < held_out; ++k) {
    indices.push_back(static_cast<int>((k + 1) * series / held_out - 1));
  }
  return indices;
}

ChannelScale channel_scale(const SeriesSet& set, std::span<const int> chosen) {
  const auto channels = static_cast<std::size_t>(set.channels);
  ChannelScale scale{std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0)};
  for (std::size_t channel = 0; channel < channels; ++channel) {
    // Every pass visits the channel's values in the same order, so that the sums have one meaning.
    const auto visit = [&](auto&& body) {
      for (const int index : chosen) {
        const std::vector<float>& series = set.series[static_cast<std::size_t>(index)];
        for (std::size_t i = channel; i < series.size(); i += channels) body(series[i]);
      }
    };
    double sum = 0;
    int64_t count = 0;
    float low = INFINITY, high = -INFINITY;
    visit([&](float value) {
      sum += value;
      ++count;
      low = std::min(low, value);
      high = std::max(high, value);
    });
    if (count == 0) continue;
    const double mean = sum / static_cast<double>(count);
    scale.mean[channel] = mean;
    // Rounding gives even a constant channel a tiny deviation: dividing by that would blow rounding up to
    // data.
    if (low == high) {
      scale.mean[channel] = low;
      continue;
    }
    double squares = 0;
    visit([&](float value) { squares += (value - mean) * (value - mean); });
    scale.sd[channel] = std::sqrt(squares / static_cast<double>(count));
  }
  return scale;
}

int64_t pairs_of(int64_t steps, const DataConfig& config) {
  const int64_t spare = steps - config.context_steps - config.action_steps;
  return spare < 0 ? 0 : spare / config.stride + 1;
}

int keyed_context_length(const DataConfig& config, WindowPart part, int64_t pair) {
  const auto choices = static_cast<uint64_t>(config.context_steps - config.min_context + 1);
  return config.min_context + static_cast<int>(keyed(kContextLengthKey, part, pair) % choices);
}

Windows make_windows(const SeriesSet& set, std::span<const int> chosen, const ChannelScale& scale,
                     const DataConfig& config, WindowPart part) {
  const auto context_steps = static_cast<std::size_t>(config.context_steps);
  const auto action_steps = static_cast<std::size_t>(config.action_steps);
  const auto channels = static_cast<std::size_t>(set.channels);
  Windows windows;
  windows.context_steps = config.context_steps;
  windows.action_steps = config.action_steps;
  windows.channels = set.channels;

  std::size_t pairs = 0;
  for (const int index : chosen) {
    pairs += static_cast<std::size_t>(pairs_of(set.steps_of(static_cast<std::size_t>(index)), config));
  }
  windows.contexts.assign(pairs * context_steps * channels, 0.0f);
  windows.context_mask.assign(pairs * context_steps, 0);
  windows.actions.resize(pairs * action_steps * channels);

  std::size_t pair = 0;
  std::vector<float> standardised;
  for (const int index : chosen) {
    const std::vector<float>& series = set.series[static_cast<std::size_t>(index)];
    standardised.resize(series.size());
    for (std::size_t i = 0; i < series.size(); ++i) {
      const std::size_t channel = i % channels;
      standardised[i] = static_cast<float>((series[i] - scale.mean[channel]) / scale.sd[channel]);
    }
    const int64_t starts = pairs_of(set.steps_of(static_cast<std::size_t>(index)), config);
    for (int64_t k = 0; k < starts; ++k, ++pair) {
      const float* start = standardised.data() + static_cast<std::size_t>(k * config.stride) * channels;
      const auto kept =
          static_cast<std::size_t>(keyed_context_length(config, part, static_cast<int64_t>(pair)));
      const std::size_t cut = context_steps - kept;
      std::copy(
          start + cut * channels, start + context_steps * channels,
          windows.contexts.begin() + static_cast<std::ptrdiff_t>((pair * context_steps + cut) * channels));
      std::fill_n(windows.context_mask.begin() + static_cast<std::ptrdiff_t>(pair * context_steps + cut),
                  kept, uint8_t{1});
      std::copy_n(start + context_steps * channels, action_steps * channels,
                  windows.actions.begin() + static_cast<std::ptrdiff_t>(pair * action_steps * channels));
    }
  }
  return windows;
}

void correlate_blocks(Windows& windows, const Windows& shared, const DataConfig& config) {
  constexpr uint64_t kBlockKey = 0x626c6f636b;  // "block"
  const auto of_block = static_cast<float>(std::sqrt(config.correlation));
  const auto of_pair = static_cast<float>(std::sqrt(1.0 - config.correlation));
  const auto channels = static_cast<std::size_t>(windows.channels);
  const std::size_t context = static_cast<std::size_t>(windows.context_steps) * channels;
  const std::size_t action = static_cast<std::size_t>(windows.action_steps) * channels;
  for (std::size_t pair = 0; pair < windows.size(); ++pair) {
    const std::size_t block = pair / static_cast<std::size_t>(config.block);
    const std::size_t source = keyed(kBlockKey, block) % shared.size();
    for (std::size_t i = 0; i < context; ++i) {
      if (windows.context_mask[(pair * context + i) / channels] == 0) continue;
      float& value = windows.contexts[pair * context + i];
      value = of_block * shared.contexts[source * context + i] + of_pair * value;
    }
    for (std::size_t i = 0; i < action; ++i) {
      float& value = windows.actions[pair * action + i];
      value = of_block * shared.actions[source * action + i] + of_pair * value;
    }
  }
}

}  // namespace lockstep
