#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "harness/base/text.h"
#include "harness/suites/checkpoint/saver/kill.h"
#include "harness/suites/power_loss/power_disk.h"
#include "tests/support/suite_run.h"
#include "tests/support/whole.h"

// A slice of every search over the saver library: the good code is silent, each planted mistake is found and named.

namespace lockstep {
namespace {

using support::expect_silent;
using support::fact;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

SuiteResult run(const std::string& section, const std::string& only = "") {
  return support::run_tried(saver_suite(), "name: slice\nlaboratory: saver\nsaver: {" + section + "}\n", only);
}

/// The one planted mistake of that trial, which must be found.
SuiteFinding found(const std::string& section, const std::string& mutant) {
  const SuiteResult result = run(section, "planted:" + mutant);
  EXPECT_EQ(result.faults, 0) << (result.findings.empty() ? "" : result.findings[0].sentence);
  if (result.findings.size() != 1 || result.findings[0].verdict != CaseVerdict::planted) {
    ADD_FAILURE() << mutant << " is not found";
    return {};
  }
  return result.findings[0];
}

TEST(KillSearch, FindsNothingInTheSaverAsItIs) {
  const SuiteResult result = run("search: kill, world_sizes: [1, 3], points: 8, process_points: 1, planted: false");
  expect_silent(result, 7 * (8 + 2 * 8) + 14);
  EXPECT_EQ(fact(result, "kill points of processes, SIGKILL on the machine's disk"), "14");
}

TEST(KillSearch, FindsWhatIsPlanted) {
  const std::string section = "search: kill, world_sizes: [1], points: 1, process_points: 1";
  EXPECT_EQ(found(section, "delete_before_commit").outcome, "planted, found: torn");
  if (support::whole()) {
    EXPECT_EQ(found(section, "latest_before_commit").outcome, "planted, found: torn");
    EXPECT_EQ(found(section, "one_file_name").outcome, "planted, found: lost work");
  }
  const SuiteFinding finding = found(section, "skipped_committed");
  EXPECT_EQ(finding.outcome, "planted, found: lost work");
  EXPECT_THAT(finding.sentence, HasSubstr("is killed within its operation"));
  EXPECT_THAT(finding.timeline, Not(IsEmpty()));
}

TEST(ScheduleSearch, FindsNothingInTheSaverAsItIs) {
  const int points = support::whole_or(1, 2);
  const SuiteResult result = run("search: schedules, points: " + std::to_string(points) + ", planted: false");
  expect_silent(result, 9 * points);
}

TEST(ScheduleSearch, FindsWhatIsPlanted) {
  const std::string section = "search: schedules, points: 1";
  EXPECT_EQ(found(section, "exists_per_rank").outcome, "planted, found: mixed");
  EXPECT_THAT(found(section, "one_file_name").sentence, HasSubstr("stops before its operation"));
}

TEST(PowerSearch, FindsNothingInTheSaverAsItIs) {
  const SuiteResult result = run("search: power, world_sizes: [2], points: 3, planted: false");
  expect_silent(result, 200);
  EXPECT_EQ(fact(result, "loads that took what no save had saved"), "0");
}

TEST(PowerSearch, FindsWhatIsPlantedAndNamesTheModel) {
  const std::string section = "search: power, world_sizes: [1], points: 0";
  const SuiteFinding finding = found(section, "no_folder_sync");
  EXPECT_EQ(finding.outcome, "planted, found: lost work");
  EXPECT_THAT(finding.sentence, HasSubstr("(ordered journal that flushes on rename)"));
  EXPECT_EQ(finding.timeline.back().operation, "the power goes");
  EXPECT_EQ(found(section, "latest_before_commit").outcome, "planted, found: torn");
}

TEST(CorruptionSearch, FindsNothingInTheSaverAsItIs) {
  const int points = support::whole_or(1, 3);
  const SuiteResult result = run("search: corruption, points: " + std::to_string(points) + ", planted: false");
  expect_silent(result, support::whole_or(1500, 5000));
  EXPECT_THAT(fact(result, "clean loads"), HasSubstr("with a word about damage: 0"));
}

TEST(CorruptionSearch, NamesEveryBadInput) {
  const SuiteResult result = run("search: corruption", "failure==bad input");
  expect_silent(result, 13);
}

TEST(CorruptionSearch, SeesDamageThatNoSealShows) {
  EXPECT_EQ(found("search: corruption, points: 1", "sealed_damage").outcome, "planted, found: silent");
}

TEST(ErrorSearch, FindsNothingInTheSaverAsItIs) {
  const SuiteResult result = run("search: errors, world_sizes: [1, 2], points: 12, planted: false");
  expect_silent(result, 6 * 2 * 12 + 2);
}

TEST(ErrorSearch, TakesNoSlowFileForAHang) {
  const SuiteResult result = run("search: errors, world_sizes: [2], planted: false", "failure==slow");
  expect_silent(result, 6 * 2);
}

TEST(ErrorSearch, FindsWhatIsPlanted) {
  const std::string section = "search: errors, world_sizes: [2], points: 1";
  EXPECT_EQ(found(section, "skipped_finished").outcome, "planted, found: told apart");
  EXPECT_THAT(found(section, "skipped_renamed").outcome, HasSubstr("planted, found"));
}

TEST(PlantedMistake, ThatIsNotFoundIsTheFault) {
  using namespace saver;
  const auto verdict = [](std::string_view harmless, bool is_found) {
    const auto search = [is_found] {
      return MutantFound{.found = is_found, .tried = 9, .outcome = "torn", .sentence = "It is torn."};
    };
    const SuiteRun run;
    Slot slot(run, 0);
    return mutant_trial("no_lock", "any", harmless, search).run(slot)[0].verdict;
  };
  EXPECT_EQ(verdict("", true), CaseVerdict::planted);
  EXPECT_EQ(verdict("", false), CaseVerdict::fault);
  EXPECT_EQ(verdict("the lock holds", true), CaseVerdict::fault);
  EXPECT_EQ(verdict("the lock holds", false), CaseVerdict::good);
}

TEST(SaverConfig, NamesWhatIsMissing) { EXPECT_THROW(run("points: 3"), ConfigError); }

}  // namespace
}  // namespace lockstep

// What a power loss may leave, model by model.

namespace lockstep::power {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

/// What programs do in "/d", where "/d/b" may stand.
struct Done {
  DiskModel model;
  PowerDisk disk;
  int number = 0;
  std::map<std::string, int> open = {};

  explicit Done(DiskModel of, const std::string& stood = "") : model(of), disk(of) {
    disk.stand("/d", NodeType::folder);
    if (!stood.empty()) disk.stand("/d/b", NodeType::file, stood);
  }
  Done& create(const std::string& path) { return open[path] = disk.make(number++, path, NodeType::file), *this; }
  Done& write(const std::string& path, const std::string& bytes) { return disk.write(number++, open.at(path), 0, bytes), *this; }
  Done& resize(const std::string& path, uint64_t bytes) { return disk.resize(number++, disk.find(path), bytes), *this; }
  Done& rename(const std::string& from, const std::string& to) { return disk.rename(number++, from, to), *this; }
  Done& remove(const std::string& path) { return disk.remove(number++, path), *this; }
  Done& sync(const std::string& path) { return disk.sync_file(open.at(path)), *this; }
  Done& sync_folder(const std::string& path) { return disk.sync_folder(disk.find(path)), *this; }

  /// Every disk that may be left, as "name=bytes" in one line each.
  std::set<std::string> left() const {
    bool all = false;
    std::set<std::string> result;
    for (const Remains& remains : disk.ways(5000, 1, all)) {
      std::string line;
      for (const Standing& each : disk.standing(remains)) {
        if (each.type != NodeType::folder) line += each.path.substr(3) + "=" + each.bytes + " ";
      }
      result.insert(line);
    }
    EXPECT_TRUE(all);
    return result;
  }
};

Done replaced(DiskModel model, const std::string& stood = "") {
  Done done(model, stood);
  done.create("/d/a").write("/d/a", "new").rename("/d/a", "/d/b");
  return done;
}

TEST(PowerDisk, LosesWhatWasNotSyncedInAnySubset) {
  EXPECT_THAT(replaced(DiskModel::least, "old").left(), ElementsAre("a= b=old ", "a=new b=old ", "b= ", "b=new ", "b=old "));
}

TEST(PowerDisk, KeepsWhatWasSynced) {
  for (const DiskModel model : kDiskModels) {
    Done done(model, "old");
    done.create("/d/a").write("/d/a", "new").sync("/d/a").rename("/d/a", "/d/b");
    if (model == DiskModel::ordered) {
      EXPECT_THAT(done.left(), ElementsAre("a=new b=old ", "b=new "));
    }
    EXPECT_THAT(done.sync_folder("/d").left(), ElementsAre("b=new ")) << words_of(model);
  }
}

TEST(PowerDisk, FlushesOnARenameWhereTheModelDoes) {
  EXPECT_THAT(replaced(DiskModel::ordered, "old").left(), Contains("b= "));
  EXPECT_THAT(replaced(DiskModel::flush_on_rename, "old").left(), Not(Contains("b= ")));
  // It replaces nothing: nothing is flushed.
  EXPECT_THAT(replaced(DiskModel::flush_on_rename).left(), Contains("b= "));
}

TEST(PowerDisk, KeepsNamesInTheirOrderWithAJournal) {
  for (const DiskModel model : {DiskModel::ordered, DiskModel::least}) {
    Done done(model);
    done.create("/d/x").create("/d/y");
    if (model == DiskModel::ordered) {
      EXPECT_THAT(done.left(), ElementsAre("", "x= ", "x= y= "));
    } else {
      EXPECT_THAT(done.left(), ElementsAre("", "x= ", "x= y= ", "y= "));
    }
  }
}

TEST(PowerDisk, TearsAWriteAtSectors) {
  const std::string half(512, 'w'), hole(512, '\0'), whole(1024, 'w');
  const auto written = [&](DiskModel model) {
    return Done(model).create("/d/x").sync_folder("/d").write("/d/x", whole).left();
  };
  EXPECT_THAT(written(DiskModel::least),
              testing::UnorderedElementsAre("x= ", "x=" + half + " ", "x=" + hole + half + " ", "x=" + whole + " "));
  EXPECT_THAT(written(DiskModel::ordered), testing::UnorderedElementsAre("x= ", "x=" + half + " ", "x=" + whole + " "));
}

TEST(PowerDisk, TearsALongWriteAtNoMorePlacesThanAsked) {
  PowerDisk disk(DiskModel::ordered, 3);
  disk.write(1, disk.make(0, "/x", NodeType::file), 0, std::string(1 << 20, 'w'));
  bool all = false;
  EXPECT_EQ(disk.ways(100, 1, all).size(), 2U * 5U);
}

TEST(PowerDisk, CutsAFileShortAndLosesTheCut) {
  EXPECT_THAT(Done(DiskModel::least, "old").resize("/d/b", 1).left(), ElementsAre("b=o ", "b=old "));
}

TEST(PowerDisk, MovesAFileIntoAnotherFolder) {
  Done done(DiskModel::least);
  done.disk.stand("/e", NodeType::folder);
  done.create("/d/a").write("/d/a", "new").sync("/d/a").sync_folder("/d").rename("/d/a", "/e/b");
  EXPECT_THAT(done.left(), ElementsAre("a=new ", "b=new "));
  EXPECT_THAT(done.sync_folder("/e").left(), ElementsAre("a=new b=new ", "b=new "));
}

TEST(PowerDisk, SaysWhichOperationWasLost) {
  PowerDisk disk(DiskModel::least);
  disk.make(7, "/x", NodeType::file);
  EXPECT_EQ(disk.lost({1}).at(7), "not durable, lost");
  EXPECT_TRUE(disk.lost({0}).empty());
  EXPECT_NE(disk.hash({0}), disk.hash({1}));
}

TEST(PowerDisk, KnowsTheLastOperationOnAFile) {
  PowerDisk disk(DiskModel::least);
  const int node = disk.make(1, "/x", NodeType::file);
  disk.write(2, node, 0, "a");
  disk.write(3, node, 1, "b");
  EXPECT_EQ(disk.standing({0, 0, 0}).front().changed, 3);
  EXPECT_EQ(disk.standing({0, 0, 1}).front().changed, 2);
}

}  // namespace
}  // namespace lockstep::power
