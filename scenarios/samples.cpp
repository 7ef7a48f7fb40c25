#include "scenarios/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "harness/lib/data/sampler.h"

namespace lockstep {

std::vector<int> all_of(const SeriesSet& set) {
  std::vector<int> all(set.series.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Samples of a part whose series have these lengths. They may overlap, and so outgrow their series by far.
static int64_t require_samples(std::span<const int64_t> lengths, int channels, const SampleCut& cut, const char* part) {
  constexpr int64_t kMaxValues = int64_t{1} << 31;
  int64_t samples = 0, longest = 0;
  for (const int64_t steps : lengths) {
    longest = std::max(longest, steps);
    samples += cut.samples_of(steps);
  }
  if (samples == 0) {
    throw ConfigError(fmt::format("the {} series give no {}: {} into the longest, {} steps", part,
                                  cut.samples.substr(0, cut.samples.size() - 1), cut.unfit, longest));
  }
  if (samples > kMaxValues / cut.sample_steps / channels) {
    throw ConfigError(fmt::format("{} {} of the {} series are more than 2^31 values; use a larger data.stride", samples,
                                  cut.samples, part));
  }
  return samples;
}

SeriesParts parts_of(SourceSeries source, const SampleCut& cut) {
  SeriesParts parts{std::move(source), {}, {}, {}};
  const SeriesSet &train = parts.source.train, &test = parts.source.test;
  parts.split = split_series(static_cast<int>(train.series.size()), cut.holdout_series);
  parts.tested = all_of(test);
  const auto count = [&](const SeriesSet& set, const std::vector<int>& chosen, const char* part) {
    std::vector<int64_t> lengths;
    for (const int index : chosen) lengths.push_back(set.steps_of(static_cast<std::size_t>(index)));
    return require_samples(lengths, set.channels, cut, part);
  };
  parts.counts.train = count(train, parts.split.kept, "training");
  parts.counts.test = count(test, parts.tested, "test");
  if (!parts.split.held_out.empty()) parts.counts.holdout = count(train, parts.split.held_out, "held-out");
  return parts;
}

std::string SeriesParts::described(DataSource from, const SampleCut& cut) const {
  return fmt::format("{}: {} training series, {} {}; {} held out, {} {}; {} test series, {} {}; {} channels",
                     title_of(from), split.kept.size(), counts.train, cut.samples, split.held_out.size(),
                     counts.holdout, cut.samples, tested.size(), counts.test, cut.samples, source.train.channels);
}

DataFacts facts_of_generator(const DataConfig& config, const SampleCut& cut) {
  require_generable(config);
  const SeriesSplit split = split_series(config.series, cut.holdout_series);
  const auto count = [&](std::size_t series, const char* part) {
    return require_samples(std::vector<int64_t>(series, config.series_steps), config.channels, cut, part);
  };
  DataFacts facts{{}, hash_of_generator(config)};
  facts.samples.train = count(split.kept.size(), "training");
  facts.samples.test = count(static_cast<std::size_t>(config.series), "test");
  if (!split.held_out.empty()) facts.samples.holdout = count(split.held_out.size(), "held-out");
  return facts;
}

std::optional<SeriesSize> size_of_parts(const DataConfig& config) {
  if (config.source == DataSource::ts_files) return std::nullopt;
  if (config.source == DataSource::synthetic) return SeriesSize{config.series, config.series_steps};
  return SeriesSize{kBasicMotionsSeries, kBasicMotionsSteps};
}

std::optional<SampleCounts> counted_samples(const DataConfig& config, const SampleCut& cut) {
  const std::optional<SeriesSize> size = size_of_parts(config);
  const int64_t of_each = size ? cut.samples_of(size->steps) : 0, held_out = cut.holdout_series;
  if (of_each == 0 || held_out >= size->series) return std::nullopt;
  return SampleCounts{(size->series - held_out) * of_each, held_out * of_each, size->series * of_each};
}

std::string how_to_cut_more(const DataConfig& config, const SampleCut& cut, const std::string& smaller,
                            std::string_view part) {
  std::string text = "more come with a smaller " + smaller;
  if (part == "training") text += fmt::format(", with a smaller data.holdout_series ({})", cut.holdout_series);
  if (part == "held-out") text += fmt::format(", with a larger data.holdout_series ({})", cut.holdout_series);
  return text + (config.source == DataSource::synthetic
                     ? fmt::format(", or with more data.series ({}) of more data.series_steps ({})", config.series,
                                   config.series_steps)
                     : ", or from files with more or longer series");
}

KeyProblem none_left(const SeriesSize& size, const SampleCut& cut) {
  return {"data.holdout_series",
          fmt::format("{} of {} series held back leave none to train on", cut.holdout_series, size.series)};
}

std::vector<PartitionedPlace> partitioned_places(const RunConfig& config, int64_t rows) {
  const std::vector<int> owner = owners_of_rows(rows, config.oracle_world, config.rows, config.data.block);
  std::vector<int64_t> rows_of(static_cast<std::size_t>(config.oracle_world), 0), next(rows_of.size(), 0);
  for (const int rank : owner) ++rows_of[static_cast<std::size_t>(rank)];
  std::vector<PartitionedPlace> places;
  for (const int rank : owner) {
    const int64_t row = next[static_cast<std::size_t>(rank)]++;
    // The micro-step m whose rows [m * all / micro_steps, (m + 1) * all / micro_steps) hold the row.
    places.push_back({rank, ((row + 1) * config.accumulation - 1) / rows_of[static_cast<std::size_t>(rank)]});
  }
  return places;
}

}  // namespace lockstep
