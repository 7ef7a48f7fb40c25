#include "harness/lib/data/series_source.h"
#include "scenarios/energy/dataset.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "harness/base/errors.h"
#include "scenarios/energy/pair_cutter.h"
#include "scenarios/energy/pairs.h"
#include "scenarios/energy/windows.h"

namespace lockstep {
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
