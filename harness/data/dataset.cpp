#include "harness/data/data_folder.h"
#include "harness/data/dataset.h"
#include "harness/data/series.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "harness/base/errors.h"
#include "harness/data/pair_cutter.h"
#include "harness/data/windows.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;


constexpr int kSyntheticVersion = 1;
/// A generated or windowed set beyond this is a slip of the pen, not a wish.
constexpr int64_t kMaxValues = int64_t{1} << 31;
/// Generating takes a second for 2^24.
constexpr int64_t kMaxGenerated = int64_t{1} << 28;

struct Files {
  std::string train, test;
};

Files files_of(const DataConfig& config) {
  Files files{config.train_file, config.test_file};
  if (config.source == DataSource::basic_motions) {
    const std::string folder = data_folder();
    if (files.train.empty()) files.train = folder + "/BasicMotions_TRAIN.ts";
    if (files.test.empty()) files.test = folder + "/BasicMotions_TEST.ts";
  } else if (files.train.empty() || files.test.empty()) {
    throw ConfigError(
        fmt::format("data.source ts_files needs data.train_file and data.test_file; data.{} is empty",
                    files.train.empty() ? "train_file" : "test_file"));
  }
  return files;
}

/// A missing file that the user did not name is not the user's to find: say what brings it.
void require_basic_motions(const DataConfig& config, const Files& files) {
  if (config.source != DataSource::basic_motions) return;
  std::vector<ConfigProblem> problems;
  for (const std::string* file : {&files.train, &files.test}) {
    std::error_code ignored;
    if (fs::exists(*file, ignored)) continue;
    problems.push_back(
        {*file, 0, 0,
         "no such file; in a clone run ci/bootstrap, which fetches BasicMotions; else name its folder in "
         "LOCKSTEP_DATA, or use generated data: --set data.source=synthetic",
         ""});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

void require_sound(const DataConfig& config) {
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
  if (config.source == DataSource::synthetic) {
    at_least(config.series, 1, "series");
    at_least(config.series_steps, 1, "series_steps");
    at_least(config.channels, 1, "channels");
    if (problems.empty() && int64_t{config.series} * config.series_steps > kMaxGenerated / config.channels) {
      problems.push_back(
          {"", 0, 0, "data.series * data.series_steps * data.channels is more than 2^28 values", ""});
    }
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

const char* title_of(DataSource source) {
  switch (source) {
    case DataSource::basic_motions:
      return "BasicMotions";
    case DataSource::synthetic:
      return "generated series";
    case DataSource::ts_files:
      return "series from files";
  }
  return "series";
}

/// Which of the training series are trained on, and which are not.
struct Split {
  std::vector<int> kept, held_out;
};

struct Parts {
  SeriesSet train, test;
  Split split;
  std::vector<int> tested;
  PairCounts pairs;
  std::string hash;  ///< of the bytes that were read, or of the generator's parameters
};

Split split_series(int series, const DataConfig& config) {
  if (config.holdout_series >= series) {
    throw ConfigError(fmt::format("data.holdout_series {} leaves none of the {} training series",
                                  config.holdout_series, series));
  }
  Split parts{{}, holdout_indices(series, config.holdout_series)};
  for (int i = 0; i < series; ++i) {
    if (!std::binary_search(parts.held_out.begin(), parts.held_out.end(), i)) parts.kept.push_back(i);
  }
  return parts;
}

/// The pairs of a part, whose series have these lengths. The context and action chunk overlap between pairs,
/// so windows can outgrow their series by far.
int64_t require_pairs(std::span<const int64_t> lengths, int channels, const DataConfig& config,
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

int64_t require_pairs(const SeriesSet& set, std::span<const int> chosen, const DataConfig& config,
                      const char* part) {
  std::vector<int64_t> lengths;
  for (const int index : chosen) lengths.push_back(set.steps_of(static_cast<std::size_t>(index)));
  return require_pairs(lengths, set.channels, config, part);
}

std::string hex_hash(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// Each file's own hash first, so that bytes cannot move from one file to the other unseen.
std::string hash_of_files(const std::string& train, const std::string& test) {
  return hex_hash(hex_hash(train) + hex_hash(test));
}

std::string hash_of_generator(const DataConfig& config) {
  std::string text = fmt::format("synthetic {} series {} steps {} channels {} seed {}", kSyntheticVersion,
                                 config.series, config.series_steps, config.channels, config.seed);
  if (config.correlation > 0)
    text += fmt::format(" correlation {} block {}", config.correlation, config.block);
  return hex_hash(text);
}

/// Reads or generates the series and says which belong to what. Throws ConfigError if a part gives no pair.
Parts load_parts(const DataConfig& config) {
  require_sound(config);
  Parts parts;
  if (config.source == DataSource::synthetic) {
    parts.train = synthetic_series(config, 0);
    parts.test = synthetic_series(config, 1);
    parts.hash = hash_of_generator(config);
  } else {
    const Files files = files_of(config);
    require_basic_motions(config, files);
    // Read once: what is hashed is what is trained on, whoever writes to the files meanwhile.
    const std::string train_bytes = read_data_file(files.train), test_bytes = read_data_file(files.test);
    parts.train = parse_ts(train_bytes, files.train);
    parts.test = parse_ts(test_bytes, files.test);
    parts.hash = hash_of_files(train_bytes, test_bytes);
    if (parts.train.channels != parts.test.channels) {
      throw ConfigError({ConfigProblem{files.test, 0, 0,
                                       fmt::format("has {} dimensions, but the training file {} has {}",
                                                   parts.test.channels, files.train, parts.train.channels),
                                       ""}});
    }
  }
  parts.split = split_series(static_cast<int>(parts.train.series.size()), config);
  parts.tested.resize(parts.test.series.size());
  std::iota(parts.tested.begin(), parts.tested.end(), 0);
  const auto& [kept, held_out] = parts.split;
  parts.pairs.train = require_pairs(parts.train, kept, config, "training");
  parts.pairs.test = require_pairs(parts.test, parts.tested, config, "test");
  if (!held_out.empty()) parts.pairs.holdout = require_pairs(parts.train, held_out, config, "held-out");
  return parts;
}

/// Cuts the pairs of a part. Of correlated blocks: what a block shares comes from series of its own (those of
/// `shared_part`), which no pair is made from otherwise.
std::shared_ptr<PairCutter> cutter_of(const std::shared_ptr<const SeriesSet>& set,
                                      std::span<const int> chosen, const ChannelScale& scale,
                                      const DataConfig& config, WindowPart part, int shared_part) {
  auto cutter = std::make_shared<PairCutter>(set, chosen, scale, config, part);
  if (config.source == DataSource::synthetic && config.correlation > 0) {
    DataConfig whole = config;
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

DataFacts inspect_data(const DataConfig& config) {
  if (config.source != DataSource::synthetic) {
    const Parts parts = load_parts(config);
    return {parts.pairs, parts.hash};
  }
  // Generated series are all of one length: none needs to be made.
  require_sound(config);
  const Split parts = split_series(config.series, config);
  const auto pairs_of_some = [&config](std::size_t series, const char* part) {
    const std::vector<int64_t> lengths(series, config.series_steps);
    return require_pairs(lengths, config.channels, config, part);
  };
  DataFacts facts{{}, hash_of_generator(config)};
  facts.pairs.train = pairs_of_some(parts.kept.size(), "training");
  facts.pairs.test = pairs_of_some(static_cast<std::size_t>(config.series), "test");
  if (!parts.held_out.empty()) facts.pairs.holdout = pairs_of_some(parts.held_out.size(), "held-out");
  return facts;
}

Dataset load_dataset(const DataConfig& config) {
  Parts parts = load_parts(config);
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
