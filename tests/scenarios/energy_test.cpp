#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/lib/data/series.h"
#include "scenarios/energy/spec.h"
#include "tests/support/members.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::member_count;

std::size_t keys_in_group(std::string_view prefix) {
  return static_cast<std::size_t>(std::ranges::count_if(
      energy_spec().fields(), [prefix](const RunField& field) { return field.spec.key.starts_with(prefix); }));
}

TEST(EnergyFields, CoverEveryMemberOfTheStructs) {
  constexpr std::size_t kGroups = 3;
  EXPECT_EQ(keys_in_group("data."), member_count<WindowConfig>());
  EXPECT_EQ(keys_in_group("model."), member_count<ModelConfig>());
  EXPECT_EQ(keys_in_group("layer."), member_count<LayerNegativesConfig>());
  const std::size_t grouped = keys_in_group("data.") + keys_in_group("model.") + keys_in_group("layer.");
  EXPECT_EQ(energy_spec().fields().size() - grouped, member_count<EnergyConfig>() - kGroups);
}

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Scratch : TempFolder {
  std::string file(const std::string& name, const std::string& content) const {
    write_text(*this / name, content);
    return *this / name;
  }
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
  return support::thrown_by([&] { load_dataset(config); });
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
  Environment data("LOCKSTEP_DATA", scratch.path());
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
  config.min_context = 17;
  EXPECT_THAT(refusal(config), HasSubstr("data.min_context 17 is longer than data.context_steps 16"));
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
  const auto expect_counts = [](const SampleCounts& found, const Dataset& data) {
    EXPECT_EQ(found.train, static_cast<int64_t>(data.train.size()));
    EXPECT_EQ(found.holdout, static_cast<int64_t>(data.holdout.size()));
    EXPECT_EQ(found.test, static_cast<int64_t>(data.test.size()));
  };
  for (const PairConfig& config : {files_config(train, test), generated}) {
    expect_counts(inspect_pairs(config).samples, load_dataset(config));
  }
  expect_counts(*counted_pairs(generated), load_dataset(generated));
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
  fs::create_directories(scratch / "checkout/build/release/bin");
  fs::create_directories(scratch / "checkout/.lockstep/data");
  const std::string expected = scratch / "checkout/.lockstep/data";
  EXPECT_EQ(find_data_folder(scratch / "checkout/build/release/bin"), expected);
  EXPECT_EQ(find_data_folder(scratch / "checkout"), expected);
  fs::create_directories(scratch / "checkout/build/.lockstep/data");
  EXPECT_EQ(find_data_folder(scratch / "checkout/build/release/bin"),
            scratch / "checkout/build/.lockstep/data");
}

TEST(DataFolder, IsTheSharedOneOfAnInstalledProgram) {
  Scratch scratch;
  fs::create_directories(scratch / "prefix/bin");
  fs::create_directories(scratch / ".lockstep/data");
  const std::string bin = scratch / "prefix/bin";
  EXPECT_EQ(data_folder_of(bin), scratch / ".lockstep/data");
  fs::create_directories(scratch / "prefix/share/lockstep");
  EXPECT_EQ(data_folder_of(bin), scratch / "prefix/share/lockstep/data")
      << "there or not: the message names where it belongs";
}

TEST(DataFolder, TheEnvironmentDecides) {
  Environment data("LOCKSTEP_DATA", "/some/where");
  EXPECT_EQ(data_folder(), "/some/where");
}

/// Two channels; the value at (series, t, channel) says where it stands.
SeriesSet ramps(int series, int steps) {
  SeriesSet set;
  set.channels = 2;
  for (int s = 0; s < series; ++s) {
    std::vector<float> values;
    for (int t = 0; t < steps; ++t) {
      values.push_back(static_cast<float>(1000 * s + t));
      values.push_back(static_cast<float>(-1000 * s - t));
    }
    set.series.push_back(values);
  }
  return set;
}

ChannelScale unscaled() { return {{0.0, 0.0}, {1.0, 1.0}}; }

std::vector<int> all_of(const SeriesSet& set) {
  std::vector<int> indices(set.series.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

PairConfig config_of(int context, int action, int stride) {
  PairConfig config;
  config.context_steps = context;
  config.action_steps = action;
  config.stride = stride;
  config.min_context = context;
  return config;
}

Windows make_windows(const SeriesSet& set, const std::vector<int>& chosen, const ChannelScale& scale,
                     const PairConfig& config, WindowPart part) {
  return PairCutter(std::make_shared<const SeriesSet>(set), chosen, scale, config, part).cut_all();
}

TEST(Windows, HoldOutIsSpreadOverTheClassBlocks) {
  EXPECT_THAT(holdout_indices(40, 4), testing::ElementsAre(9, 19, 29, 39));
  EXPECT_THAT(holdout_indices(7, 3), testing::ElementsAre(1, 3, 6));
  EXPECT_THAT(holdout_indices(3, 3), testing::ElementsAre(0, 1, 2));
  EXPECT_TRUE(holdout_indices(5, 0).empty());
}

TEST(Windows, CountsEveryStrideThStartThatFits) {
  EXPECT_EQ(pairs_of(100, config_of(16, 8, 2)), 39);
  EXPECT_EQ(pairs_of(24, config_of(16, 8, 2)), 1);
  EXPECT_EQ(pairs_of(23, config_of(16, 8, 2)), 0);
  EXPECT_EQ(pairs_of(25, config_of(16, 8, 2)), 1);
  EXPECT_EQ(pairs_of(26, config_of(16, 8, 2)), 2);
}

TEST(Windows, ActionsFollowTheirContexts) {
  const SeriesSet set = ramps(3, 20);
  const std::vector<int> chosen{0, 2};
  const Windows windows = make_windows(set, chosen, unscaled(), config_of(4, 3, 5), WindowPart::train);
  ASSERT_EQ(windows.size(), 6u);  // starts 0, 5, 10 of two series
  for (std::size_t pair = 0; pair < 6; ++pair) {
    const auto first = static_cast<float>((pair < 3 ? 0 : 2000) + 5 * (pair % 3));
    for (std::size_t t = 0; t < 4; ++t) {
      EXPECT_EQ(windows.contexts[(pair * 4 + t) * 2], first + static_cast<float>(t));
      EXPECT_EQ(windows.contexts[(pair * 4 + t) * 2 + 1], -first - static_cast<float>(t));
      EXPECT_EQ(windows.context_mask[pair * 4 + t], 1);
    }
    for (std::size_t t = 0; t < 3; ++t)
      EXPECT_EQ(windows.actions[(pair * 3 + t) * 2], first + 4 + static_cast<float>(t));
  }
}

TEST(Windows, SeriesOfUnequalLengthGiveUnequallyManyPairs) {
  SeriesSet set = ramps(2, 20);
  set.series[0].resize(2 * 9);
  EXPECT_EQ(make_windows(set, all_of(set), unscaled(), config_of(4, 3, 1), WindowPart::test).size(),
            3u + 14u);
}

TEST(Windows, ShortContextsAreMaskedAtTheFront) {
  const SeriesSet set = ramps(4, 100);
  PairConfig config = config_of(16, 8, 2);
  config.min_context = 5;
  const Windows windows = make_windows(set, all_of(set), unscaled(), config, WindowPart::train);
  const Windows whole = make_windows(set, all_of(set), unscaled(), config_of(16, 8, 2), WindowPart::train);
  ASSERT_EQ(windows.actions, whole.actions);
  std::vector<int> lengths(17, 0);
  for (std::size_t pair = 0; pair < windows.size(); ++pair) {
    const auto kept =
        static_cast<std::size_t>(keyed_context_length(config, WindowPart::train, static_cast<int64_t>(pair)));
    ++lengths.at(kept);
    for (std::size_t t = 0; t < 16; ++t) {
      const bool real = t >= 16 - kept;
      ASSERT_EQ(windows.context_mask[pair * 16 + t], real ? 1 : 0);
      const std::size_t at = (pair * 16 + t) * 2;
      ASSERT_EQ(windows.contexts[at], real ? whole.contexts[at] : 0.0f);
    }
  }
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.begin() + 5, 0), 0);
  for (std::size_t length = 5; length <= 16; ++length) EXPECT_GT(lengths[length], 0) << length;
}

TEST(Windows, ContextLengthsOfThePartsAreDrawnApart) {
  PairConfig config = config_of(16, 8, 2);
  config.min_context = 1;
  int differing = 0;
  for (int64_t pair = 0; pair < 100; ++pair) {
    differing += keyed_context_length(config, WindowPart::train, pair) !=
                 keyed_context_length(config, WindowPart::test, pair);
  }
  EXPECT_GT(differing, 70);
}

TEST(ChannelScale, StandardisesByTheChosenSeriesAlone) {
  const SeriesSet set = ramps(3, 50);
  const std::vector<int> chosen{0};
  const ChannelScale scale = channel_scale(set, chosen);
  EXPECT_DOUBLE_EQ(scale.mean[0], 24.5);
  EXPECT_DOUBLE_EQ(scale.mean[1], -24.5);
  EXPECT_DOUBLE_EQ(scale.sd[0], std::sqrt((50.0 * 50.0 - 1.0) / 12.0));
  EXPECT_NE(channel_scale(set, all_of(set)).mean[0], 24.5);
}

TEST(ChannelScale, KeepsAConstantChannelFinite) {
  SeriesSet set;
  set.channels = 2;
  for (int s = 0; s < 3; ++s) set.series.push_back({0.1f, 1.0f, 0.1f, 2.0f, 0.1f, 3.0f});
  const ChannelScale scale = channel_scale(set, all_of(set));
  EXPECT_EQ(scale.sd[0], 1.0);
  EXPECT_EQ(scale.mean[0], static_cast<double>(0.1f));
  const Windows windows = make_windows(set, all_of(set), scale, config_of(2, 1, 1), WindowPart::train);
  EXPECT_EQ(windows.contexts[0], 0.0f);
}

TEST(ChannelScale, DoesNotCancelFarFromZero) {
  SeriesSet set;
  set.channels = 1;
  set.series.push_back({1e7f, 1e7f + 1, 1e7f + 2, 1e7f + 3});
  EXPECT_DOUBLE_EQ(channel_scale(set, all_of(set)).sd[0], std::sqrt(1.25));
}

PairConfig padded_config() {
  PairConfig config;
  config.source = DataSource::synthetic;
  config.series = 9;
  config.series_steps = 50;
  config.holdout_series = 2;
  config.min_context = 5;
  return config;
}

/// Does row `row` of `some` hold the bits of row `pair` of `all`?
testing::AssertionResult same_row(const Windows& some, std::size_t row, const Windows& all,
                                  std::size_t pair) {
  const auto context = static_cast<std::size_t>(all.context_steps) * static_cast<std::size_t>(all.channels);
  const auto action = static_cast<std::size_t>(all.action_steps) * static_cast<std::size_t>(all.channels);
  const auto steps = static_cast<std::size_t>(all.context_steps);
  const bool same =
      std::memcmp(&some.contexts[row * context], &all.contexts[pair * context], 4 * context) == 0 &&
      std::memcmp(&some.actions[row * action], &all.actions[pair * action], 4 * action) == 0 &&
      std::memcmp(&some.context_mask[row * steps], &all.context_mask[pair * steps], steps) == 0;
  return same ? testing::AssertionSuccess()
              : testing::AssertionFailure() << "row " << row << ", pair " << pair;
}

void expect_same_pairs(const PairConfig& config) {
  const Dataset data = load_dataset(config);
  const std::vector<int64_t> some = {17, 3, static_cast<int64_t>(data.train.size()) - 1, 0, 3};
  const Windows cut = data.training_pairs->cut(some);
  ASSERT_EQ(cut.size(), some.size());
  for (std::size_t row = 0; row < some.size(); ++row) {
    EXPECT_TRUE(same_row(cut, row, data.train, static_cast<std::size_t>(some[row])));
  }
  EXPECT_FALSE(same_row(cut, 0, data.train, 3)) << "this comparison can fail";
}

TEST(PairCutter, GivesAnyRowsTheBitsThatTheyHaveAmongAll) { expect_same_pairs(padded_config()); }

TEST(PairCutter, GivesThemInCorrelatedBlocksToo) {
  PairConfig config = padded_config();
  config.correlation = 0.7;
  config.block = 3;
  expect_same_pairs(config);
}

TEST(Dataset, WithoutCacheKeepsNoTrainingPairAndTheSameOthers) {
  PairConfig config = padded_config();
  const Dataset cached = load_dataset(config);
  config.cache = false;
  const Dataset cut = load_dataset(config);
  EXPECT_EQ(cut.train.size(), 0U);
  EXPECT_EQ(cut.train.channels, cached.train.channels);
  EXPECT_EQ(cut.training_pairs->size(), static_cast<int64_t>(cached.train.size()));
  EXPECT_EQ(cut.training_pairs->cut_all().contexts, cached.train.contexts);
  EXPECT_EQ(cut.test.contexts, cached.test.contexts);
  EXPECT_EQ(cut.holdout.actions, cached.holdout.actions);
  EXPECT_EQ(cut.description, cached.description);
  EXPECT_EQ(inspect_pairs(config).hash, inspect_pairs(padded_config()).hash);
}

RunConfig config_of(Layout layout, Negatives negatives) {
  RunConfig config;
  config.layout = layout;
  energy(config).negatives = negatives;
  return config;
}

TEST(ResolvedNegatives, DecideLayoutsOfOneGlobalBatch) {
  struct Row {
    Layout layout;
    Negatives as_written, repaired;
  };
  const std::vector<Row> table{
      {{1, 24}, Negatives::local, Negatives::global}, {{2, 12}, Negatives::global, Negatives::global},
      {{3, 8}, Negatives::global, Negatives::global}, {{4, 6}, Negatives::layer, Negatives::global},
      {{8, 3}, Negatives::layer, Negatives::global},
  };
  for (const auto& [layout, as_written, repaired] : table) {
    EXPECT_EQ(resolved_negatives(config_of(layout, Negatives::adaptive_as_written)), as_written)
        << layout.world_size << "x" << layout.rows_per_rank;
    EXPECT_EQ(resolved_negatives(config_of(layout, Negatives::adaptive)), repaired)
        << layout.world_size << "x" << layout.rows_per_rank;
  }
}

TEST(ResolvedNegatives, NeverReachTheInnerLimitAsWritten) {
  for (int rows = 1; rows <= 24; ++rows) {
    const Negatives chosen = resolved_negatives(config_of({2, rows}, Negatives::adaptive_as_written));
    EXPECT_EQ(chosen, rows >= 8 ? Negatives::global : Negatives::layer) << rows;
  }
}

TEST(ResolvedNegatives, ChangeAtEightCandidatesWhenRepaired) {
  EXPECT_EQ(resolved_negatives(config_of({7, 1}, Negatives::adaptive)), Negatives::layer);
  EXPECT_EQ(resolved_negatives(config_of({1, 7}, Negatives::adaptive)), Negatives::layer);
  EXPECT_EQ(resolved_negatives(config_of({8, 1}, Negatives::adaptive)), Negatives::global);
}

TEST(ResolvedNegatives, SeeTheRanksThatAnOracleStandsFor) {
  RunConfig oracle = config_of({1, 24}, Negatives::adaptive_as_written);
  oracle.oracle_world = 4;
  EXPECT_EQ(resolved_negatives(oracle), Negatives::layer);
  oracle.oracle_world = 3;
  EXPECT_EQ(resolved_negatives(oracle), Negatives::global);
}

TEST(ResolvedNegatives, LeaveWhatIsChosenAlone) {
  for (const Negatives negatives :
       {Negatives::local, Negatives::global, Negatives::layer, Negatives::mixed}) {
    EXPECT_EQ(resolved_negatives(config_of({8, 3}, negatives)), negatives);
  }
}

TEST(HasNegatives, NotWhereARowIsAloneAmongItsCandidates) {
  EXPECT_FALSE(has_negatives(config_of({24, 1}, Negatives::local)));
  EXPECT_TRUE(has_negatives(config_of({24, 1}, Negatives::global)));
  EXPECT_FALSE(has_negatives(config_of({1, 1}, Negatives::global)));
  EXPECT_TRUE(has_negatives(config_of({8, 3}, Negatives::local)));
  for (const Negatives negatives : {Negatives::layer, Negatives::mixed, Negatives::adaptive})
    EXPECT_TRUE(has_negatives(config_of({1, 1}, negatives)));
}

}  // namespace
}  // namespace lockstep
