#include "scenarios/energy/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "harness/base/errors.h"
#include "harness/lib/data/series.h"
#include "scenarios/energy/config.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A folder of the test's own, removed at its end.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-data-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string file(const std::string& name, const std::string& content) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Sets an environment variable for as long as it lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

std::string ts_text(int series, int steps, float offset) {
  std::string text = "@classLabel false\n@data\n";
  for (int s = 0; s < series; ++s) {
    for (int c = 0; c < 2; ++c) {
      if (c > 0) text += ':';
      for (int t = 0; t < steps; ++t) {
        if (t > 0) text += ',';
        text += std::to_string(offset + static_cast<float>((s * 7 + t * (c + 1)) % 11));
      }
    }
    text += '\n';
  }
  return text;
}

PairConfig files_config(const std::string& train, const std::string& test) {
  PairConfig config;
  config.source = DataSource::ts_files;
  config.train_file = train;
  config.test_file = test;
  return config;
}

std::string refusal(const PairConfig& config) {
  try {
    load_dataset(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Dataset, StandardisesByWhatIsLeftForTraining) {
  Scratch scratch;
  PairConfig config =
      files_config(scratch.file("a.ts", ts_text(8, 40, 0)), scratch.file("b.ts", ts_text(3, 40, 100)));
  config.holdout_series = 2;
  config.stride = config.context_steps + config.action_steps;  // windows do not overlap
  const Dataset data = load_dataset(config);
  EXPECT_EQ(data.train.size(), 6u);
  EXPECT_EQ(data.holdout.size(), 2u);
  EXPECT_EQ(data.test.size(), 3u);
  EXPECT_EQ(data.train.channels, 2);
  double train_sum = 0, test_sum = 0;
  for (const float value : data.train.actions) train_sum += value;
  for (const float value : data.test.actions) test_sum += value;
  EXPECT_LT(std::abs(train_sum / static_cast<double>(data.train.actions.size())), 0.5);
  EXPECT_GT(test_sum / static_cast<double>(data.test.actions.size()),
            10.0);  // 100 of training's units, not its own
  EXPECT_THAT(data.description,
              HasSubstr("6 training series, 6 pairs; 2 held out, 2 pairs; 3 test series, 3 pairs"));
}

TEST(Dataset, SyntheticHasThePairsOfBasicMotions) {
  PairConfig config;
  config.source = DataSource::synthetic;
  const Dataset data = load_dataset(config);
  EXPECT_EQ(data.train.size(), 1404u);
  EXPECT_EQ(data.holdout.size(), 156u);
  EXPECT_EQ(data.test.size(), 1560u);
}

TEST(Dataset, ReadsTheRealFilesIfTheyAreHere) {
  PairConfig config;
  if (!fs::exists(data_folder() + "/BasicMotions_TRAIN.ts")) {
    GTEST_SKIP() << "no BasicMotions in " << data_folder() << "; ci/bootstrap fetches it";
  }
  const Dataset data = load_dataset(config);
  EXPECT_EQ(data.train.size(), 1404u);
  EXPECT_EQ(data.train.channels, 6);
  EXPECT_THAT(data.description, HasSubstr("BasicMotions: 36 training series"));
}

TEST(Dataset, SaysHowToGetBasicMotions) {
  Scratch scratch;
  Environment data("LOCKSTEP_DATA", scratch.path().string());
  EXPECT_THAT(refusal(PairConfig{}),
              testing::AllOf(HasSubstr("BasicMotions_TRAIN.ts: no such file; in a clone run ci/bootstrap"),
                             HasSubstr("BasicMotions_TEST.ts"), HasSubstr("data.source=synthetic")));
  EXPECT_THROW(inspect_pairs(PairConfig{}).hash, ConfigError);
}

TEST(Dataset, RefusesWhatGivesNoPairs) {
  Scratch scratch;
  const std::string train = scratch.file("a.ts", ts_text(8, 40, 0));
  EXPECT_THAT(refusal(files_config(train, scratch.file("b.ts", ts_text(3, 20, 0)))),
              HasSubstr("the test series give no pair"));
  EXPECT_THAT(refusal(files_config(train, "")), HasSubstr("data.test_file is empty"));
  EXPECT_THAT(refusal(files_config(train, scratch.file("c.ts", "@univariate true\n@data\n1\n"))),
              HasSubstr("c.ts: has 1 dimensions"));
  PairConfig config = files_config(train, train);
  config.holdout_series = 8;
  EXPECT_THAT(refusal(config), HasSubstr("data.holdout_series 8 leaves none of the 8"));
  config = files_config(train, train);
  config.stride = 0;
  config.min_context = 17;
  EXPECT_THAT(refusal(config),
              testing::AllOf(HasSubstr("data.stride is 0"), HasSubstr("data.min_context is 17")));
}

TEST(CountPairs, AreThoseThatAreCut) {
  Scratch scratch;
  const std::string train = scratch.file("a.ts", ts_text(8, 40, 0)),
                    test = scratch.file("b.ts", ts_text(3, 31, 0));
  PairConfig generated;
  generated.source = DataSource::synthetic;
  generated.series = 12;
  generated.series_steps = 61;
  generated.stride = 3;
  for (const PairConfig& config : {files_config(train, test), generated}) {
    const SampleCounts pairs = inspect_pairs(config).samples;
    const Dataset data = load_dataset(config);
    EXPECT_EQ(pairs.train, static_cast<int64_t>(data.train.size()));
    EXPECT_EQ(pairs.holdout, static_cast<int64_t>(data.holdout.size()));
    EXPECT_EQ(pairs.test, static_cast<int64_t>(data.test.size()));
  }
  EXPECT_EQ(counted_pairs(generated)->train, inspect_pairs(generated).samples.train);
  EXPECT_EQ(counted_pairs(generated)->holdout, inspect_pairs(generated).samples.holdout);
  EXPECT_EQ(counted_pairs(generated)->test, inspect_pairs(generated).samples.test);
}

TEST(CountPairs, RefuseWhatLoadingRefuses) {
  Scratch scratch;
  const std::string train = scratch.file("a.ts", ts_text(8, 40, 0));
  EXPECT_THROW(inspect_pairs(files_config(train, scratch.file("b.ts", ts_text(3, 20, 0)))), ConfigError);
  EXPECT_THROW(inspect_pairs(files_config(train, scratch.file("c.ts", "@classLabel false\n@data\n:\n"))),
               ConfigError)
      << "a series without a step";
  PairConfig config;
  config.source = DataSource::synthetic;
  config.series = config.series_steps = config.channels = 1 << 30;
  EXPECT_THROW(inspect_pairs(config), ConfigError);
}

TEST(Dataset, RefusesASyntheticSetBeyondMemory) {
  PairConfig config;
  config.source = DataSource::synthetic;
  config.series = config.series_steps = config.channels = 1 << 30;
  EXPECT_THAT(refusal(config), HasSubstr("more than 2^28 values"));
}

TEST(DataHash, SeesEveryByteAndWhichFileItIsIn) {
  Scratch scratch;
  const std::string a = scratch.file("a.ts", ts_text(8, 40, 0)), b = scratch.file("b.ts", ts_text(8, 40, 1));
  const std::string hash = inspect_pairs(files_config(a, b)).hash;
  EXPECT_EQ(hash.size(), 32u);
  EXPECT_NE(inspect_pairs(files_config(b, a)).hash, hash);
  EXPECT_EQ(inspect_pairs(files_config(a, b)).hash, hash);
  scratch.file("b.ts", ts_text(8, 40, 1) + "\n");
  EXPECT_NE(inspect_pairs(files_config(a, b)).hash, hash);
}

TEST(DataHash, IsOfWhatWasLoaded) {
  Scratch scratch;
  const std::string a = scratch.file("a.ts", ts_text(8, 40, 0)), b = scratch.file("b.ts", ts_text(8, 40, 1));
  const Dataset loaded = load_dataset(files_config(a, b));
  EXPECT_EQ(loaded.hash, inspect_pairs(files_config(a, b)).hash);
  scratch.file("b.ts", ts_text(8, 40, 2));
  EXPECT_NE(load_dataset(files_config(a, b)).hash, loaded.hash);
  PairConfig config;
  config.source = DataSource::synthetic;
  const std::string plain = inspect_pairs(config).hash;
  EXPECT_EQ(load_dataset(config).hash, plain);
  config.correlation = 0.5;
  config.block = 2;
  EXPECT_NE(load_dataset(config).hash, plain);
  EXPECT_EQ(load_dataset(config).hash, inspect_pairs(config).hash);
}

TEST(DataHash, OfGeneratedSeriesIsThatOfTheirParameters) {
  PairConfig config;
  config.source = DataSource::synthetic;
  const std::string hash = inspect_pairs(config).hash;
  config.stride = 3;  // a matter of the config, not of the data
  EXPECT_EQ(inspect_pairs(config).hash, hash);
  config.seed = 1;
  EXPECT_NE(inspect_pairs(config).hash, hash);
}

TEST(DataFolder, IsTheFirstOneAtOrAboveThePlace) {
  Scratch scratch;
  fs::create_directories(scratch.path() / "checkout/build/release/bin");
  fs::create_directories(scratch.path() / "checkout/.lockstep/data");
  const std::string expected = (scratch.path() / "checkout/.lockstep/data").string();
  EXPECT_EQ(find_data_folder((scratch.path() / "checkout/build/release/bin").string()), expected);
  EXPECT_EQ(find_data_folder((scratch.path() / "checkout").string()), expected);
  fs::create_directories(scratch.path() / "checkout/build/.lockstep/data");
  EXPECT_EQ(find_data_folder((scratch.path() / "checkout/build/release/bin").string()),
            (scratch.path() / "checkout/build/.lockstep/data").string());
}

TEST(DataFolder, IsTheSharedOneOfAnInstalledProgram) {
  Scratch scratch;
  fs::create_directories(scratch.path() / "prefix/bin");
  fs::create_directories(scratch.path() / ".lockstep/data");
  const std::string bin = (scratch.path() / "prefix/bin").string();
  EXPECT_EQ(data_folder_of(bin), (scratch.path() / ".lockstep/data").string());
  fs::create_directories(scratch.path() / "prefix/share/lockstep");
  EXPECT_EQ(data_folder_of(bin), (scratch.path() / "prefix/share/lockstep/data").string())
      << "there or not: the message names where it belongs";
}

TEST(DataFolder, TheEnvironmentDecides) {
  Environment data("LOCKSTEP_DATA", "/some/where");
  EXPECT_EQ(data_folder(), "/some/where");
}

}  // namespace
}  // namespace lockstep
