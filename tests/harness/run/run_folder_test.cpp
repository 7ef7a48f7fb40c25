#include "harness/run/run_folder.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/errors.h"
#include "harness/base/json.h"
#include "harness/verdict/config/canonical.h"
#include "tests/support/fake_files.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

PlannedRun a_run() {
  PlannedRun run;
  run.id = "1x24-global-s0";
  run.role = RunRole::reference;
  run.cell = "1x24 global";
  run.hash = config_hash(run.config);
  return run;
}

TEST(RunFolder, StatesTheConfigAndWhereItRan) {
  const TempFolder folder;
  ASSERT_EQ(::setenv("OMP_SCHEDULE", "static", 1), 0);
  prepare_run_folder(folder / "runs/a", a_run(), {"b", "2.13.0", "avx2", "d"});
  ::unsetenv("OMP_SCHEDULE");
  const auto json = nlohmann::json::parse(read_text(folder / "runs/a/run.json"));
  EXPECT_EQ(json.at("config"), nlohmann::json::parse(canonical_json(RunConfig{})));
  EXPECT_EQ(json.at("config_hash"), config_hash(RunConfig{}));
  EXPECT_EQ(json.at("role"), "reference");
  EXPECT_EQ(json.at("cell"), "1x24 global");
  const auto& facts = json.at("provenance");
  EXPECT_EQ(facts.at("build"), "b");
  EXPECT_EQ(facts.at("libtorch"), "2.13.0");
  EXPECT_EQ(facts.at("threads_per_rank"), "1");
  EXPECT_THAT(facts.at("bits_depend_on").get<std::string>(), testing::HasSubstr("threads_per_rank"));
  EXPECT_EQ(facts.at("env.OMP_SCHEDULE"), "static");
  EXPECT_FALSE(facts.at("started").get<std::string>().empty());
  for (const auto& [key, value] : facts.items()) EXPECT_TRUE(value.is_string()) << key;
}

TEST(RunFolder, RemovesWhatAnEarlierAttemptLeft) {
  const TempFolder folder;
  prepare_run_folder(folder / "runs/a", a_run(), {});
  write_text(folder / "runs/a/rank-7.trace", "old");
  prepare_run_folder(folder / "runs/a", a_run(), {});
  EXPECT_FALSE(std::filesystem::exists(folder / "runs/a/rank-7.trace"));
  EXPECT_TRUE(std::filesystem::exists(folder / "runs/a/run.json"));
}

TEST(RunFolder, KeepsCheckpointsTracesAndLogsOfARunThatGoesOn) {
  const TempFolder folder;
  const std::string dir = folder / "runs/a";
  PlannedRun run = a_run();
  run.config.checkpoint.every = 10;
  run.hash = config_hash(run.config);
  const BuildIdentity identity{"b", "2.13.0", "avx2", "d"};
  prepare_run_folder(dir, run, identity, "data");
  EXPECT_FALSE(goes_on(dir, run, identity, "data")) << "it has no checkpoint";
  std::filesystem::create_directories(dir + "/checkpoints/epoch_0_step_10");
  for (const char* name : {"rank-0.trace", "rank-0.log", "rank-0.result.json", "store", "rank-0.trace.new"})
    write_text(dir + "/" + name, "old");
  EXPECT_TRUE(goes_on(dir, run, identity, "data"));
  prepare_run_folder(dir, run, identity, "data");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre("checkpoints", "rank-0.trace", "rank-0.log", "run.json"));
}

TEST(RunFolder, IsMadeAnewWhereTheRunIsAnotherOneOrHasNoCheckpoints) {
  const TempFolder folder;
  const std::string dir = folder / "runs/a";
  PlannedRun run = a_run();
  run.config.checkpoint.every = 10;
  run.hash = config_hash(run.config);
  const BuildIdentity identity{"b", "2.13.0", "avx2", "d"};
  prepare_run_folder(dir, run, identity, "data");
  std::filesystem::create_directories(dir + "/checkpoints/epoch_0_step_10");
  EXPECT_FALSE(goes_on(dir, run, {"another program", "2.13.0", "avx2", "d"}, "data"));
  EXPECT_FALSE(goes_on(dir, run, identity, "other data"));
  PlannedRun other = run;
  other.hash = "another config";
  EXPECT_FALSE(goes_on(dir, other, identity, "data"));
  PlannedRun plain = run;
  plain.config.checkpoint = {};
  EXPECT_FALSE(goes_on(dir, plain, identity, "data"));
  write_text(dir + "/done", "it finished");
  EXPECT_FALSE(goes_on(dir, run, identity, "data"));
  std::filesystem::remove(dir + "/done");
  EXPECT_TRUE(goes_on(dir, run, identity, "data"));
  prepare_run_folder(dir, other, identity, "data");
  EXPECT_FALSE(std::filesystem::exists(dir + "/checkpoints"));
}

TEST(RunFolder, SaysWhichFolderCannotBeMade) {
  const TempFolder folder;
  write_text(folder / "runs", "a file");
  try {
    prepare_run_folder(folder / "runs/a", a_run(), {});
    FAIL() << "nothing was thrown";
  } catch (const MachineError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(folder / "runs/a"));
  }
}

TEST(RunFolder, IsEmptiedBeforeItsRunIsDescribed) {
  const TempFolder folder;
  support::FakeFiles files;
  prepare_run_folder(folder / "runs/a", a_run(), {}, "", files);
  files.operations.resize(9);
  // Each new folder's name is durable before anything is put into it.
  EXPECT_THAT(files.operations, ElementsAre("remove all a", "make a", "open folder", "sync folder", "close folder", "open folder", "sync folder",
                                            "close folder", "create run.json.tmp"));
}

TEST(RunFolder, SaysWhatCannotBeRemovedMadeOrWritten) {
  const TempFolder folder;
  const std::string dir = folder / "runs/a";
  std::filesystem::create_directories(dir);  // its folder is made anew each time
  const std::pair<std::size_t, std::string> wanted[] = {
      {0, dir + ": cannot remove what an earlier attempt left: Input/output error"},
      {1, dir + ": cannot be created: Input/output error"},
      {3, folder / "runs/" + ": cannot sync: Input/output error"},
      {5, dir + "/run.json: cannot create: Input/output error"},
      {7, dir + "/run.json: cannot sync: Input/output error"}};
  for (const auto& [at, said] : wanted) {
    support::FakeFiles files;
    files.fail(at, EIO);
    try {
      prepare_run_folder(dir, a_run(), {}, "", files);
      ADD_FAILURE() << "nothing was thrown: " << said;
    } catch (const MachineError& error) {
      EXPECT_EQ(error.what(), said);
    }
  }
}

// A run that is not marked is run again; a mark that says less than there is would be worse.
TEST(RunFolder, IsNotFinishedByAMarkThatCouldNotBeWritten) {
  const TempFolder folder;
  support::FakeFiles files;
  files.fail(1, ENOSPC);
  EXPECT_THROW(write_done(folder.path(), a_run(), {}, 1.5, files), MachineError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RunFolder, KeepsTheHashesThatDecideReuse) {
  const TempFolder folder;
  write_text(folder / "rank-0.trace", std::string(70000, '0'));
  write_text(folder / "rank-0.log", "not judged");
  write_done(folder.path(), a_run(), {"b", "t", "i", "d"}, 1.5);
  const auto json = nlohmann::json::parse(read_text(folder / "done"));
  EXPECT_EQ(json.at("config_hash"), config_hash(RunConfig{}));
  EXPECT_EQ(json.at("build"), "b");
  EXPECT_EQ(json.at("libtorch"), "t");
  EXPECT_EQ(json.at("isa"), "i");
  EXPECT_EQ(json.at("data"), "d");
  EXPECT_EQ(json.at("seconds"), 1.5);
  EXPECT_EQ(seal_problem(json), "");
  const auto& files = json.at("files");
  EXPECT_EQ(files.size(), 1U);
  EXPECT_EQ(files.at("rank-0.trace").at("bytes"), 70000);
  EXPECT_EQ(files.at("rank-0.trace").at("xxh3").size(), 2U);
}

TEST(RunFolder, SealsTheDescriptionOfTheRun) {
  const TempFolder folder;
  prepare_run_folder(folder / "runs/a", a_run(), {}, "da7a");
  std::string problem;
  const auto run = read_sealed(folder / "runs/a/run.json", problem);
  ASSERT_TRUE(run) << problem;
  EXPECT_EQ(run->at("data_hash"), "da7a");
  prepare_run_folder(folder / "runs/a", a_run(), {});
  EXPECT_FALSE(read_sealed(folder / "runs/a/run.json", problem)->contains("data_hash")) << "not known";
}

TEST(PlannedData, IsWhatRanksMustHaveRead) {
  EXPECT_NO_THROW(require_planned_data("a", "a", 2));
  EXPECT_NO_THROW(require_planned_data("", "b", 2)) << "a run that was not planned on any";
  try {
    require_planned_data("a", "b", 2);
    FAIL() << "nothing was thrown";
  } catch (const MachineError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("the data changed while the matrix ran: its hash was a when the runs "
                                   "were planned, and rank 2 read b"));
  }
}

TEST(LastLines, GivesTheEndAndNoControlCharacters) {
  const TempFolder folder;
  write_text(folder / "log", "one\ntwo \x1b[31mred\nthree without an end");
  EXPECT_THAT(last_lines(folder / "log", 2), ElementsAre("two red", "three without an end"));
  EXPECT_THAT(last_lines(folder / "none", 2), ElementsAre());
  write_text(folder / "long", std::string(200000, 'x') + "\nend\n");
  const auto lines = last_lines(folder / "long", 20);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_LT(lines[0].size(), 500U);
  EXPECT_EQ(lines[1], "end");
}

}  // namespace
}  // namespace lockstep
