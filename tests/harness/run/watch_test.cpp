#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/job_queue.h"
#include "harness/run/watch.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Three ranks under a clock that the test turns.
class RunWatchTest : public testing::Test {
 protected:
  void report(int rank, int64_t step, const char* operation, double at) {
    heartbeat_.report(rank, step, operation);
    watch_.look(heartbeat_, at);
  }
  /// The rank enters the next collective of its data, and waits in it.
  void enter(int rank, int64_t step, const char* operation, double at) {
    heartbeat_.enter(rank, HeartbeatGroup::data);
    report(rank, step, operation, at);
  }
  const Thresholds limits_{10, 1, 5, 3, 2};
  const TempFolder folder_;
  HeartbeatFile heartbeat_ = HeartbeatFile::create(folder_ / "beat", 3);
  RunWatch watch_{3, 100};
};

TEST_F(RunWatchTest, CountsFromTheStartUntilAnythingIsReported) {
  EXPECT_EQ(watch_.deadline(60), 160);
}

TEST_F(RunWatchTest, NamesTheRankThatIsBehind) {
  struct Report {
    int rank;
    int64_t step;
    const char* operation;
    double at;
    bool enters = false;
  };
  struct Row {
    const char* what;
    std::vector<Report> reports;
    int behind;
    double deadline = 0;  ///< of 60 s; 0: it is not asked
  };
  const char* const gather = "all_gather loss.actions";
  const std::vector<Row> rows = {
      {"the lowest step", {{0, 5, "all_reduce", 101}, {1, 4, "all_reduce", 101}, {2, 5, "all_reduce", 101}}, 1, 161},
      {"something else, though reported last", {{2, 5, "train", 103}, {0, 5, gather, 101}, {1, 5, gather, 102}}, 2},
      {"another collective", {{0, 5, "all_reduce bucket 0", 101}, {2, 5, "all_reduce bucket 0", 102}, {1, 5, gather, 103}}, 1},
      {"reported longest ago", {{0, 5, "train", 103}, {1, 5, "train", 101}, {2, 5, "train", 102}}, 1},
      {"ranks ahead of it report", {{1, 4, "train", 101}, {0, 5, "all_reduce", 130}, {2, 5, "all_reduce", 150}}, 1, 161},
      {"not entered, though a step ahead",
       {{0, 5, "all_reduce w", 101, true}, {2, 5, "all_reduce w", 102, true}, {1, 6, "forward", 103}}, 1},
      {"it works, and has just reported",
       {{0, 5, "evaluate", 101}, {1, 5, "barrier", 101}, {2, 5, "barrier", 101}, {0, 5, "evaluate", 190}}, 0, 250},
  };
  for (const Row& row : rows) {
    heartbeat_ = HeartbeatFile::create(folder_ / row.what, 3);
    watch_ = RunWatch(3, 100);
    for (const Report& each : row.reports) {
      if (each.enters) enter(each.rank, each.step, each.operation, each.at);
      else report(each.rank, each.step, each.operation, each.at);
    }
    EXPECT_EQ(watch_.behind(), row.behind) << row.what;
    if (row.deadline > 0) {
      EXPECT_EQ(watch_.deadline(60), row.deadline) << row.what;
    }
  }
  heartbeat_ = HeartbeatFile::create(folder_ / "two", 3);
  watch_ = RunWatch(3, 100);
  report(0, 5, gather, 101);
  report(1, 5, "train", 102);
  watch_.ended(2);
  EXPECT_EQ(watch_.behind(), 1) << "rank 0 waits for it";
}

TEST_F(RunWatchTest, ForgetsRanksThatHaveEnded) {
  report(1, 1, "train", 101);
  report(0, 5, "train", 120);
  report(2, 5, "train", 121);
  watch_.ended(1);
  EXPECT_EQ(watch_.behind(), 0);
  EXPECT_TRUE(watch_.alive(0));
  watch_.ended(0);
  watch_.ended(2);
  EXPECT_EQ(watch_.behind(), -1);
}

TEST_F(RunWatchTest, HoldsARankToTheThresholdOfWhatItDoes) {
  enter(0, 5, "barrier saved", 101);
  enter(1, 5, "barrier saved", 101);
  report(2, 5, "evaluate", 101);
  EXPECT_FALSE(watch_.standstill(limits_, 105.9)) << "an evaluation may take 5 s";
  const auto found = watch_.standstill(limits_, 106.1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->phase, WatchPhase::evaluation);
  EXPECT_EQ(found->waiting, (std::vector<int>{0, 1}));
  EXPECT_EQ(found->awaited, "barrier saved");
  EXPECT_EQ(found->sequence, 1U);
}

TEST_F(RunWatchTest, IsSilentOnAStragglerWithinItsThreshold) {
  for (int step = 0; step < 1000; ++step) {
    const double at = 101 + step;
    report(0, step, "forward", at);
    enter(1, step, "all_reduce w", at);
    enter(2, step, "all_reduce w", at);
    EXPECT_FALSE(watch_.standstill(limits_, at + 0.5));
    enter(0, step, "all_reduce w", at + 0.5);
    EXPECT_FALSE(watch_.standstill(limits_, at + 0.9));
  }
}

TEST_F(RunWatchTest, NamesOneOfRanksThatAllWaitInDifferentCollectives) {
  enter(0, 5, "all_reduce w", 101);
  enter(2, 5, "all_reduce w", 101);
  heartbeat_.enter(1, HeartbeatGroup::gradients);
  report(1, 5, "reduce_gradients", 101);
  EXPECT_FALSE(watch_.standstill(limits_, 101.9));
  const auto found = watch_.standstill(limits_, 102.1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->waiting, (std::vector<int>{0, 2}));
}

TEST_F(RunWatchTest, LetsASaveGoOnWhileAnyRankReportsProgress) {
  report(0, 5, "save", 101);
  enter(1, 5, "barrier saved", 101);
  report(2, 5, "save", 101);
  report(0, 5, "save", 103);
  EXPECT_FALSE(watch_.standstill(limits_, 105.9));
  EXPECT_TRUE(watch_.standstill(limits_, 106.1));
}

TEST_F(RunWatchTest, NamesAStoppedProcessWhereAllWaitAlike) {
  for (const int rank : {0, 1, 2}) enter(rank, 5, "all_reduce w", 101);
  EXPECT_EQ(watch_.standstill(limits_, 103, [](int rank) { return rank == 2; })->rank, 2);
}

TEST_F(RunWatchTest, NamesAStoppedProcessAmongRanksThatAreEquallyFarBehind) {
  for (const int rank : {0, 1, 2}) enter(rank, 5, "all_gather rows", 101);
  enter(1, 5, "broadcast target", 102);  // it had what it needed from the stopped one
  const auto found = watch_.standstill(limits_, 104, [](int rank) { return rank == 2; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2) << "rank 0 has reported no less, and waits for it";
}

TEST_F(RunWatchTest, ForgivesTimeInWhichNobodyLooked) {
  for (const int rank : {0, 1, 2}) report(rank, 5, "forward", 101);
  watch_.forgive(10);
  EXPECT_FALSE(watch_.standstill(limits_, 111.5));
  EXPECT_TRUE(watch_.standstill(limits_, 112.5));
}

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
  /// Rank 1 is where it was, and the others wait for it from second 10 on.
  void rank_1_is_behind(const char* in = "forward") {
    heartbeat_.report(1, 5, in);
    all_but(1, "all_reduce grad", 10);
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

TEST_F(HangWatchTest, JudgesByWhatTheKernelSaysOfProcesses) {
  const ProcessState sleeps{'S', "futex_wait"};
  const Pretended stopped{{'T', ""}, {}};
  struct Row {
    const char* what;
    bool all_wait;  ///< in one collective; else for rank 1
    std::map<int, Pretended> processes;
    double after, before;
    int rank = -1;
    const char* says = "";
    bool slow = false;
  };
  const Row rows[] = {
      {"one is stopped", false, {{1, stopped}}, 11, 11.01, 1, "stopped by a signal"},
      {"it is stopped where all wait", true, {{2, stopped}}, 11, 11.01, 2},
      {"it lacked a core", false, {{1, {sleeps, {.without_core_s = 0.6}}}}, 11.6, 11.62, 1},
      {"all of a collective lacked one, which adds up", true,
       {{0, {sleeps, {.all_without_core_s = 0.2}}}, {1, {sleeps, {.all_without_core_s = 0.2}}}, {2, {sleeps, {.all_without_core_s = 0.2}}}}, 11.6, 11.62},
      {"nobody's core counts where one is stopped", true, {{0, {sleeps, {.all_without_core_s = 0.5}}}, {1, stopped}}, 11, 11.01, 1},
      {"it waits for a disk, for twenty thresholds", false, {{1, {{'D', ""}, {}}}}, 30, 40, 1},
      {"it computes", false, {{1, {{'R', ""}, {.all_ran_s = 0.99}}}}, 11, 12, 1, "slow, or in a loop", true},
      {"it computes in another thread than its first", false, {{1, {{'S', "futex_do_wait"}, {.all_ran_s = 0.99}}}}, 11, 12, 1, "", true},
  };
  for (const Row& row : rows) {
    heartbeat_ = HeartbeatFile::create(folder_ / row.what, 3);
    watch_ = HangWatch(3, limits_, 0, [this](int pid) { return std::make_unique<PretendedView>(processes_[pid]); });
    watch_.started({101, 102, 103}, 0);
    for (auto& [pid, process] : processes_) process = {};
    if (row.all_wait) all_but(-1, "all_reduce grad", 10);
    else rank_1_is_behind();
    for (const auto& [rank, its] : row.processes) process(rank) = its;
    const double at = alarm_before(row.before);
    ASSERT_GT(at, row.after) << row.what;
    EXPECT_TRUE(row.rank < 0 || alarm_->standstill.rank == row.rank) << row.what << ": rank " << alarm_->standstill.rank;
    EXPECT_THAT(alarm_->message, HasSubstr(row.says)) << row.what;
    EXPECT_EQ(alarm_->slow, row.slow) << row.what;
  }
}

TEST_F(HangWatchTest, KnowsOfARankOnAnotherHostWhatIsSaidOfIt) {
  watch_.started({101, -1, 103}, 0);
  rank_1_is_behind();
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
  rank_1_is_behind();
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

TEST_F(HangWatchTest, HearsNothingFromTheHostThatIsSilentNotFromARankThatEndedBeforeAllWereThere) {
  watch_.ended(1);
  watch_.started({101, -1, -1}, 0);
  EXPECT_EQ(watch_.unheard(2).rank, 2);
}

TEST_F(HangWatchTest, DoesNotJudgeARankElsewhereOfWhichNobodyTells) {
  watch_.started({101, -1, 103}, 0);
  for (const int rank : {0, 2}) heartbeat_.enter(rank, HeartbeatGroup::data), heartbeat_.report(rank, 5, "all_reduce grad");
  EXPECT_EQ(alarm_before(30), 0) << alarm_->message;
  heartbeat_.report(2, 6, "forward");
  EXPECT_LT(alarm_before(33), 32);
  EXPECT_EQ(alarm_->standstill.rank, 2);
}

TEST_F(HangWatchTest, GivesAThreadThatIsReadyALittleTimeAndNotAllThatItSlept) {
  rank_1_is_behind("load key");
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

TEST_F(HangWatchTest, IsLateByNoMoreThanATwentyfifthForLooksThatItMissed) {
  rank_1_is_behind();
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
  rank_1_is_behind();
  EXPECT_FALSE(watch_.look(heartbeat_, 11.001)) << "nobody looked for a second: the machine may have stood still";
  heartbeat_.report(1, 5, "backward");
  EXPECT_FALSE(watch_.look(heartbeat_, 11.05));
}

TEST_F(HangWatchTest, GivesRanksTheirThresholdAnewOnceWhereWhoWatchesWasStopped) {
  rank_1_is_behind();
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
  rank_1_is_behind();
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
