#include "harness/lib/data/series_source.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "harness/base/hex.h"
#include "harness/lib/data/data_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kSyntheticVersion = 1;
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

/// Each file's own hash first, so that bytes cannot move from one file to the other unseen.
std::string hash_of_files(const std::string& train, const std::string& test) {
  return long_hash_in_hex(long_hash_in_hex(train) + long_hash_in_hex(test));
}

}  // namespace

std::vector<ConfigProblem> source_problems(const DataConfig& config) {
  std::vector<ConfigProblem> problems;
  if (config.source != DataSource::synthetic) return problems;
  const auto at_least_one = [&](int64_t value, const char* name) {
    if (value < 1) problems.push_back({"", 0, 0, fmt::format("data.{} is {}; at least 1", name, value), ""});
  };
  at_least_one(config.series, "series");
  at_least_one(config.series_steps, "series_steps");
  at_least_one(config.channels, "channels");
  if (problems.empty() && int64_t{config.series} * config.series_steps > kMaxGenerated / config.channels) {
    problems.push_back({"", 0, 0, "data.series * data.series_steps * data.channels is more than 2^28 values", ""});
  }
  return problems;
}

std::string hash_of_generator(const DataConfig& config) {
  std::string text = fmt::format("synthetic {} series {} steps {} channels {} seed {}", kSyntheticVersion,
                                 config.series, config.series_steps, config.channels, config.seed);
  if (config.correlation > 0)
    text += fmt::format(" correlation {} block {}", config.correlation, config.block);
  return long_hash_in_hex(text);
}

SourceSeries load_series(const DataConfig& config) {
  if (std::vector<ConfigProblem> problems = source_problems(config); !problems.empty()) {
    throw ConfigError(std::move(problems));
  }
  SourceSeries source;
  if (config.source == DataSource::synthetic) {
    source.train = synthetic_series(config, 0);
    source.test = synthetic_series(config, 1);
    source.hash = hash_of_generator(config);
    return source;
  }
  Files files = files_of(config);
  require_basic_motions(config, files);
  // Read once: what is hashed is what is trained on, whoever writes to the files meanwhile.
  const std::string train_bytes = read_data_file(files.train), test_bytes = read_data_file(files.test);
  source.train = parse_ts(train_bytes, files.train);
  source.test = parse_ts(test_bytes, files.test);
  source.hash = hash_of_files(train_bytes, test_bytes);
  if (source.train.channels != source.test.channels) {
    throw ConfigError({ConfigProblem{files.test, 0, 0,
                                     fmt::format("has {} dimensions, but the training file {} has {}",
                                                 source.test.channels, files.train, source.train.channels),
                                     ""}});
  }
  source.train_file = std::move(files.train);
  source.test_file = std::move(files.test);
  return source;
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

}  // namespace lockstep
