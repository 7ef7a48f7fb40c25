// Ranks that are told to end while they train, save or have not begun: as processes, with real signals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "harness/lib/checkpoint/preemption/preemption.h"
#include "tests/support/checkpoint_ranks.h"
#include "tests/support/temp_folder.h"

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
    std::vector<std::unique_ptr<SocketGroup>> groups = make_socket_groups(kRanks);
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.push_back(::fork());
      if (ranks.back() != 0) continue;
      for (int other = 0; other < kRanks; ++other) {
        if (other != rank) groups[static_cast<std::size_t>(other)]->close();
      }
      board_->process[static_cast<std::size_t>(rank)] = ::getpid();
      ::_exit(train(rank, *groups[static_cast<std::size_t>(rank)], at));
    }
    for (auto& group : groups) group->close();
    std::vector<int> codes;
    for (const pid_t process : ranks) {
      int status = 0;
      ::waitpid(process, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    return codes;
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
