// Files of other tools: their bytes, and what readers make of them.

#include "reports/tools.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"
#include "harness/run/launchers/command/launcher.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

TEST(ToolFiles, HaveTheChecksOfCastagnoli) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(ToolFiles, BeginWithTheVersionThatTensorBoardWrites) {
  // As tensorboard's own writer has it: length 24 and its check, wall_time 0, file_version, and their check.
  const std::string file = tensorboard_events({"run", {}, {}}, 0);
  EXPECT_EQ(file.size(), 8 + 4 + 24 + 4U);
  EXPECT_EQ(file.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  EXPECT_EQ(file.substr(12, 11), std::string("\x09\0\0\0\0\0\0\0\0\x1a\x0d", 11));
  EXPECT_EQ(file.substr(23, 13), "brain.Event:2");
}

TEST(ToolFiles, AreReadBackStepByStep) {
  const TempFolder folder;
  const ToolRun run{
      "run", {{"loss", {{0, 1.5}, {300, 0.25}}}, {"norm/rank 1", {{7, 1e-20}}}}, {{"verdict", "**the same**"}}};
  write_text(folder / "events.out.tfevents.1", tensorboard_events(run, 1e9));
  const std::map<std::string, Series> read = metrics_in_log(folder / "events.out.tfevents.1");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read.at("loss").steps, (std::vector<int64_t>{0, 300}));
  EXPECT_EQ(read.at("loss").values, (std::vector<double>{1.5, 0.25}));
  EXPECT_EQ(read.at("norm/rank 1").values, (std::vector<double>{static_cast<double>(1e-20F)}));
  const nlohmann::json json = nlohmann::json::parse(tool_json({run}));
  EXPECT_EQ(json[0]["steps"]["300"]["loss"], 0.25);
  EXPECT_EQ(json[0]["texts"]["verdict"], "**the same**");
}

TEST(ToolFiles, ShowEachRunAsAProcessAndEachRankAsAThread) {
  const nlohmann::json events = nlohmann::json::parse(chrome_trace({{"a", "step 0", "", 0, 0, 0, 3},
                                                                    {"a", "all_reduce", "data", 1, 0, 1, 1},
                                                                    {"b", "step 0", "", 0, 0, 0, 1}}))["traceEvents"];
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0]["args"]["name"], "a");
  EXPECT_EQ(events[2]["tid"], 1);
  EXPECT_EQ(events[2]["ts"], 1);
  EXPECT_EQ(events[3]["args"]["name"], "b");
  EXPECT_NE(events[4]["pid"], events[1]["pid"]);
}

}  // namespace
}  // namespace lockstep
