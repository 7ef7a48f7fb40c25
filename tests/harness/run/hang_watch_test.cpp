#include "harness/run/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>

#include "harness/base/machine.h"
#include "harness/run/host.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// What the kernel would say of a rank's process.
struct Pretended {
  ProcessState state{'S', "futex_wait"};
  ProcessView::Since since;
};

class PretendedView : public ProcessView {
 public:
  explicit PretendedView(Pretended& process) : process_(process) {}
  void mark(double) override { process_.since = {}; }
  Since since(double) override { return process_.since; }
  ProcessState state() override { return process_.state; }

 private:
  Pretended& process_;
};

/// Three ranks, a threshold of a second for everything, a clock that the test turns.
class HangWatchTest : public testing::Test {
 protected:
  HangWatchTest() { watch_.started({101, 102, 103}, 0); }
  /// Looks as often as the watch asks for, until there is an alarm; its time, or 0.
  double alarm_before(double until) {
    for (now_ += watch_.next_look_s(now_); now_ < until; now_ += watch_.next_look_s(now_)) {
      if (tell_) tell_(now_);
      alarm_ = watch_.look(heartbeat_, now_);
      if (alarm_) return now_;
    }
    return 0;
  }
  void all_but(int rank, const char* operation, double at) {
    now_ = at;
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      heartbeat_.enter(other, HeartbeatGroup::data);
      heartbeat_.report(other, 5, operation);
    }
    watch_.look(heartbeat_, at);
  }
  Pretended& process(int rank) { return processes_[101 + rank]; }

  const Thresholds limits_{1, 1, 1, 1, 1};
  const TempFolder folder_;
  HeartbeatFile heartbeat_ = HeartbeatFile::create(folder_ / "beat", 3);
  std::map<int, Pretended> processes_;
  HangWatch watch_{3, limits_, 0, [this](int pid) { return std::make_unique<PretendedView>(processes_[pid]); }};
  std::optional<Stalled> alarm_;
  double now_ = 0;
  std::function<void(double now)> tell_;  ///< what another host says, before each look
};

TEST_F(HangWatchTest, NamesAStoppedRankWithinAHundredthOfTheThreshold) {
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  process(1).state.state = 'T';
  const double at = alarm_before(12);
  EXPECT_GT(at, 11);
  EXPECT_LT(at, 11.01);
  EXPECT_EQ(alarm_->standstill.rank, 1);
  EXPECT_THAT(alarm_->message, HasSubstr("stopped by a signal"));
  EXPECT_FALSE(alarm_->slow);
}

TEST_F(HangWatchTest, NamesWhoStoppedWhereAllWaitInACollective) {
  for (int rank = 0; rank < 3; ++rank) heartbeat_.enter(rank, HeartbeatGroup::data), heartbeat_.report(rank, 5, "all_reduce grad");
  now_ = 10;
  watch_.look(heartbeat_, now_);
  process(2).state.state = 'T';
  EXPECT_LT(alarm_before(12), 11.01);
  EXPECT_EQ(alarm_->standstill.rank, 2);
}

TEST_F(HangWatchTest, TakesTimeWithoutACoreOffTheStandstill) {
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  process(1).since.without_core_s = 0.6;
  const double at = alarm_before(12);
  EXPECT_GT(at, 11.6);
  EXPECT_LT(at, 11.62);
}

TEST_F(HangWatchTest, KnowsOfARankOnAnotherHostWhatIsSaidOfIt) {
  watch_.started({101, -1, 103}, 0);
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  tell_ = [this](double now) { watch_.told(1, {'R', ""}, {.ran_s = 0.5, .without_core_s = 0.4, .all_without_core_s = 0.4, .all_ran_s = 0.5}, now); };
  const double at = alarm_before(12);
  EXPECT_GT(at, 11.4);
  EXPECT_LT(at, 11.42);
  EXPECT_EQ(alarm_->standstill.rank, 1);
  EXPECT_TRUE(alarm_->slow) << alarm_->message;
  EXPECT_EQ(watch_.process_of(1).pid, -1);
  heartbeat_.report(1, 6, "forward");
  all_but(1, "all_reduce grad", 20);
  tell_ = [this](double now) { watch_.told(1, {'T', ""}, {}, now); };
  EXPECT_LT(alarm_before(22), 21.01);
  EXPECT_THAT(alarm_->message, HasSubstr("stopped by a signal"));
}

TEST_F(HangWatchTest, DoesNotJudgeARankElsewhereOfWhichNothingIsHeardAnyMore) {
  watch_.started({101, -1, 103}, 0);
  bool connected = true;
  tell_ = [&](double now) {
    if (connected) watch_.told(1, {'S', "futex_wait"}, {}, now);
  };
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  EXPECT_EQ(alarm_before(10.4), 0);
  connected = false;
  EXPECT_EQ(alarm_before(60), 0) << alarm_->message;
  // The word comes through again: what the rank was silent before that counts, and what it is silent from then on.
  connected = true;
  const double at = alarm_before(62);
  EXPECT_GT(at, 60.25);
  EXPECT_LT(at, 60.7);
  EXPECT_EQ(alarm_->standstill.rank, 1);
}

TEST_F(HangWatchTest, HoldsALinkThatBreaksAgainstNobodyWhereAllWait) {
  watch_.started({-1, -1, -1}, 0);
  for (int rank = 0; rank < 3; ++rank) heartbeat_.enter(rank, HeartbeatGroup::data), heartbeat_.report(rank, 5, "all_reduce grad");
  for (int rank = 0; rank < 3; ++rank) watch_.told(rank, {'S', "ep_poll"}, {}, 10);
  now_ = 10;
  EXPECT_EQ(alarm_before(40), 0) << alarm_->message;
}

TEST_F(HangWatchTest, DoesNotJudgeARankElsewhereOfWhichNobodyTells) {
  watch_.started({101, -1, 103}, 0);
  for (const int rank : {0, 2}) heartbeat_.enter(rank, HeartbeatGroup::data), heartbeat_.report(rank, 5, "all_reduce grad");
  EXPECT_EQ(alarm_before(30), 0) << alarm_->message;
  heartbeat_.report(2, 6, "forward");
  EXPECT_LT(alarm_before(33), 32);
  EXPECT_EQ(alarm_->standstill.rank, 2);
}

TEST_F(HangWatchTest, AddsUpTheCoresThatRanksOfOneCollectiveLacked) {
  for (int rank = 0; rank < 3; ++rank) heartbeat_.enter(rank, HeartbeatGroup::data), heartbeat_.report(rank, 5, "all_reduce grad");
  now_ = 10;
  watch_.look(heartbeat_, now_);
  for (int rank = 0; rank < 3; ++rank) process(rank).since.all_without_core_s = 0.2;
  const double at = alarm_before(12);
  EXPECT_GT(at, 11.6);
  EXPECT_LT(at, 11.62);
}

TEST_F(HangWatchTest, WaitsForNobodysCoreWhereARankIsStopped) {
  for (int rank = 0; rank < 3; ++rank) heartbeat_.enter(rank, HeartbeatGroup::data), heartbeat_.report(rank, 5, "all_reduce grad");
  now_ = 10;
  watch_.look(heartbeat_, now_);
  process(0).since.all_without_core_s = 0.5;
  process(1).state.state = 'T';
  EXPECT_LT(alarm_before(12), 11.01);
  EXPECT_EQ(alarm_->standstill.rank, 1);
}

TEST_F(HangWatchTest, GivesAThreadThatIsReadyALittleTimeAndNotAllThatItSlept) {
  heartbeat_.report(1, 5, "load key");
  all_but(1, "all_reduce grad", 10);
  process(1).since.uncounted_s = 0.9;
  double asked = 0;
  while (!alarm_ && asked < 12) {
    asked = now_ += watch_.next_look_s(now_);
    alarm_ = watch_.look(heartbeat_, now_);
    if (now_ > 11) process(1).since.uncounted_s = 0;  // it polls, and sleeps again
  }
  EXPECT_TRUE(alarm_);
  EXPECT_LT(asked, 11.06);
}

TEST_F(HangWatchTest, HoldsAWaitForADiskAgainstNobodyForTwentyThresholds) {
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  process(1).state.state = 'D';
  EXPECT_EQ(alarm_before(25), 0);
  EXPECT_GT(alarm_before(40), 30);
}

TEST_F(HangWatchTest, IsLateByNoMoreThanATwentyfifthForLooksThatItMissed) {
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  process(1).state.state = 'T';
  for (const double late : {10.3, 10.7, 10.99}) {
    watch_.look(heartbeat_, late);
    now_ = late;
  }
  const double at = alarm_before(12);
  EXPECT_GT(at, 11.039);
  EXPECT_LT(at, 11.05);
}

TEST_F(HangWatchTest, GivesRanksThatWokeUpWithItTheTimeToSaySo) {
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  EXPECT_FALSE(watch_.look(heartbeat_, 11.001)) << "nobody looked for a second: the machine may have stood still";
  heartbeat_.report(1, 5, "backward");
  EXPECT_FALSE(watch_.look(heartbeat_, 11.05));
}

TEST_F(HangWatchTest, GivesRanksTheirThresholdAnewOnceWhereWhoWatchesWasStopped) {
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  EXPECT_EQ(alarm_before(10.9), 0);
  watch_.resumed(6, now_);
  const double resumed = now_;
  EXPECT_EQ(alarm_before(resumed + 0.9), 0);
  watch_.resumed(6, now_);  // it has reported nothing since
  EXPECT_LT(alarm_before(resumed + 1.2), resumed + 1.05);
  EXPECT_EQ(alarm_->standstill.rank, 1);
}

TEST_F(HangWatchTest, NamesNobodyWhileALauncherHasNotSaidHowARankEndedWhoseProcessIsGone) {
  for (const int rank : {0, 1}) heartbeat_.enter(rank, HeartbeatGroup::data), heartbeat_.report(rank, 5, "all_reduce grad");
  heartbeat_.report(2, 5, "teardown");
  now_ = 10;
  watch_.look(heartbeat_, now_);
  process(2).state.state = '?';
  EXPECT_EQ(alarm_before(20), 0) << alarm_->message;
  EXPECT_LT(alarm_before(22), 21.2) << "nothing is said of it any more";
}

TEST_F(HangWatchTest, ClaimsNothingOfAProcessThatIsNotSeenFromHere) {
  const Thresholds limits{1, 1, 1, 1, 1, 3};
  watch_ = HangWatch(3, limits, 0, [this](int pid) { return std::make_unique<PretendedView>(processes_[pid]); });
  watch_.started({101, 102, 103}, 0);
  heartbeat_.announce(1, {17, 1, 1});
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  EXPECT_EQ(watch_.process_of(1).pid, -1);
  EXPECT_LT(alarm_before(12), 11.1);
  EXPECT_FALSE(alarm_->ends) << "it may compute";
  EXPECT_THAT(alarm_->message, HasSubstr("is not seen from here"));
  while (alarm_before(20) > 0 && !alarm_->ends) {
  }
  EXPECT_GT(now_, 12.9);
  EXPECT_LT(now_, 13.2);
  EXPECT_FALSE(alarm_->slow) << "nobody saw it compute";
}

TEST_F(HangWatchTest, IsSilentOnARankThatIsLateByHalfTheThreshold) {
  for (int round = 0; round < 200; ++round) {
    const double at = 10 + round;
    heartbeat_.report(round % 3, round, "forward");
    all_but(round % 3, "all_reduce grad", at);
    ASSERT_EQ(alarm_before(at + 0.5), 0) << round;
    for (int rank = 0; rank < 3; ++rank) heartbeat_.report(rank, round + 1, "train");
    watch_.look(heartbeat_, now_);
    ASSERT_EQ(alarm_before(at + 0.99), 0) << round;
  }
}

TEST_F(HangWatchTest, TellsAProcessThatComputesFromOneThatSleeps) {
  heartbeat_.report(1, 5, "forward");
  all_but(1, "all_reduce grad", 10);
  process(1).state.state = 'R';
  process(1).since.all_ran_s = 0.99;
  EXPECT_GT(alarm_before(12), 11);
  EXPECT_TRUE(alarm_->slow);
  EXPECT_THAT(alarm_->message, HasSubstr("slow, or in a loop"));
}

TEST_F(HangWatchTest, CallsARankSlowThatComputesInAnyThread) {
  heartbeat_.report(1, 5, "evaluate");
  all_but(1, "all_reduce grad", 10);
  process(1) = {{'S', "futex_do_wait"}, {.all_ran_s = 0.99}};  // its first thread sleeps
  EXPECT_GT(alarm_before(12), 11);
  EXPECT_TRUE(alarm_->slow) << alarm_->message;
}

TEST_F(HangWatchTest, NamesWhoComputesWhereAllLoadOrWaitForWhoDoes) {
  for (int rank = 0; rank < 3; ++rank) heartbeat_.report(rank, 0, rank == 0 ? "rendezvous" : "load data");
  now_ = 10;
  watch_.look(heartbeat_, now_);
  for (const int rank : {1, 2}) process(rank) = {{'R', ""}, {.all_ran_s = 0.99}};
  EXPECT_GT(alarm_before(12), 11);
  EXPECT_TRUE(alarm_->slow) << alarm_->message;
  EXPECT_NE(alarm_->standstill.rank, 0) << alarm_->message;
}

/// Processes of a clock: rank 1 computes until a time, and sleeps from then on.
class SlowRank : public HangWatchTest {
 protected:
  class View : public ProcessView {
   public:
    View(const double& now, double until) : now_(now), until_(until) {}
    void mark(double now) override { marked_at_ = now; }
    Since since(double now) override { return {.all_ran_s = std::max(0.0, std::min(now, until_) - marked_at_)}; }
    ProcessState state() override { return {now_ < until_ ? 'R' : 'S', ""}; }

   private:
    const double& now_;
    double until_, marked_at_ = 0;
  };
  void computes_for(double seconds) {
    computes_until_ = 10 + seconds;
    watch_.started({101, 102, 103}, 0);
    for (const int rank : {0, 2}) {
      heartbeat_.enter(rank, HeartbeatGroup::data);
      heartbeat_.report(rank, 5, "all_reduce grad");
    }
    heartbeat_.report(1, 5, "evaluate");
    now_ = 10;
    watch_.look(heartbeat_, now_);
  }
  double computes_until_ = 0;
  HangWatch watch_{3, {1, 1, 1, 1, 1, 5}, 0, [this](int pid) {
                     return std::make_unique<View>(now_, pid == 102 ? computes_until_ : 0);
                   }};
  std::vector<Stalled> alarms_before(double until) {
    std::vector<Stalled> alarms;
    for (now_ += watch_.next_look_s(now_); now_ < until; now_ += watch_.next_look_s(now_)) {
      if (auto alarm = watch_.look(heartbeat_, now_)) alarms.push_back(*std::move(alarm));
      if (!alarms.empty() && alarms.back().ends) break;
    }
    return alarms;
  }
};

TEST_F(SlowRank, IsToldOnceAThresholdAndEndedAtItsOwnLimit) {
  computes_for(100);
  const std::vector<Stalled> alarms = alarms_before(30);
  ASSERT_EQ(alarms.size(), 5U);
  for (const Stalled& each : alarms) {
    EXPECT_TRUE(each.slow) << each.message;
    EXPECT_EQ(each.standstill.rank, 1);
    EXPECT_EQ(each.ends, &each == &alarms.back());
  }
  EXPECT_NEAR(now_, 15, 0.1);
}

TEST_F(SlowRank, IsNamedWithinAThresholdOnceItStandsStill) {
  computes_for(2.6);
  const std::vector<Stalled> alarms = alarms_before(30);
  ASSERT_FALSE(alarms.empty());
  EXPECT_FALSE(alarms.back().slow) << alarms.back().message;
  EXPECT_TRUE(alarms.back().ends);
  EXPECT_EQ(alarms.back().standstill.rank, 1);
  EXPECT_LT(now_, 12.6 + 2.05) << "the threshold in which it fell asleep, and one more";
}

/// A child that does what it is told until it is killed.
class Child {
 public:
  explicit Child(bool computes) : pid_(::fork()) {
    if (pid_ != 0) return;
    volatile uint64_t count = 0;
    while (computes) count = count + 1;
    for (;;) ::pause();
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  int pid() const { return pid_; }

 private:
  pid_t pid_;
};

/// The kernel books a wait for a core when it ends: of a span that ends within one, as most do on a loaded machine, a part is missing.
TEST(LiveView, AccountsForAllOfAComputingProcessesTime) {
  const Child child(true);
  const auto view = live_view(child.pid());
  constexpr int kSpans = 100;
  double most = 0;
  for (int span = 0; span < kSpans && most <= 0.8; ++span) {
    const double from = monotonic_s();
    view->mark(from);
    while (monotonic_s() < from + 0.1) {
    }
    const double to = monotonic_s();
    const ProcessView::Since since = view->since(to);
    most = std::max(most, (since.ran_s + since.without_core_s) / (to - from));
  }
  EXPECT_GT(most, 0.8);
  EXPECT_EQ(view->state().stopped(), false);
}

TEST(LiveView, SeesNoLackOfACoreWhereAProcessSleepsOrIsStopped) {
  const Child child(false);
  for (const bool stops : {false, true}) {
    if (stops) ::kill(child.pid(), SIGSTOP);
    while (process_state(child.pid()).state != (stops ? 'T' : 'S')) {
    }
    const auto view = live_view(child.pid());
    const double from = monotonic_s();
    view->mark(from);
    while (monotonic_s() < from + 0.05) {
    }
    EXPECT_LT(view->since(monotonic_s()).all_without_core_s, 0.01) << stops;
  }
}

TEST(LiveView, SaysNothingOfAProcessThatIsGone) {
  const auto view = live_view(1 << 30);
  view->mark(1);
  EXPECT_EQ(view->since(2).all_without_core_s, 0);
  EXPECT_EQ(view->state().state, '?');
}

TEST(Tracer, OfAProcessIsNamed) {
  EXPECT_EQ(tracer_of(::getpid()), "");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_THAT(tracer_of(pid), HasSubstr("process " + std::to_string(::getpid()) + " ("));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST(Urgent, GivesItsPriorityBackAndItsChildrenToo) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  {
    const Urgent urgent;
    EXPECT_LE(::getpriority(PRIO_PROCESS, 0), before);
    const pid_t pid = ::fork();
    if (pid == 0) {
      Urgent::be_ordinary();
      ::_exit(::getpriority(PRIO_PROCESS, 0) == before ? 0 : 1);
    }
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);
}

}  // namespace
}  // namespace lockstep
