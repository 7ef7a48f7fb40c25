#include "harness/lib/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/checkpoint_ranks.h"
#include "tests/support/whole.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;
using testing::HasSubstr;

TEST(Saver, SavesWhatALoadGivesBack) {
  for (const int size : {1, 2, 3}) {
    MemoryStorage disk;
    prepare(disk);
    for (const SaveOutcome& outcome : save_on(disk, 12, size)) {
      EXPECT_EQ(outcome.saved, Saved::committed) << outcome.problem;
      EXPECT_EQ(outcome.name, "epoch_1_step_12");
      EXPECT_THAT(outcome.remarks, testing::IsEmpty());
    }
    const std::vector<LoadOutcome> loaded = load_on(disk, size);
    EXPECT_EQ(wrong_with(loaded, 12), "");
    EXPECT_THAT(loaded[0].remarks, testing::IsEmpty());
    EXPECT_THAT(loaded[0].refused, testing::IsEmpty());
  }
}

/// The operations of one rank, without what names no order: paths lose the root and the tries' numbers.
std::vector<std::string> order_of(const std::vector<std::string>& seen) {
  std::vector<std::string> order;
  std::string reading;
  for (std::string words : seen) {
    if (words.starts_with("open ")) reading = words.substr(5);
    if (words == "close " + reading) words.clear();
    for (const char* skipped : {"list", "stat", "open", "read"}) {
      if (words.starts_with(skipped)) words.clear();
    }
    if (words.empty()) continue;
    for (std::size_t at = words.find(kRoot); at != std::string::npos; at = words.find(kRoot)) {
      words.replace(at, std::string(kRoot).size(), "ROOT");
    }
    const std::size_t bytes = words.find(" bytes");
    if (words.starts_with("write") && bytes != std::string::npos) words.erase(5, words.find(" of ") - 5);
    order.push_back(words);
  }
  return order;
}

TEST(Saver, KeepsTheOrderOfItsOperations) {
  MemoryStorage disk;
  prepare(disk);
  FaultHook hook;
  Seam seam(hook);
  HookedStorage hooked(disk, seam);
  AloneGroup alone;
  HookedGroup group(alone, seam);
  SaveOptions options = save_options();
  options.keep_last = 1;
  options.nonce = [] { return std::string("0123456789abcdef"); };
  Saver saver(options, hooked, group);
  ASSERT_TRUE(saver.save({1, 10}, state_at(10, 0, 1)));
  hook.seen.clear();
  ASSERT_TRUE(saver.save({1, 11}, state_at(11, 0, 1)));
  std::vector<std::string> order = order_of(hook.seen);
  for (std::string& words : order) {
    const std::string tag = "-" + std::to_string(::getpid()) + "-0123456789abcdef";
    for (std::size_t at = words.find(tag); at != std::string::npos; at = words.find(tag))
      words.erase(at, tag.size());
  }
  EXPECT_THAT(
      order,
      testing::ElementsAre(
          "lock ROOT/.lock", "make folder ROOT/.saving-epoch_1_step_11", "gather 'begin'",
          "create ROOT/.saving-epoch_1_step_11/rank-0-of-1.safetensors",
          "write of ROOT/.saving-epoch_1_step_11/rank-0-of-1.safetensors",
          "sync ROOT/.saving-epoch_1_step_11/rank-0-of-1.safetensors",
          "close ROOT/.saving-epoch_1_step_11/rank-0-of-1.safetensors", "gather 'written'",
          "create ROOT/.saving-epoch_1_step_11/manifest.json",
          "write of ROOT/.saving-epoch_1_step_11/manifest.json",
          "sync ROOT/.saving-epoch_1_step_11/manifest.json",
          "close ROOT/.saving-epoch_1_step_11/manifest.json", "sync folder ROOT/.saving-epoch_1_step_11",
          "rename ROOT/.saving-epoch_1_step_11 to ROOT/epoch_1_step_11", "sync folder ROOT",
          "gather 'renamed'", "create ROOT/epoch_1_step_11/.commit.json",
          "write of ROOT/epoch_1_step_11/.commit.json", "sync ROOT/epoch_1_step_11/.commit.json",
          "close ROOT/epoch_1_step_11/.commit.json",
          "rename ROOT/epoch_1_step_11/.commit.json to ROOT/epoch_1_step_11/commit.json",
          "sync folder ROOT/epoch_1_step_11", "gather 'committed'", "create ROOT/.latest",
          "write of ROOT/.latest", "sync ROOT/.latest", "close ROOT/.latest",
          "rename ROOT/.latest to ROOT/latest", "sync folder ROOT", "unlink ROOT/epoch_1_step_10/commit.json",
          "sync folder ROOT/epoch_1_step_10", "unlink ROOT/epoch_1_step_10/manifest.json",
          "unlink ROOT/epoch_1_step_10/rank-0-of-1.safetensors", "remove folder ROOT/epoch_1_step_10",
          "sync folder ROOT", "gather 'finished'", "close ROOT/.lock"));
}

/// One save with a fault on one rank.
std::vector<SaveOutcome> save_with(MemoryStorage& disk, int64_t step, int size, int rank_of_fault,
                                   FaultHook& hook) {
  std::vector<SaveOutcome> outcomes(static_cast<std::size_t>(size));
  Seam seam(hook);
  HookedStorage hooked(disk, seam);
  run_ranks(size, [&](int rank, Group& group) {
    HookedGroup hooked_group(group, seam);
    const bool faulty = rank == rank_of_fault;
    SaveOptions options = save_options();
    options.keep_last = 2;
    Saver saver(options, faulty ? static_cast<Storage&>(hooked) : disk,
                faulty ? static_cast<Group&>(hooked_group) : group);
    outcomes[static_cast<std::size_t>(rank)] = saver.save({step / 10, step}, state_at(step, rank, size));
  });
  return outcomes;
}

int whole_in(MemoryStorage& disk) {
  int whole = 0;
  for (const std::string& path : disk.paths()) whole += path.ends_with("/commit.json") ? 1 : 0;
  return whole;
}

TEST(Saver, LeavesTheOldOrTheNewWhereverItDies) {
  for (const int size : {1, 2}) {
    for (int dead = 0; dead < size; ++dead) {
      for (int64_t at = 0;; at += lockstep::support::whole_or(3, 1)) {
        MemoryStorage disk;
        prepare(disk);
        SaveOptions options = save_options();
        options.keep_last = 2;
        save_on(disk, 9, size, options);
        save_on(disk, 10, size, options);
        FaultHook hook;
        hook.dead_from = at;
        const std::vector<SaveOutcome> outcomes = save_with(disk, 11, size, dead, hook);
        const bool finished = static_cast<int64_t>(hook.seen.size()) <= at;
        const std::vector<LoadOutcome> loaded = load_on(disk, size);
        const bool is_new = loaded[0] && loaded[0].manifest.step == 11;
        EXPECT_EQ(wrong_with(loaded, is_new ? 11 : 10), "")
            << "rank " << dead << " died before operation " << at;
        for (const SaveOutcome& outcome : outcomes) {
          // Who was told that it is saved finds it; who was told that it is not finds the old one.
          EXPECT_TRUE(is_new || outcome.saved != Saved::committed) << hook.seen.back();
          EXPECT_TRUE(!is_new || outcome.saved != Saved::failed || dead == 0) << hook.seen.back();
        }
        EXPECT_LE(whole_in(disk), 3) << hook.seen.back();
        // The next run saves, and what the dead one left is gone.
        for (const SaveOutcome& outcome : save_on(disk, 12, size, options))
          EXPECT_TRUE(outcome) << outcome.problem;
        EXPECT_EQ(wrong_with(load_on(disk, size), 12), "");
        for (const std::string& path : disk.paths()) {
          if (path.ends_with("/.lock")) continue;
          EXPECT_THAT(path, testing::Not(HasSubstr("/."))) << hook.seen.back();
        }
        if (finished) break;
        ASSERT_LT(at, 200);
      }
    }
  }
}

/// Ends at every operation of a save, and where that left one too many at every operation of the next from its commit on:
/// nothing of the first may keep the second from taking away what it should.
TEST(Saver, KeepsNoMoreThanOneTooManyHoweverOftenItDies) {
  SaveOptions options = save_options();
  options.keep_last = 2;
  const auto small = [](int64_t step) {
    State state;
    state[kind::parameters].tensors = {floats("w", {2}, static_cast<float>(step))};
    return state;
  };
  constexpr int64_t kNever = 1000;
  const auto dies = [&](MemoryStorage& disk, int64_t step, int64_t at, int64_t* commit = nullptr) {
    FaultHook hook;
    hook.dead_from = at;
    Seam seam(hook);
    HookedStorage hooked(disk, seam);
    AloneGroup alone;
    Saver(options, hooked, alone).save({step / 10, step}, small(step));
    const auto committing = std::ranges::find_if(hook.seen, [](const std::string& operation) {
      return operation.starts_with("rename") && operation.ends_with("/commit.json");
    });
    if (commit != nullptr) *commit = committing - hook.seen.begin();
    return static_cast<int64_t>(hook.seen.size()) > at;
  };
  const auto begun = [&](MemoryStorage& disk) {
    prepare(disk);
    AloneGroup alone;
    EXPECT_TRUE(Saver(options, disk, alone).save({0, 9, true}, small(9)));
    EXPECT_TRUE(Saver(options, disk, alone).save({1, 10}, small(10)));
  };
  int too_many = 0;
  for (int64_t first = 0; first < 200; ++first) {
    MemoryStorage after_first;
    begun(after_first);
    if (!dies(after_first, 11, first)) break;
    if (whole_in(after_first) <= options.keep_last) continue;
    if (++too_many % 3 != 1) continue;  // each of a phase's few operations leaves the same
    int64_t second = 0;
    dies(after_first, 12, kNever, &second);
    for (;; ++second) {
      ASSERT_LT(second, kNever);
      MemoryStorage disk;
      begun(disk);
      dies(disk, 11, first);
      const bool died = dies(disk, 12, second);
      EXPECT_LE(whole_in(disk), 3) << "ended before operations " << first << " and " << second;
      if (!died) break;
    }
  }
  EXPECT_GT(too_many, 5);
}

}  // namespace
}  // namespace lockstep::checkpoint
