#include "harness/lib/data/series_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/base/errors.h"

namespace lockstep {

std::vector<int> holdout_indices(int series, int held_out) {
  LOCKSTEP_CHECK(held_out >= 0 && held_out <= series, "no more series can be held out than there are");
  std::vector<int> indices;
  for (int64_t k = 0; k < held_out; ++k) {
    indices.push_back(static_cast<int>((k + 1) * series / held_out - 1));
  }
  return indices;
}

SeriesSplit split_series(int series, int held_out) {
  if (held_out >= series) {
    throw ConfigError(
        fmt::format("data.holdout_series {} leaves none of the {} training series", held_out, series));
  }
  SeriesSplit parts{{}, holdout_indices(series, held_out)};
  for (int i = 0; i < series; ++i) {
    if (!std::binary_search(parts.held_out.begin(), parts.held_out.end(), i)) parts.kept.push_back(i);
  }
  return parts;
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

}  // namespace lockstep
