#include "scenarios/energy/pair_cutter.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/hashing.h"
#include "scenarios/energy/pairs.h"

namespace lockstep {
namespace {

constexpr uint64_t kBlockKey = 0x626c6f636b;  // "block"

}  // namespace

PairCutter::PairCutter(std::shared_ptr<const SeriesSet> set, std::span<const int> chosen, ChannelScale scale,
                       const PairConfig& config, WindowPart part)
    : set_(std::move(set)),
      chosen_(chosen.begin(), chosen.end()),
      scale_(std::move(scale)),
      config_(config),
      part_(part) {
  firsts_.push_back(0);
  for (const int index : chosen_) {
    firsts_.push_back(firsts_.back() + pairs_of(set_->steps_of(static_cast<std::size_t>(index)), config_));
  }
}

void PairCutter::correlate_with(std::shared_ptr<const PairCutter> shared) { shared_ = std::move(shared); }

Windows PairCutter::cut_all() const {
  std::vector<int64_t> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return cut(all);
}

Windows PairCutter::cut(std::span<const int64_t> pairs) const {
  const auto context_steps = static_cast<std::size_t>(config_.context_steps);
  const auto action_steps = static_cast<std::size_t>(config_.action_steps);
  const auto channels = static_cast<std::size_t>(set_->channels);
  Windows windows;
  windows.context_steps = config_.context_steps;
  windows.action_steps = config_.action_steps;
  windows.channels = set_->channels;
  windows.contexts.assign(pairs.size() * context_steps * channels, 0.0f);
  windows.context_mask.assign(pairs.size() * context_steps, 0);
  windows.actions.resize(pairs.size() * action_steps * channels);
  for (std::size_t row = 0; row < pairs.size(); ++row) cut_row(pairs[row], row, windows);
  if (shared_) correlate(pairs, windows);
  return windows;
}

void PairCutter::cut_row(int64_t pair, std::size_t row, Windows& windows) const {
  LOCKSTEP_CHECK(pair >= 0 && pair < size(), "there is no such pair");
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), pair);
  const auto place = static_cast<std::size_t>(after - firsts_.begin()) - 1;
  const std::vector<float>& series = set_->series[static_cast<std::size_t>(chosen_[place])];
  const auto context_steps = static_cast<std::size_t>(config_.context_steps);
  const auto action_steps = static_cast<std::size_t>(config_.action_steps);
  const auto channels = static_cast<std::size_t>(set_->channels);
  const std::size_t start = static_cast<std::size_t>((pair - firsts_[place]) * config_.stride) * channels;
  const auto standardise = [&](std::size_t first, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t channel = i % channels;  // `first` is the begin of a time step
      out[i] = static_cast<float>((series[start + first + i] - scale_.mean[channel]) / scale_.sd[channel]);
    }
  };
  const auto kept = static_cast<std::size_t>(keyed_context_length(config_, part_, pair));
  const std::size_t cut = context_steps - kept;
  standardise(cut * channels, kept * channels, &windows.contexts[(row * context_steps + cut) * channels]);
  std::fill_n(&windows.context_mask[row * context_steps + cut], kept, uint8_t{1});
  standardise(context_steps * channels, action_steps * channels,
              &windows.actions[row * action_steps * channels]);
}

void PairCutter::correlate(std::span<const int64_t> pairs, Windows& windows) const {
  const auto of_block = static_cast<float>(std::sqrt(config_.correlation));
  const auto of_pair = static_cast<float>(std::sqrt(1.0 - config_.correlation));
  std::vector<int64_t> sources;
  for (const int64_t pair : pairs) {
    const uint64_t block = static_cast<uint64_t>(pair) / static_cast<uint64_t>(config_.block);
    sources.push_back(static_cast<int64_t>(keyed(kBlockKey, block) % static_cast<uint64_t>(shared_->size())));
  }
  const Windows shared = shared_->cut(sources);
  const auto channels = static_cast<std::size_t>(windows.channels);
  for (std::size_t i = 0; i < windows.contexts.size(); ++i) {
    if (windows.context_mask[i / channels] == 0) continue;
    windows.contexts[i] = of_block * shared.contexts[i] + of_pair * windows.contexts[i];
  }
  for (std::size_t i = 0; i < windows.actions.size(); ++i) {
    windows.actions[i] = of_block * shared.actions[i] + of_pair * windows.actions[i];
  }
}

Windows make_windows(const SeriesSet& set, std::span<const int> chosen, const ChannelScale& scale,
                     const PairConfig& config, WindowPart part) {
  // Not owned: the cutter is gone before the set.
  const std::shared_ptr<const SeriesSet> borrowed(std::shared_ptr<const SeriesSet>(), &set);
  return PairCutter(borrowed, chosen, scale, config, part).cut_all();
}

}  // namespace lockstep
