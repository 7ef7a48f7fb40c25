#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/preemption/preemption.h"
#include "harness/lib/data/sharding/control_guard.h"
#include "tests/support/checkpoint_ranks.h"
#include "tests/support/temp_folder.h"

// Ranks that are told to end while they train, save or have not begun: as processes, with real signals.

namespace lockstep {
namespace {

using namespace checkpoint;
using namespace checkpoint::support;

const std::vector<int> kSignals{SIGTERM, SIGUSR1};

/// What the processes of one run tell the test.
struct Board {
  std::array<std::atomic<int64_t>, 4> stopped_at{};  ///< by rank; 0: it did not stop in order
  std::array<std::atomic<pid_t>, 4> process{};
};

class Preempted : public testing::Test {
 protected:
  static constexpr int kRanks = 3;
  void SetUp() override {
    void* const place = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    board_ = new (place) Board();
    options_.root = folder_ / "checkpoints";
    options_.config_hash = "config";
  }
  void TearDown() override { ::munmap(board_, sizeof(Board)); }

  /// A rank that would take a million steps. `at(step, rank)` is called in each, after its collective of the step.
  int train(int rank, Group& group, const std::function<void(int64_t, int)>& at) {
    const PreemptionSignals signals(kSignals);
    Preemption preemption(signals, {.grace_s = 20});
    Saver saver(options_, posix_storage(), group);
    for (int64_t step = 1; step < 1'000'000; ++step) {
      at(step, rank);
      std::string problem;
      const bool ends = preemption.agree(group, 20, problem);
      if (!problem.empty()) return 1;
      if (!ends) continue;
      if (preemption.left_s() <= 0) return 2;
      if (!saver.save({0, step}, state_at(step, rank, kRanks))) return 3;
      board_->stopped_at[static_cast<std::size_t>(rank)] = step;
      return preemption.exit_code();
    }
    return 4;
  }

  /// Three ranks; their exit codes, or the signals that ended them with a minus.
  std::vector<int> launch(const std::function<void(int64_t, int)>& at) {
    return run_processes(kRanks, [&](int rank, Group& group) {
      board_->process[static_cast<std::size_t>(rank)] = ::getpid();
      return train(rank, group, at);
    });
  }

  void expect_saved_at_one_step() {
    const int64_t step = board_->stopped_at[0];
    EXPECT_GT(step, 0);
    for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(board_->stopped_at[static_cast<std::size_t>(rank)], step);
    LoadOptions from = load_options();
    from.root = options_.root;
    EXPECT_EQ(wrong_with(load_on(posix_storage(), kRanks, from), step), "");
  }

  TempFolder folder_;
  SaveOptions options_;
  Board* board_ = nullptr;
};

TEST_F(Preempted, OneRanksSignalEndsAllAfterTheSameStepWithItsCode) {
  const auto codes = launch([](int64_t step, int rank) {
    if (step == 7 && rank == 2) ::raise(SIGUSR1);
  });
  EXPECT_THAT(codes, testing::Each(128 + SIGUSR1));
  EXPECT_EQ(board_->stopped_at[0], 7);
  expect_saved_at_one_step();
}

TEST_F(Preempted, RepeatedSignalsToAllRanksChangeNothing) {
  const auto codes = launch([this](int64_t step, int rank) {
    if (step == 5 && rank == 1)
      for (int to = 0; to < kRanks; ++to) ::kill(board_->process[static_cast<std::size_t>(to)], SIGTERM);
    if (rank == 0 && step > 5) ::raise(SIGTERM);
  });
  EXPECT_THAT(codes, testing::Each(128 + SIGTERM));
  expect_saved_at_one_step();
}

TEST_F(Preempted, RanksThatGotDifferentSignalsEndWithOneCode) {
  const auto codes = launch([](int64_t step, int rank) {
    if (step == 3 && rank != 1) ::raise(rank == 0 ? SIGUSR1 : SIGTERM);
  });
  EXPECT_THAT(codes, testing::Each(128 + SIGTERM));
  expect_saved_at_one_step();
}

/// Planted: a rank that ends with the right code and does not let the others know.
TEST_F(Preempted, ARankThatStopsAloneShowsInTheOthersCodes) {
  const auto codes = launch([](int64_t step, int rank) {
    if (step == 7 && rank == 2) ::_exit(128 + SIGUSR1);
  });
  EXPECT_THAT(codes, testing::ElementsAre(1, 1, 128 + SIGUSR1));
  for (const auto& step : board_->stopped_at) EXPECT_EQ(step, 0);
}

/// Planted: a handler that serves once, so that the second signal ends the process before its last save.
TEST_F(Preempted, ASecondSignalThatEndsARankShowsInItsStatus) {
  const auto codes = launch([](int64_t step, int rank) {
    if (step != 5 || rank != 1) return;
    ::raise(SIGTERM);
    ::signal(SIGTERM, SIG_DFL);
    ::raise(SIGTERM);
  });
  EXPECT_THAT(codes, testing::ElementsAre(1, -SIGTERM, 1));
  for (const auto& step : board_->stopped_at) EXPECT_EQ(step, 0);
}

TEST(PreemptionSignals, ComeThoughTheyWereSentBeforeTheHandlerStood) {
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
  ::raise(SIGUSR1);
  const PreemptionSignals signals(kSignals);
  EXPECT_EQ(signals.first(), SIGUSR1);
  EXPECT_EQ(signals.count(), 1);
  EXPECT_GT(signals.first_at_s(), 0);
}

TEST(Preemption, KeepsTheConfiguredCodeAndCountsItsGrace) {
  const PreemptionSignals signals(kSignals);
  Preemption preemption(signals, {.grace_s = 30, .exit_code = 85});
  EXPECT_FALSE(preemption.heard(preemption.tells()));
  EXPECT_EQ(preemption.exit_code(), 0);
  EXPECT_EQ(preemption.left_s(), 30);
  EXPECT_TRUE(preemption.heard(SIGTERM));
  EXPECT_EQ(preemption.exit_code(), 85);
  EXPECT_LE(preemption.left_s(), 30);
  EXPECT_GT(preemption.left_s(), 25);
}

/// A rank's group that never answers.
TEST(Preemption, AgreesOnNothingWhereARankIsGone) {
  auto groups = make_socket_groups(2);
  groups[1]->close();
  const PreemptionSignals signals(kSignals);
  Preemption preemption(signals, {});
  std::string problem;
  EXPECT_FALSE(preemption.agree(*groups[0], 5, problem));
  EXPECT_THAT(problem, testing::HasSubstr("rank 1 ended"));
  EXPECT_EQ(preemption.agreed(), 0);
}

}  // namespace
}  // namespace lockstep

// Control values of ranks that are threads: silent while they agree, and the same name on every rank where
// they do not.

namespace lockstep::sharding {
namespace {

using testing::Each;
using testing::HasSubstr;

struct Ranks {
  int64_t step = 4;
  bool stop = false;
  double rate = 0.1;
  uint64_t parameters = 7;
};

/// What each rank is told about values that `change` makes.
std::vector<ControlVerdict> verdicts(int ranks, const std::function<void(int rank, Ranks&)>& change,
                                     int leaves = -1) {
  checkpoint::ThreadRendezvous meeting(ranks);
  std::vector<ControlVerdict> told(static_cast<std::size_t>(ranks));
  lockstep::support::on_threads(ranks, [&](int rank) {
    const std::unique_ptr<checkpoint::Group> group = meeting.group(rank);
    if (rank == leaves) return;
    Ranks mine;
    change(rank, mine);
    Controls controls;
    controls.add("stop", mine.stop);
    controls.add("learning_rate", mine.rate);
    controls.add_hash("parameters", mine.parameters);
    told[static_cast<std::size_t>(rank)] = ControlGuard(*group, 30).check(mine.step, controls);
  });
  return told;
}

void expect_all(const std::vector<ControlVerdict>& told, const std::string& code, int rank, int64_t step) {
  for (const ControlVerdict& verdict : told) {
    EXPECT_EQ(verdict.code, code) << verdict.sentence;
    EXPECT_EQ(verdict.rank, rank);
    EXPECT_EQ(verdict.step, step);
    EXPECT_EQ(verdict.sentence, told[0].sentence);
  }
}

/// Rank 0 of 4,096: the others tell what it tells, but for one of them.
class ManyRanks final : public checkpoint::Group {
 public:
  explicit ManyRanks(int other) : other_(other) {}
  int rank() const override { return 0; }
  int size() const override { return 4096; }
  checkpoint::Gathered all_gather(const std::string& label, const std::string& mine, double) override {
    checkpoint::Gathered all{std::vector<std::string>(4096, mine), ""};
    if (other_ < 0) return all;
    std::string& told = all.texts[static_cast<std::size_t>(other_)];
    const std::size_t at = told.find("false");
    if (label == "controls")
      told = "0123456789abcdef";
    else
      told.replace(at, 5, "true");
    return all;
  }

 private:
  int other_;
};

TEST(ControlGuard, NamesOneOfManyRanks) {
  Controls controls;
  controls.add("epoch", int64_t{3});
  controls.add("stop", false);
  ManyRanks alike(-1), one_stops(4001);
  EXPECT_EQ(ControlGuard(alike, 30).check(9, controls).sentence, "");
  const ControlVerdict verdict = ControlGuard(one_stops, 30).check(9, controls);
  EXPECT_EQ(verdict.code, "stop_differs");
  EXPECT_EQ(verdict.rank, 4001);
  EXPECT_THAT(verdict.sentence, HasSubstr("4095 of 4096 ranks"));
}

TEST(ControlGuard, IsSilentWhereAllAgree) {
  expect_all(verdicts(4, [](int, Ranks&) {}), "", -1, 0);
}

TEST(ControlGuard, NamesTheFirstRankThatDisagrees) {
  const auto told = verdicts(5, [](int rank, Ranks& mine) { mine.stop = rank >= 3; });
  expect_all(told, "stop_differs", 3, 4);
  EXPECT_EQ(told[0].found, "true");
  EXPECT_EQ(told[0].expected, "false");
  EXPECT_THAT(
      told[0].sentence,
      HasSubstr("step 4: stop is true on rank 3, and false on 3 of 5 ranks; who stops leaves the others "
                "waiting at the next collective"));
}

TEST(ControlGuard, NamesARateOfOnesOwn) {
  const auto told = verdicts(3, [](int rank, Ranks& mine) { mine.rate = rank == 2 ? 0.2 : 0.1; });
  expect_all(told, "learning_rate_differs", 2, 4);
  EXPECT_THAT(told[0].sentence, HasSubstr("the replicas would part with the next update"));
}

TEST(ControlGuard, ClaimsNoMajorityOfTwo) {
  const auto told = verdicts(2, [](int rank, Ranks& mine) { mine.stop = rank == 0; });
  expect_all(told, "stop_differs", 1, 4);
  EXPECT_THAT(told[0].sentence, HasSubstr("stop is false on rank 1, and true on rank 0"));
}

TEST(ControlGuard, NamesTheStepFirst) {
  const auto told = verdicts(3, [](int rank, Ranks& mine) {
    mine.step += rank == 1;
    mine.parameters += rank == 1;
  });
  expect_all(told, "step_differs", 1, 4);
}

TEST(ControlGuard, SeesTheLastBit) {
  expect_all(verdicts(3, [](int rank, Ranks& mine) { mine.rate += rank == 0 ? 5e-18 : 0; }), "", -1, 0);
  expect_all(verdicts(3, [](int rank, Ranks& mine) { mine.rate += rank == 0 ? 1.4e-17 : 0; }),
             "learning_rate_differs", 0, 4);
}

/// What ranks that are processes are told at last, each of values that `change` makes at each step.
std::vector<std::string> told_in_processes(
    int ranks, int64_t steps, const std::function<void(int rank, int64_t step, Ranks&)>& change) {
  const TempFolder folder;
  const auto path = [&](int rank) { return folder.path() + "/" + std::to_string(rank); };
  checkpoint::support::run_processes(ranks, [&](int rank, checkpoint::Group& group) {
    ControlGuard guard(group, 30);
    ControlVerdict verdict;
    for (int64_t step = 0; step < steps && verdict; ++step) {
      Ranks mine;
      mine.step = step;
      change(rank, step, mine);
      Controls controls;
      controls.add("stop", mine.stop);
      controls.add_hash("parameters", mine.parameters);
      verdict = guard.check(step, controls);
    }
    write_text(path(rank), verdict.sentence);
    return 0;
  });
  std::vector<std::string> told;
  for (int rank = 0; rank < ranks; ++rank) told.push_back(read_text(path(rank)));
  return told;
}

TEST(ControlGuard, TellsProcessesBeforeTheyWaitForOneAnother) {
  EXPECT_THAT(told_in_processes(3, 50, [](int, int64_t, Ranks&) {}), Each(""));
  const auto stop = told_in_processes(
      3, 50, [](int rank, int64_t step, Ranks& mine) { mine.stop = rank == 2 && step >= 17; });
  EXPECT_THAT(stop, Each(HasSubstr("step 17: stop is true on rank 2, and false on 2 of 3 ranks")));
  // A replica that is not synchronised has other parameters from step 1 on.
  const auto alone = told_in_processes(
      3, 50, [](int rank, int64_t step, Ranks& mine) { mine.parameters += rank == 1 && step >= 1; });
  EXPECT_THAT(alone, Each(HasSubstr("step 1: parameters is 0000000000000008 on rank 1")));
  const auto killed = told_in_processes(3, 50, [](int rank, int64_t step, Ranks&) {
    if (rank == 0 && step == 9) ::raise(SIGKILL);
  });
  EXPECT_THAT(killed[1], HasSubstr("step 9: control values could not be compared: rank 0 ended"));
  EXPECT_EQ(killed[2], killed[1]);
}

TEST(ControlGuard, TellsOfARankThatIsGone) {
  const auto told = verdicts(3, [](int, Ranks&) {}, 2);
  EXPECT_EQ(told[0].code, "group_broken");
  EXPECT_THAT(told[0].sentence, HasSubstr("step 4: control values could not be compared: rank 2 ended"));
}

}  // namespace
}  // namespace lockstep::sharding
