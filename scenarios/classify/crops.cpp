#include "scenarios/classify/crops.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/hashing.h"
#include "harness/base/text.h"
#include "harness/lib/data/series.h"
#include "scenarios/classify/config.h"

namespace lockstep {
namespace {

constexpr uint64_t kStepsKey = 0x7374657073;   // "steps"
constexpr uint64_t kStartKey = 0x7374617274;   // "start"
constexpr int64_t kMaxValues = int64_t{1} << 31;
constexpr int kBasicMotionsClasses = 4, kSyntheticClasses = 4;

void require_sound_crops(const CropConfig& crops) {
  if (crops.min_steps > crops.max_steps) {
    throw ConfigError(fmt::format("data.min_steps is {}; at most data.max_steps, {}", crops.min_steps,
                                  crops.max_steps));
  }
}

/// Crops of a part whose series have these lengths.
int64_t require_crops(std::span<const int64_t> lengths, int channels, const CropConfig& config,
                      const char* part) {
  int64_t crops = 0, longest = 0;
  for (const int64_t steps : lengths) {
    longest = std::max(longest, steps);
    crops += crops_of(steps, config.stride, config.min_steps, config.max_steps);
  }
  if (crops == 0) {
    throw ConfigError(
        fmt::format("the {} series give no row: data.min_steps {} does not fit into the longest, {} steps",
                    part, config.min_steps, longest));
  }
  if (crops > kMaxValues / config.max_steps / channels) {
    throw ConfigError(fmt::format(
        "{} rows of the {} series are more than 2^31 values; use a larger data.stride", crops, part));
  }
  return crops;
}

std::vector<int64_t> lengths_of(const SeriesSet& set, std::span<const int> chosen) {
  std::vector<int64_t> lengths;
  for (const int index : chosen) lengths.push_back(set.steps_of(static_cast<std::size_t>(index)));
  return lengths;
}

std::vector<int> all_of(const SeriesSet& set) {
  std::vector<int> all(set.series.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// What is read, and what of it belongs where.
struct Parts {
  SourceSeries series;
  SeriesSplit split;
  std::vector<int> tested;
  std::vector<std::string> classes;
  SampleCounts counts;
};

std::vector<std::string> require_classes(const SourceSeries& series) {
  const auto refuse = [](const std::string& file, const std::string& message) {
    throw ConfigError({ConfigProblem{file, 0, 0, message, ""}});
  };
  for (const SeriesSet* set : {&series.train, &series.test}) {
    if (set->labels.size() == set->series.size()) continue;
    refuse(set == &series.train ? series.train_file : series.test_file,
           "its series have no classes: the trainer classify needs @classLabel true and a class behind each series");
  }
  const std::set<std::string> known(series.train.labels.begin(), series.train.labels.end());
  if (known.size() < 2) refuse(series.train_file, "all its series have one class: there is nothing to classify");
  for (const std::string& label : series.test.labels) {
    if (known.contains(label)) continue;
    refuse(series.test_file,
           fmt::format("has the class {}, which no series of {} has", in_quotes(label), series.train_file));
  }
  return {known.begin(), known.end()};
}

Parts load_parts(const RunConfig& config) {
  const CropConfig& crops = classify(config).data;
  require_sound_crops(crops);
  Parts parts;
  parts.series = load_series(config.data);
  parts.classes = require_classes(parts.series);
  parts.split = split_series(static_cast<int>(parts.series.train.series.size()), crops.holdout_series);
  parts.tested = all_of(parts.series.test);
  const auto count = [&](const SeriesSet& set, std::span<const int> chosen, const char* part) {
    return require_crops(lengths_of(set, chosen), set.channels, crops, part);
  };
  parts.counts.train = count(parts.series.train, parts.split.kept, "training");
  parts.counts.test = count(parts.series.test, parts.tested, "test");
  if (!parts.split.held_out.empty()) {
    parts.counts.holdout = count(parts.series.train, parts.split.held_out, "held-out");
  }
  return parts;
}

/// Cuts crops of one part, one after the other.
class Cutter {
 public:
  Cutter(const RunConfig& config, const ChannelScale& scale, const std::vector<std::string>& classes)
      : config_(config), own_(classify(config).data), scale_(scale), classes_(classes) {}

  Crops cut(const SeriesSet& set, std::span<const int> chosen, CropPart part) const {
    Crops crops;
    crops.steps = own_.max_steps;
    crops.channels = set.channels;
    for (const int index : chosen) {
      const auto at = static_cast<std::size_t>(index);
      const auto label = std::lower_bound(classes_.begin(), classes_.end(), set.labels[at]);
      const int64_t count =
          crops_of(set.steps_of(at), own_.stride, own_.min_steps, own_.max_steps);
      for (int64_t place = 0; place < count; ++place) {
        crops.labels.push_back(label - classes_.begin());
        crops.series.push_back(index);
        add_values(set.series[at], place, part, crops);
      }
    }
    return crops;
  }

 private:
  void add_values(const std::vector<float>& series, int64_t place, CropPart part, Crops& crops) const {
    const auto channels = static_cast<std::size_t>(crops.channels);
    const auto all_steps = static_cast<int64_t>(series.size() / channels);
    const int64_t crop = crops.size() - 1;
    const int64_t steps = std::min<int64_t>(keyed_crop_steps(config_, part, crop), all_steps);
    const auto shift =
        static_cast<int64_t>(keyed(kStartKey, part, crop) % static_cast<uint64_t>(own_.stride));
    const int64_t start = std::min(place * own_.stride + shift, all_steps - steps);
    crops.valid_steps.push_back(steps);
    const auto first = static_cast<std::size_t>(start) * channels;
    for (std::size_t i = 0; i < static_cast<std::size_t>(steps) * channels; ++i) {
      const std::size_t channel = i % channels;
      crops.values.push_back(
          static_cast<float>((series[first + i] - scale_.mean[channel]) / scale_.sd[channel]));
    }
    crops.values.resize(static_cast<std::size_t>(crops.size()) * static_cast<std::size_t>(crops.steps) * channels,
                        0.0F);
  }

  const RunConfig& config_;
  const CropConfig& own_;
  const ChannelScale& scale_;
  const std::vector<std::string>& classes_;
};

}  // namespace

int64_t crops_of(int64_t steps, int stride, int min_steps, int max_steps) {
  return steps < min_steps ? 0 : std::max<int64_t>(steps - max_steps, 0) / stride + 1;
}

int keyed_crop_steps(const RunConfig& config, CropPart part, int64_t crop) {
  const CropConfig& own = classify(config).data;
  const auto choices = static_cast<uint64_t>(own.max_steps - own.min_steps + 1);
  return own.min_steps + static_cast<int>(keyed(kStepsKey, part, crop) % choices);
}

CropDataset load_crops(const RunConfig& config) {
  const Parts parts = load_parts(config);
  const ChannelScale scale = channel_scale(parts.series.train, parts.split.kept);
  const Cutter cutter(config, scale, parts.classes);
  CropDataset dataset;
  dataset.classes = parts.classes;
  dataset.hash = parts.series.hash;
  dataset.train = cutter.cut(parts.series.train, parts.split.kept, CropPart::train);
  dataset.holdout = cutter.cut(parts.series.train, parts.split.held_out, CropPart::holdout);
  dataset.test = cutter.cut(parts.series.test, parts.tested, CropPart::test);
  dataset.description = fmt::format(
      "{}: {} training series, {} rows; {} held out, {} rows; {} test series, {} rows; {} channels, {} classes",
      title_of(config.data.source), parts.split.kept.size(), dataset.train.size(), parts.split.held_out.size(),
      dataset.holdout.size(), parts.tested.size(), dataset.test.size(), dataset.train.channels,
      dataset.classes.size());
  return dataset;
}

DataFacts inspect_crops(const RunConfig& config) {
  if (config.data.source != DataSource::synthetic) {
    const Parts parts = load_parts(config);
    return {parts.counts, parts.series.hash};
  }
  // Generated series are all of one length: none needs to be made.
  const CropConfig& crops = classify(config).data;
  if (std::vector<ConfigProblem> problems = source_problems(config.data); !problems.empty()) {
    throw ConfigError(std::move(problems));
  }
  require_sound_crops(crops);
  const SeriesSplit split = split_series(config.data.series, crops.holdout_series);
  const auto count = [&](std::size_t series, const char* part) {
    const std::vector<int64_t> lengths(series, config.data.series_steps);
    return require_crops(lengths, config.data.channels, crops, part);
  };
  DataFacts facts{{}, hash_of_generator(config.data)};
  facts.samples.train = count(split.kept.size(), "training");
  facts.samples.test = count(static_cast<std::size_t>(config.data.series), "test");
  if (!split.held_out.empty()) facts.samples.holdout = count(split.held_out.size(), "held-out");
  return facts;
}

std::optional<SampleCounts> counted_crops(const RunConfig& config) {
  if (config.data.source == DataSource::ts_files) return std::nullopt;
  const CropConfig& crops = classify(config).data;
  const bool synthetic = config.data.source == DataSource::synthetic;
  const int64_t series = synthetic ? config.data.series : kBasicMotionsSeries;
  const int64_t of_each = crops_of(synthetic ? config.data.series_steps : kBasicMotionsSteps, crops.stride,
                                   crops.min_steps, crops.max_steps);
  if (of_each == 0 || crops.min_steps > crops.max_steps || crops.holdout_series >= series) return std::nullopt;
  return SampleCounts{(series - crops.holdout_series) * of_each, crops.holdout_series * of_each,
                      series * of_each};
}

int64_t classes_of(const RunConfig& config) {
  if (config.data.source == DataSource::basic_motions) return kBasicMotionsClasses;
  return config.data.source == DataSource::synthetic ? std::min(kSyntheticClasses, config.data.series) : 2;
}

}  // namespace lockstep
