#include "harness/run/watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "harness/base/errors.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

TEST(HeartbeatFile, ShowsToObserversWhatEachRankReports) {
  const TempFolder folder;
  const HeartbeatFile launcher = HeartbeatFile::create(folder / "beat", 3);
  HeartbeatFile ranks = HeartbeatFile::open(folder / "beat", 3);
  EXPECT_EQ(launcher.step(1), -1);
  EXPECT_EQ(launcher.operation(1), "");
  const uint64_t before = launcher.changes(1);
  ranks.report(1, 17, "all_gather loss.actions");
  EXPECT_EQ(launcher.step(1), 17);
  EXPECT_EQ(launcher.operation(1), "all_gather loss.actions");
  EXPECT_GT(launcher.changes(1), before);
  EXPECT_EQ(launcher.step(0), -1);
  EXPECT_EQ(launcher.changes(2), 0U);
  EXPECT_FALSE(launcher.shown(1));
  for (const double value : {0.43, 0.0, -1.5}) {
    ranks.show(1, value);
    EXPECT_EQ(launcher.shown(1), value);
  }
  EXPECT_FALSE(launcher.shown(0));
}

TEST(HeartbeatFile, CutsLongOperations) {
  const TempFolder folder;
  HeartbeatFile heartbeat = HeartbeatFile::create(folder / "beat", 1);
  heartbeat.report(0, 0, std::string(200, 'x').c_str());
  EXPECT_EQ(heartbeat.operation(0), std::string(47, 'x'));
}

TEST(HeartbeatFile, GivesWholeOperationsWhileARankWritesThem) {
  const TempFolder folder;
  const HeartbeatFile launcher = HeartbeatFile::create(folder / "beat", 1);
  const std::string a(40, 'a'), b(40, 'b');
  std::atomic<bool> go{true};
  std::thread rank([&] {
    HeartbeatFile own = HeartbeatFile::open(folder / "beat", 1);
    for (int64_t step = 0; go; ++step) own.report(0, step, (step % 2 == 0 ? a : b).c_str());
  });
  int whole = 0, mixed = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string seen = launcher.operation(0);
    if (seen.empty()) continue;
    (seen == a || seen == b ? whole : mixed) += 1;
  }
  go = false;
  rank.join();
  EXPECT_EQ(mixed, 0) << "of " << whole + mixed;
}

TEST(HeartbeatFile, TakesWhatARankHasReportedElsewhere) {
  const TempFolder folder;
  HeartbeatFile there = HeartbeatFile::create(folder / "there", 2), here = HeartbeatFile::create(folder / "here", 2);
  here.take(1, there.note(1));
  EXPECT_EQ(here.changes(1), 0U) << "one that has reported nothing has reported nothing";
  there.enter(1, HeartbeatGroup::gradients);
  there.report(1, 4, "all_reduce grad");
  there.resident(1, 4096);
  there.show(1, 0.5);
  here.take(1, there.note(1));
  EXPECT_EQ(here.step(1), 4);
  EXPECT_EQ(here.changes(1), there.changes(1));
  EXPECT_EQ(here.operation(1), "all_reduce grad");
  EXPECT_EQ(here.entered(1, HeartbeatGroup::gradients), 1U);
  EXPECT_EQ(here.resident(1), 4096);
  EXPECT_EQ(here.shown(1), 0.5);
  EXPECT_EQ(here.changes(0), 0U);
}

TEST(HeartbeatFile, ThatIsCutShortEndsNobodyAndIsMendedByTheNextReport) {
  const TempFolder folder;
  const HeartbeatFile launcher = HeartbeatFile::create(folder / "beat", 2);
  HeartbeatFile ranks = HeartbeatFile::open(folder / "beat", 2);
  ranks.announce(1, {17, 5, 3});
  ranks.enter(1, HeartbeatGroup::data);
  ranks.report(1, 4, "forward");
  std::filesystem::resize_file(folder / "beat", 0);
  EXPECT_EQ(launcher.step(1), -1);
  EXPECT_EQ(launcher.changes(1), 0U);
  EXPECT_EQ(launcher.note(0).operation, "");
  ranks.report(1, 5, "backward");
  EXPECT_EQ(launcher.step(1), 5);
  EXPECT_EQ(launcher.operation(1), "backward");
  EXPECT_EQ(launcher.entered(1, HeartbeatGroup::data), 1U);
  EXPECT_EQ(launcher.process(1), (ProcessId{17, 5, 3}));
  EXPECT_EQ(launcher.step(0), -1) << "zeros are no report";
}

TEST(HeartbeatFile, RefusesAFileOfAnotherWorldSize) {
  const TempFolder folder;
  const HeartbeatFile launcher = HeartbeatFile::create(folder / "beat", 2);
  EXPECT_THROW(HeartbeatFile::open(folder / "beat", 3), MachineError);
  EXPECT_THROW(HeartbeatFile::open(folder / "none", 2), MachineError);
  EXPECT_THROW(HeartbeatFile::create(folder / "no/folder", 2), MachineError);
}

}  // namespace
}  // namespace lockstep
