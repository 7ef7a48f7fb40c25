#include "harness/verdict/trace/rank_result.h"

#include <bit>
#include <cerrno>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "harness/base/errors.h"
#include "harness/base/json.h"
#include "tests/support/fake_files.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

RankResult sample_result() {
  RankResult result;
  result.rank = 2;
  result.world_size = 8;
  result.config_hash = "c0ffee";
  result.data_hash = "da7a";
  result.status = "failed";
  result.error = "a \"quoted\" error\n\xff";
  result.phase = "train";
  result.steps_done = 17;
  result.train_seconds = 1.25;
  result.faults_acted = {"second_mutant"};
  result.transport = "nccl";
  result.certified_by = "band";
  result.metrics = {{"accuracy_24", 0.1 + 0.2},
                    {"nan", std::numeric_limits<double>::quiet_NaN()},
                    {"low", -std::numeric_limits<double>::infinity()}};
  result.curves["loss"] = {{0, 1, 2}, {3.178, std::numeric_limits<double>::infinity(), 1e-300}};
  return result;
}

std::string error_of(const std::string& path) {
  try {
    read_rank_result(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RankResult, ComesBackBitForBit) {
  TempFolder folder;
  const RankResult result = sample_result();
  write_rank_result(folder / "r.json", result);
  const RankResult back = read_rank_result(folder / "r.json");
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.world_size, 8);
  EXPECT_EQ(back.transport, "nccl");
  EXPECT_EQ(back.certified_by, "band");
  EXPECT_EQ(back.config_hash, "c0ffee");
  EXPECT_EQ(back.data_hash, "da7a");
  EXPECT_EQ(back.status, "failed");
  EXPECT_EQ(back.phase, "train");
  EXPECT_EQ(back.steps_done, 17);
  EXPECT_EQ(back.train_seconds, 1.25);
  EXPECT_EQ(back.faults_acted, result.faults_acted);
  ASSERT_EQ(back.metrics.size(), 3u);
  for (const auto& [name, value] : result.metrics) {
    EXPECT_EQ(std::bit_cast<uint64_t>(back.metrics.at(name)), std::bit_cast<uint64_t>(value)) << name;
  }
  EXPECT_EQ(back.curves.at("loss").steps, result.curves.at("loss").steps);
  EXPECT_EQ(back.curves.at("loss").values, result.curves.at("loss").values);
}

TEST(RankResult, TellsOfCheckpointsOnlyWhereThereAreAny) {
  TempFolder folder;
  RankResult result = sample_result();
  write_rank_result(folder / "r.json", result);
  EXPECT_EQ(read_text(folder / "r.json").find("checkpoints"), std::string::npos);
  EXPECT_FALSE(read_rank_result(folder / "r.json").checkpoints.any());
  result.checkpoints = {{10, 20}, 0.5, {"epoch_0_step_30 was not saved"}, 10, "epoch_0_step_10", {"latest is behind"}, 15, 0.25};
  write_rank_result(folder / "r.json", result);
  const CheckpointsOfRank back = read_rank_result(folder / "r.json").checkpoints;
  EXPECT_EQ(back.saved, (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(back.seconds, 0.5);
  EXPECT_EQ(back.problems, result.checkpoints.problems);
  EXPECT_EQ(back.resumed_at, 10);
  EXPECT_EQ(back.resumed_from, "epoch_0_step_10");
  EXPECT_EQ(back.remarks, result.checkpoints.remarks);
  EXPECT_EQ(back.stop_signal, 15);
  EXPECT_EQ(back.stop_seconds, 0.25);
}

TEST(RankResult, HasNoNullForWhatJsonCannotSay) {
  TempFolder folder;
  write_rank_result(folder / "r.json", sample_result());
  const std::string text = read_text(folder / "r.json");
  EXPECT_EQ(text.find("null"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("\"nan\""));
  EXPECT_THAT(text, HasSubstr("\"bits\": \"3fd3333333333334\""));
}

TEST(RankResult, RefusesMissingMalformedAndUnknown) {
  TempFolder folder;
  EXPECT_THAT(error_of(folder / "none"), HasSubstr(folder / "none: cannot be read: No such file"));
  write_text(folder / "r", "{\"schema_version\": 1, \"rank\": ");
  EXPECT_THAT(error_of(folder / "r"), HasSubstr("not JSON, or cut short"));
  write_text(folder / "r", "{\"schema_version\": 7}");
  EXPECT_THAT(error_of(folder / "r"), HasSubstr("schema version 7"));
  write_text(folder / "r", "{\"schema_version\": 1}");
  EXPECT_THAT(error_of(folder / "r"), HasSubstr("schema version 1; this build reads version 2"));
  write_rank_result(folder / "r", sample_result());
  const std::string text = read_text(folder / "r");
  nlohmann::json json = nlohmann::json::parse(text);
  json["metrics"]["accuracy_24"]["bits"] = "3fd333333333333x";
  seal(json);
  write_text(folder / "r", json.dump());
  EXPECT_THAT(error_of(folder / "r"), HasSubstr("accuracy_24"));
}

TEST(RankResult, RefusesWhatIsNestedTooDeepOrNoFile) {
  TempFolder folder;
  write_text(folder / "r", std::string(100000, '[') + std::string(100000, ']'));
  EXPECT_THAT(error_of(folder / "r"), HasSubstr(folder / "r: nested deeper than 100 levels"));
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(error_of(folder / "fifo"), HasSubstr(folder / "fifo: is a FIFO, not a file"));
}

TEST(RankResult, RefusesEveryChangedDigitByName) {
  TempFolder folder;
  write_rank_result(folder / "r", sample_result());
  const std::string text = read_text(folder / "r");
  for (const std::string digits : {"3fd3333333333334", "17", "1.25", "1e-300", "c0ffee", "finished"}) {
    const std::size_t at = text.find(digits);
    if (at == std::string::npos) continue;
    std::string damaged = text;
    damaged[at] = digits[0] == '3' ? '2' : '9';
    write_text(folder / "r", damaged);
    EXPECT_THAT(error_of(folder / "r"), HasSubstr((folder / "r") + " is damaged: its checksum is "))
        << digits;
  }
  nlohmann::json json = nlohmann::json::parse(text);
  json.erase("checksum");
  write_text(folder / "r", json.dump());
  EXPECT_THAT(error_of(folder / "r"), HasSubstr("has no checksum"));
}

TEST(RankResult, SaysWhyItCannotBeWritten) {
  TempFolder folder;
  support::FakeFiles files;
  files.fail(1, ENOSPC);
  try {
    write_rank_result(folder / "r", sample_result(), files);
    FAIL() << "no error";
  } catch (const MachineError& error) {
    EXPECT_EQ(error.what(), (folder / "r") + ": cannot write: No space left on device");
  }
}

}  // namespace
}  // namespace lockstep
