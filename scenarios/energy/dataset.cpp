#include "scenarios/energy/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/hashing.h"
#include "harness/lib/data/series.h"

namespace lockstep {
namespace {

constexpr uint64_t kContextLengthKey = 0x636f6e74657874;  // "context"

}  // namespace

int keyed_context_length(const PairConfig& config, WindowPart part, int64_t pair) {
  const auto choices = static_cast<uint64_t>(config.context_steps - config.min_context + 1);
  return config.min_context + static_cast<int>(keyed(kContextLengthKey, part, pair) % choices);
}

int64_t pairs_of(int64_t steps, const PairConfig& config) {
  const int64_t spare = steps - config.context_steps - config.action_steps;
  return spare < 0 ? 0 : spare / config.stride + 1;
}

std::optional<SampleCounts> counted_pairs(const PairConfig& config) {
  if (config.source == DataSource::ts_files) return std::nullopt;
  const bool synthetic = config.source == DataSource::synthetic;
  const int64_t series = synthetic ? config.series : kBasicMotionsSeries;
  const int64_t of_each = pairs_of(synthetic ? config.series_steps : kBasicMotionsSteps, config);
  if (of_each == 0 || config.holdout_series >= series) return std::nullopt;
  return SampleCounts{(series - config.holdout_series) * of_each, config.holdout_series * of_each,
                    series * of_each};
}

std::string how_to_get_pairs(const PairConfig& config, std::string_view part) {
  std::string text = fmt::format(
      "more come with a smaller data.context_steps ({}), data.action_steps ({}) or data.stride ({})",
      config.context_steps, config.action_steps, config.stride);
  if (part == "training")
    text += fmt::format(", with a smaller data.holdout_series ({})", config.holdout_series);
  if (part == "held-out")
    text += fmt::format(", with a larger data.holdout_series ({})", config.holdout_series);
  return text + (config.source == DataSource::synthetic
                     ? fmt::format(", or with more data.series ({}) of more data.series_steps ({})",
                                   config.series, config.series_steps)
                     : ", or from files with more or longer series");
}

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

namespace {

/// A generated or windowed set beyond this is a slip of the pen, not a wish.
constexpr int64_t kMaxValues = int64_t{1} << 31;

void require_sound(const PairConfig& config) {
  std::vector<ConfigProblem> problems;
  const auto at_least = [&](int64_t value, int64_t least, const char* name) {
    if (value < least)
      problems.push_back({"", 0, 0, fmt::format("data.{} is {}; at least {}", name, value, least), ""});
  };
  at_least(config.context_steps, 1, "context_steps");
  at_least(config.action_steps, 1, "action_steps");
  at_least(config.stride, 1, "stride");
  at_least(config.holdout_series, 0, "holdout_series");
  at_least(config.min_context, 1, "min_context");
  if (config.min_context > config.context_steps) {
    problems.push_back({"", 0, 0,
                        fmt::format("data.min_context is {}; at most data.context_steps, {}",
                                    config.min_context, config.context_steps),
                        ""});
  }
  for (ConfigProblem& problem : source_problems(config)) problems.push_back(std::move(problem));
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

struct SeriesParts {
  SeriesSet train, test;
  SeriesSplit split;
  std::vector<int> tested;
  SampleCounts pairs;
  std::string hash;  ///< of the bytes that were read, or of the generator's parameters
};

/// The pairs of a part, whose series have these lengths. The context and action chunk overlap between pairs,
/// so windows can outgrow their series by far.
int64_t require_pairs(std::span<const int64_t> lengths, int channels, const PairConfig& config,
                      const char* part) {
  int64_t pairs = 0, longest = 0;
  for (const int64_t steps : lengths) {
    longest = std::max(longest, steps);
    pairs += pairs_of(steps, config);
  }
  if (pairs == 0) {
    throw ConfigError(
        fmt::format("the {} series give no pair: data.context_steps {} and data.action_steps {} do not fit "
                    "into the longest, {} steps",
                    part, config.context_steps, config.action_steps, longest));
  }
  if (pairs > kMaxValues / (int64_t{config.context_steps} + config.action_steps) / channels) {
    throw ConfigError(fmt::format(
        "{} pairs of the {} series are more than 2^31 values; use a larger data.stride", pairs, part));
  }
  return pairs;
}

int64_t require_pairs(const SeriesSet& set, std::span<const int> chosen, const PairConfig& config,
                      const char* part) {
  std::vector<int64_t> lengths;
  for (const int index : chosen) lengths.push_back(set.steps_of(static_cast<std::size_t>(index)));
  return require_pairs(lengths, set.channels, config, part);
}

/// Reads or generates the series and says which belong to what. Throws ConfigError if a part gives no pair.
SeriesParts load_parts(const PairConfig& config) {
  require_sound(config);
  SourceSeries source = load_series(config);
  SeriesParts parts;
  parts.train = std::move(source.train);
  parts.test = std::move(source.test);
  parts.hash = std::move(source.hash);
  parts.split = split_series(static_cast<int>(parts.train.series.size()), config.holdout_series);
  parts.tested.resize(parts.test.series.size());
  std::iota(parts.tested.begin(), parts.tested.end(), 0);
  const auto& [kept, held_out] = parts.split;
  parts.pairs.train = require_pairs(parts.train, kept, config, "training");
  parts.pairs.test = require_pairs(parts.test, parts.tested, config, "test");
  if (!held_out.empty()) parts.pairs.holdout = require_pairs(parts.train, held_out, config, "held-out");
  return parts;
}

/// Cuts the pairs of a part. Where blocks are correlated, what a block shares comes from other series (those
/// of `shared_part`), from which no pair is made otherwise.
std::shared_ptr<PairCutter> cutter_of(const std::shared_ptr<const SeriesSet>& set,
                                      std::span<const int> chosen, const ChannelScale& scale,
                                      const PairConfig& config, WindowPart part, int shared_part) {
  auto cutter = std::make_shared<PairCutter>(set, chosen, scale, config, part);
  if (config.source == DataSource::synthetic && config.correlation > 0) {
    PairConfig whole = config;
    whole.min_context = config.context_steps;
    const auto series = std::make_shared<const SeriesSet>(synthetic_series(config, shared_part));
    std::vector<int> all(series->series.size());
    std::iota(all.begin(), all.end(), 0);
    cutter->correlate_with(
        std::make_shared<PairCutter>(series, all, channel_scale(*series, all), whole, WindowPart::train));
  }
  return cutter;
}

}  // namespace

DataFacts inspect_pairs(const PairConfig& config) {
  if (config.source != DataSource::synthetic) {
    const SeriesParts parts = load_parts(config);
    return {parts.pairs, parts.hash};
  }
  // Generated series are all of one length: none needs to be made.
  require_sound(config);
  const SeriesSplit parts = split_series(config.series, config.holdout_series);
  const auto pairs_of_some = [&config](std::size_t series, const char* part) {
    const std::vector<int64_t> lengths(series, config.series_steps);
    return require_pairs(lengths, config.channels, config, part);
  };
  DataFacts facts{{}, hash_of_generator(config)};
  facts.samples.train = pairs_of_some(parts.kept.size(), "training");
  facts.samples.test = pairs_of_some(static_cast<std::size_t>(config.series), "test");
  if (!parts.held_out.empty()) facts.samples.holdout = pairs_of_some(parts.held_out.size(), "held-out");
  return facts;
}

Dataset load_dataset(const PairConfig& config) {
  SeriesParts parts = load_parts(config);
  const ChannelScale scale = channel_scale(parts.train, parts.split.kept);
  const int channels = parts.train.channels;
  const auto train_set = std::make_shared<const SeriesSet>(std::move(parts.train));
  const auto test_set = std::make_shared<const SeriesSet>(std::move(parts.test));
  Dataset dataset;
  dataset.hash = parts.hash;
  const auto training = cutter_of(train_set, parts.split.kept, scale, config, WindowPart::train, 2);
  dataset.training_pairs = training;
  dataset.train = config.cache ? training->cut_all() : training->cut({});
  dataset.holdout =
      cutter_of(train_set, parts.split.held_out, scale, config, WindowPart::holdout, 3)->cut_all();
  dataset.test = cutter_of(test_set, parts.tested, scale, config, WindowPart::test, 4)->cut_all();
  dataset.description = fmt::format(
      "{}: {} training series, {} pairs; {} held out, {} pairs; {} test series, {} pairs; {} channels, "
      "context {}, action {}",
      title_of(config.source), parts.split.kept.size(), training->size(), parts.split.held_out.size(),
      dataset.holdout.size(), parts.tested.size(), dataset.test.size(), channels, config.context_steps,
      config.action_steps);
  return dataset;
}

}  // namespace lockstep
