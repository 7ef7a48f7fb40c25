// A save in which an operation fails: every rank hears of it, the older checkpoint stays, and the next save
// succeeds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "harness/base/machine.h"
#include "tests/support/checkpoint_ranks.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;
using testing::AllOf;
using testing::HasSubstr;

struct Faulty {
  std::vector<SaveOutcome> outcomes;
  std::vector<std::string> seen;
};

/// Saves step 11 on two ranks over step 10; one rank's operation fails. Kept savers save step 12 afterwards,
/// without a fault.
Faulty save_with(MemoryStorage& disk, int rank_of_fault, FaultHook& hook, bool again) {
  Faulty result;
  result.outcomes.resize(2);
  Seam seam(hook);
  HookedStorage hooked(disk, seam);
  run_ranks(2, [&](int rank, Group& group) {
    Saver saver(save_options(), rank == rank_of_fault ? static_cast<Storage&>(hooked) : disk, group);
    result.outcomes[static_cast<std::size_t>(rank)] = saver.save({1, 11}, state_at(11, rank, 2));
    if (rank == rank_of_fault) {
      result.seen = hook.seen;
      hook.fail_at = -1;
    }
    if (!again) return;
    const SaveOutcome next = saver.save({1, 12}, state_at(12, rank, 2));
    EXPECT_EQ(next.saved, Saved::committed) << next.problem;
  });
  return result;
}

class FailingOperation : public testing::TestWithParam<int> {};

TEST_P(FailingOperation, IsToldToAllRanksAndLosesNothing) {
  for (const int rank : {0, 1}) {
    for (const bool performed : {false, true}) {
      // What was interrupted has done nothing.
      if (performed && GetParam() == EINTR) continue;
      for (int64_t at = 0;; ++at) {
        MemoryStorage disk;
        prepare(disk);
        save_on(disk, 10, 2);
        FaultHook hook;
        hook.fail_at = at;
        hook.error = GetParam();
        hook.performed = performed;
        const Faulty faulty = save_with(disk, rank, hook, false);
        if (static_cast<int64_t>(faulty.seen.size()) <= at) break;
        const std::string where = faulty.seen[static_cast<std::size_t>(at)];
        EXPECT_EQ(faulty.outcomes[0].saved, faulty.outcomes[1].saved) << where;
        EXPECT_EQ(faulty.outcomes[0].problem, faulty.outcomes[1].problem) << where;
        EXPECT_NE(faulty.outcomes[0].saved, Saved::unknown) << where;
        const bool saved = faulty.outcomes[0].saved == Saved::committed;
        EXPECT_EQ(wrong_with(load_on(disk, 2), saved ? 11 : 10), "") << where;
        // What failed is told, as the reason or as a remark; but looking, reading and closing what was read.
        const bool read_only = where.starts_with("open") || where.starts_with("read") ||
                               where.starts_with("stat") || where.starts_with("list") ||
                               where.starts_with("close");
        if (GetParam() != EINTR && !read_only && !performed) {
          const std::string remarks = testing::PrintToString(faulty.outcomes[0].remarks);
          EXPECT_THAT(faulty.outcomes[0].problem + remarks, HasSubstr(std::strerror(GetParam()))) << where;
        }
      }
    }
  }
}

TEST_P(FailingOperation, LeavesASaverThatSavesTheNextStep) {
  for (int64_t at = 0;; at += 3) {
    MemoryStorage disk;
    prepare(disk);
    save_on(disk, 10, 2);
    FaultHook hook;
    hook.fail_at = at;
    hook.error = GetParam();
    const Faulty faulty = save_with(disk, 0, hook, true);
    EXPECT_EQ(wrong_with(load_on(disk, 2), 12), "") << at;
    if (static_cast<int64_t>(faulty.seen.size()) <= at) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Errnos, FailingOperation, testing::Values(ENOSPC, EIO, EINTR), [](const auto& at) {
  return at.param == ENOSPC ? "ENOSPC" : at.param == EIO ? "EIO" : "EINTR";
});

TEST(SaveErrors, NameTheRankTheFileAndTheReason) {
  MemoryStorage disk;
  prepare(disk);
  FaultHook hook;
  hook.error = ENOSPC;
  hook.fail_at = 1;  // rank 1's first write
  const Faulty faulty = save_with(disk, 1, hook, false);
  ASSERT_THAT(faulty.seen[1], HasSubstr("write"));
  for (const SaveOutcome& outcome : faulty.outcomes) {
    EXPECT_EQ(outcome.saved, Saved::failed);
    EXPECT_THAT(outcome.problem,
                AllOf(HasSubstr("epoch_1_step_11 was not saved"), HasSubstr("rank 1"),
                      HasSubstr("rank-1-of-2.safetensors: cannot write: No space left on device")));
  }
}

TEST(SaveErrors, AreFinalForAFileWhoseSyncFailed) {
  MemoryStorage disk;
  prepare(disk);
  FaultHook hook;
  hook.error = EIO;
  hook.fail_at = 2;
  const Faulty faulty = save_with(disk, 1, hook, false);
  EXPECT_THAT(faulty.seen, testing::ElementsAre(HasSubstr("create"), HasSubstr("write"), HasSubstr("sync"),
                                                HasSubstr("close"), HasSubstr("unlink")));
  EXPECT_EQ(faulty.outcomes[0].saved, Saved::failed);
}

TEST(SaveErrors, AreNoneWhereWritesAreShort) {
  MemoryStorage disk;
  prepare(disk);
  FaultHook hook;
  hook.most_bytes = 100;
  const Faulty faulty = save_with(disk, 0, hook, false);
  EXPECT_EQ(faulty.outcomes[0].saved, Saved::committed);
  EXPECT_EQ(wrong_with(load_on(disk, 2), 11), "");
}

/// Opening files whose paths end so fails.
class Unreadable final : public Hook {
 public:
  std::vector<std::string> ends;
  Intervention before(const Operation& operation) override {
    for (const std::string& end : ends) {
      if (operation.kind == OperationKind::open && operation.path.ends_with(end))
        return {.error = {EIO, std::generic_category()}};
    }
    return {};
  }
};

TEST(SaveErrors, DoNotMakeASaveOlderThanWhatItCouldNotRead) {
  MemoryStorage disk;
  prepare(disk);
  for (const int64_t step : {10, 11, 12}) save_on(disk, step, 1);
  Unreadable hook;
  Seam seam(hook);
  HookedStorage storage(disk, seam);
  hook.ends = {"epoch_1_step_12/commit.json", "epoch_1_step_12/manifest.json"};
  const SaveOutcome refused = save_on(storage, 5, 1)[0];
  EXPECT_EQ(refused.saved, Saved::failed);
  EXPECT_THAT(refused.problem, HasSubstr("epoch_1_step_12: commit.json: cannot read: Input/output error: nobody can tell"));
  // The manifest tells its place.
  hook.ends.pop_back();
  EXPECT_TRUE(save_on(storage, 5, 1)[0]);
  EXPECT_EQ(wrong_with(load_on(disk, 1), 5), "");
}

/// Counts the signs of progress.
class CountingGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Gathered all_gather(const std::string&, const std::string& mine, double) override { return {{mine}, ""}; }
  void progress() override { ++signs; }
  int64_t signs = 0;
};

TEST(SaveErrors, AreNotMadeOfASlowDiskWhoseEveryOperationIsASign) {
  MemoryStorage disk;
  prepare(disk);
  Recorder recorder;
  Seam seam(recorder);
  HookedStorage storage(disk, seam);
  CountingGroup group;
  EXPECT_TRUE(Saver(save_options(), storage, group).save({1, 11}, state_at(11, 0, 1)));
  EXPECT_GE(group.signs, seam.count());
  const int64_t saved = seam.count(), signs = group.signs;
  EXPECT_TRUE(load(load_options(), storage, group));
  EXPECT_GE(group.signs - signs, seam.count() - saved);
}

TEST(SaveErrors, TellOfARankThatIsGoneAtOnce) {
  MemoryStorage disk;
  prepare(disk);
  save_on(disk, 10, 3);
  std::vector<SaveOutcome> outcomes(3);
  const double start_s = monotonic_s();
  run_ranks(3, [&](int rank, Group& group) {
    if (rank == 2) return;
    outcomes[static_cast<std::size_t>(rank)] =
        Saver(save_options(), disk, group).save({1, 11}, state_at(11, rank, 3));
  });
  EXPECT_LT(monotonic_s() - start_s, 5);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].saved, Saved::failed);
    EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)].problem, HasSubstr("rank 2 ended"));
  }
  EXPECT_EQ(wrong_with(load_on(disk, 3), 10), "");
}

TEST(SaveErrors, TellOfRanksThatSaveOtherThings) {
  const auto problem_of = [](const std::function<void(int, SaveRequest&, SaveOptions&, State&)>& change) {
    MemoryStorage disk;
    prepare(disk);
    std::string problems[2];
    run_ranks(2, [&](int rank, Group& group) {
      SaveRequest request{1, 11};
      SaveOptions options = save_options();
      State state = state_at(11, rank, 2);
      change(rank, request, options, state);
      problems[rank] = Saver(options, disk, group).save(request, state).problem;
    });
    EXPECT_EQ(problems[0], problems[1]);
    EXPECT_THAT(disk.paths(), testing::Not(testing::Contains(HasSubstr("epoch"))));
    return problems[0];
  };
  EXPECT_THAT(problem_of([](int rank, SaveRequest& request, SaveOptions&, State&) { request.step += rank; }),
              HasSubstr("step: rank 0 has 11, rank 1 has 12"));
  EXPECT_THAT(problem_of([](int rank, SaveRequest&, SaveOptions& options, State&) {
                if (rank == 1) options.config_hash = "other";
              }),
              HasSubstr("config_hash: rank 0 has \"config\", rank 1 has \"other\""));
  EXPECT_THAT(problem_of([](int rank, SaveRequest&, SaveOptions&, State& state) {
                if (rank == 1) state[kind::patience].values["checks_left"] = 2;
              }),
              HasSubstr("early-stop patience: rank 1 holds other tensors or values than rank 0"));
  EXPECT_THAT(problem_of([](int rank, SaveRequest&, SaveOptions&, State& state) {
                if (rank == 1) state[kind::moments].tensors[0].slice = {9, 15};
                if (rank == 1)
                  state[kind::moments].tensors[0].bytes = state[kind::moments].tensors[0].bytes.first(24);
              }),
              HasSubstr("moments: first_moment/w: elements 7 to 9 are held by no rank"));
  EXPECT_THAT(problem_of([](int rank, SaveRequest&, SaveOptions&, State& state) {
                if (rank == 1)
                  state[kind::parameters].tensors[0].bytes =
                      state[kind::parameters].tensors[0].bytes.first(8);
              }),
              HasSubstr("rank 1: parameters: w: 60 bytes expected of elements 0 to 15, found 8"));
  EXPECT_THAT(problem_of([](int, SaveRequest& request, SaveOptions& options, State&) {
                request.best = true;
                options.keep_last = 1;
              }),
              HasSubstr("keep_last: at least 2 expected, found 1"));
}

TEST(SaveErrors, LeaveAForeignFolderAlone) {
  MemoryStorage disk;
  prepare(disk);
  disk.put_file(std::string(kRoot) + "/epoch_1_step_11/notes.txt", "mine");
  const std::vector<SaveOutcome> outcomes = save_on(disk, 11, 2);
  EXPECT_THAT(outcomes[1].problem,
              HasSubstr("epoch_1_step_11: it holds notes.txt, which is no part of a checkpoint"));
  EXPECT_EQ(*disk.bytes(std::string(kRoot) + "/epoch_1_step_11/notes.txt"), "mine");
  EXPECT_TRUE(save_on(disk, 12, 2)[0]);
  EXPECT_EQ(*disk.bytes(std::string(kRoot) + "/epoch_1_step_11/notes.txt"), "mine");
}

TEST(SaveErrors, KeepASecondProcessOut) {
  MemoryStorage disk;
  prepare(disk);
  save_on(disk, 10, 1);
  int lock = -1;
  ASSERT_FALSE(disk.lock(std::string(kRoot) + "/.lock", lock));
  EXPECT_THAT(save_on(disk, 11, 2)[1].problem, HasSubstr("another process saves into this folder now"));
  disk.close(lock);
  EXPECT_TRUE(save_on(disk, 11, 2)[1]);
}

}  // namespace
}  // namespace lockstep::checkpoint
