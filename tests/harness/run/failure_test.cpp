#include "harness/run/failure.h"

#include <gmock/gmock.h>
#include <sys/mount.h>

#include <csignal>
#include <filesystem>

#include "harness/run/run_folder.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class NameFailure : public testing::Test {
 protected:
  NameFailure() {
    ends_.run = "a";
    ends_.dir = folder_.path();
    ends_.world_size = 3;
    ends_.heartbeat = &heartbeat_;
  }
  void result(int rank, const std::string& status, const std::string& error = {}, int64_t steps_done = 9) {
    RankResult result;
    result.rank = rank;
    result.world_size = 3;
    result.status = status;
    result.error = error;
    result.phase = "train";
    result.steps_done = steps_done;
    write_rank_result(rank_result_path(folder_.path(), rank), result);
  }
  void all_finish() {
    for (int rank = 0; rank < 3; ++rank) result(rank, "finished");
  }
  const TempFolder folder_;
  HeartbeatFile heartbeat_ = HeartbeatFile::create(folder_ / "beat", 3);
  RunEnds ends_;
};

TEST_F(NameFailure, FindsNothingWhereEveryRankFinished) {
  all_finish();
  ends_.ends = {{2}, {0}, {1}};
  EXPECT_FALSE(name_failure(ends_));
  ends_.ends = {{-1}};
  EXPECT_FALSE(name_failure(ends_));
}

TEST_F(NameFailure, TellsARunThatWasStoppedInOrderFromOneThatFailed) {
  for (int rank = 0; rank < 3; ++rank) result(rank, "interrupted", "stopped by signal 15 (SIGTERM) after step 7: saved as step 7");
  ends_.ends = {{2, 143}, {0, 143}, {1, 143}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::interrupted);
  EXPECT_EQ(failure->message, "stopped by signal 15 (SIGTERM) after step 7: saved as step 7");
}

TEST_F(NameFailure, NamesARankThatLeftWellBeforeItsWorkWasDoneAndNotWhoWaitedForIt) {
  for (const int rank : {0, 1}) heartbeat_.report(rank, 5, "forward"), result(rank, "failed", "Connection closed by peer");
  ends_.ends = {{2}, {0, 1}, {1, 1}};
  result(2, "finished", "", 5);
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->kind, FailureKind::died);
  EXPECT_EQ(failure->message, "left with status 0 after 5 steps, while rank 0 is at step 5 and waits for it; rank 0: Connection closed by peer");
  EXPECT_FALSE(all_lost_their_peers(ends_));
  result(2, "finished", "", 6);  // it had done what the others were at
  EXPECT_EQ(name_failure(ends_)->rank, 0);
  EXPECT_TRUE(all_lost_their_peers(ends_));
}

TEST_F(NameFailure, KnowsWhatARankSaidOfItselfThoughItsProcessStays) {
  result(1, "failed", "ValueError: no such file");
  ASSERT_TRUE(said_failure(ends_, 1));
  EXPECT_EQ(said_failure(ends_, 1)->kind, FailureKind::threw);
  result(1, "failed", "Connection closed by peer");
  EXPECT_FALSE(said_failure(ends_, 1));
  result(1, "finished");
  EXPECT_FALSE(said_failure(ends_, 1));
  EXPECT_FALSE(said_failure(ends_, 0));
}

TEST_F(NameFailure, NamesARankThatIsLostBeforePeersButAfterOneThatFailed) {
  result(0, "failed", "Connection closed by peer");
  ends_.ends = {{0, 1}, {1, 1, 0, false, "there is no such process"}, {2, 0, 9, true}};
  auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::lost);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->message, "there is no such process");
  ends_.ends.back() = {2, 0, 11};
  failure = name_failure(ends_);
  EXPECT_EQ(failure->kind, FailureKind::died);
  EXPECT_EQ(failure->rank, 2);
}

PlannedRun planned() {
  PlannedRun run;
  run.hash = "c0ffee";
  return run;
}

TEST_F(NameFailure, FindsNothingWrongWithWholeFiles) {
  all_finish();
  EXPECT_FALSE(unreadable_failure(ends_, planned())) << "no traces at the level `off`";
  for (int rank = 0; rank < 3; ++rank) {
    TraceWriter writer(folder_ / ("rank-" + std::to_string(rank) + ".trace"),
                       {"c0ffee", rank, 3, "energy", TraceLevel::hash, "real"});
    writer.finish();
  }
  EXPECT_FALSE(unreadable_failure(ends_, planned()));
}

TEST_F(NameFailure, NamesTheFileThatAFinishedRankLeftDamaged) {
  all_finish();
  const std::string path = folder_ / "rank-1.trace";
  {
    TraceWriter writer(path, {"c0ffee", 1, 3, "energy", TraceLevel::hash, "real"});
    writer.begin_step(0);
    writer.scalar(Phase::loss, "loss", 1, Sharing::own);
    writer.end_step();
    writer.finish();
  }
  const std::string whole = read_text(path);
  std::string damaged = whole;
  damaged[whole.size() - 30] ^= 1;
  write_text(path, damaged);
  auto failure = unreadable_failure(ends_, planned());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::unreadable);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_THAT(failure->message, HasSubstr(path + ": at offset "));
  write_text(path, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(unreadable_failure(ends_, planned())->message, HasSubstr("cut short"));
  write_text(path, whole);
  PlannedRun other;
  other.hash = "decaf";
  EXPECT_THAT(unreadable_failure(ends_, other)->message,
              HasSubstr("config hash c0ffee, where rank 1 of decaf belongs"));
  write_text(rank_result_path(folder_.path(), 2), "{\"schema_version\": 2}");
  std::filesystem::remove(path);
  EXPECT_THAT(unreadable_failure(ends_, planned())->message, HasSubstr("rank-2.result.json has no checksum"));
  RankResult result;
  result.config_hash = "decaf";
  write_rank_result(rank_result_path(folder_.path(), 0), result);
  EXPECT_THAT(
      unreadable_failure(ends_, planned())->message,
      HasSubstr("rank-0.result.json is of a run with the config hash decaf, where c0ffee was expected"));
}

TEST_F(NameFailure, NamesTheOneThatThrewNotThoseThatLostIt) {
  result(0, "failed", "[pair.cc:534] Connection closed by peer [127.0.0.1]:31");
  result(1, "failed", "no such tensor");
  result(2, "failed", "Timed out waiting 1000ms for recv operation to complete");
  heartbeat_.report(1, 17, "forward");
  write_text(rank_log_path(folder_.path(), 1), "first\nlast\n");
  ends_.ends = {{0, 1}, {2, 1}, {1, 1}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->kind, FailureKind::threw);
  EXPECT_EQ(failure->message, "no such tensor");
  EXPECT_EQ(failure->step, 17);
  EXPECT_EQ(failure->operation, "forward");
  EXPECT_THAT(failure->last_lines, ElementsAre("first", "last"));
}

TEST_F(NameFailure, NamesADeadRankThoughItsPeersEndedBefore) {
  result(0, "failed", "Connection reset by peer");
  result(2, "failed", "Broken pipe");
  ends_.ends = {{0, 1}, {2, 1}, {1, 0, SIGSEGV}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->kind, FailureKind::died);
  EXPECT_EQ(failure->message, "killed by signal 11 (SIGSEGV)");
}

TEST_F(NameFailure, DoesNotNameRanksThatTheLauncherKilled) {
  result(2, "failed", "disk on fire");
  ends_.ends = {{0, 0, SIGKILL, true}, {1, 0, SIGKILL, true}, {2, 1}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
}

TEST_F(NameFailure, DoesNotTrustAnExitStatusWithoutAResult) {
  result(0, "finished");
  result(2, "finished");
  ends_.ends = {{0}, {1}, {2}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->message, "exited with status 0 without a result");
}

TEST_F(NameFailure, NoticesACrashAfterTheResult) {
  all_finish();
  ends_.ends = {{0}, {1, 3}, {2}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->message, "exited with status 3 after it had finished");
}

TEST_F(NameFailure, TakesAHalfWrittenResultAsEvidence) {
  all_finish();
  write_text(rank_result_path(folder_.path(), 2), "{\"rank\": 2, ");
  ends_.ends = {{0}, {1}, {2}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_THAT(failure->message, HasSubstr("rank-2.result.json"));
}

TEST_F(NameFailure, FindsTheFailedRankInsideOneProcess) {
  result(0, "failed", "another rank failed");
  result(1, "finished");
  result(2, "failed", "no such tensor");
  write_text(rank_log_path(folder_.path(), -1), "the only log\n");
  ends_.ends = {{-1, 1}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->kind, FailureKind::threw);
  EXPECT_THAT(failure->last_lines, ElementsAre("the only log"));
}

TEST_F(NameFailure, NamesNoRankWhereAProcessOfSeveralWasKilled) {
  ends_.ends = {{-1, 0, SIGKILL}};
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, -1);
  EXPECT_EQ(failure->message, "killed by signal 9 (SIGKILL) (the process that holds all 3 ranks)");
  ends_.world_size = 1;
  EXPECT_EQ(name_failure(ends_)->rank, 0);
}

TEST(OnlyLostItsPeers, TellsConsequencesFromCauses) {
  EXPECT_TRUE(
      only_lost_its_peers("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"));
  EXPECT_TRUE(only_lost_its_peers("Timed out waiting 60000ms for send operation to complete"));
  EXPECT_TRUE(only_lost_its_peers("ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."));
  EXPECT_FALSE(only_lost_its_peers("loss is not finite at step 17"));
  EXPECT_FALSE(only_lost_its_peers(""));
}

/// A file system of 128 KB, gone when the test ends.
class SmallDisk : public testing::Test {
 protected:
  SmallDisk() { there_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=128k") == 0; }
  ~SmallDisk() override {
    if (there_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  const TempFolder folder_;
  bool there_ = false;
};

TEST_F(SmallDisk, IsFullWhenNothingFitsAnyMore) {
  if (!there_) GTEST_SKIP() << "mounting a small file system takes root";
  EXPECT_FALSE(disk_is_full(folder_.path()));
  write_text(folder_ / "filler", std::string(1 << 20, 'x'));
  EXPECT_TRUE(disk_is_full(folder_.path()));
  std::filesystem::remove(folder_ / "filler");
  EXPECT_FALSE(disk_is_full(folder_.path()));
  EXPECT_FALSE(disk_is_full("/nowhere")) << "what cannot be asked is not blamed";
}

}  // namespace
}  // namespace lockstep
