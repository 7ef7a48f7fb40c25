#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "harness/lib/checkpoint/saver.h"
#include "tests/support/checkpoint_ranks.h"
#include "tests/support/whole.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;
using testing::HasSubstr;

TEST(Saver, SavesWhatALoadGivesBack) {
  for (const int size : {1, 2, 3}) {
    MemoryStorage disk = empty_disk();
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
  MemoryStorage disk = empty_disk();
  FaultHook hook;
  HookedDisk hooked(disk, hook);
  AloneGroup alone;
  HookedGroup group(alone, hooked.seam);
  SaveOptions options = keeping_last(1);
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
  HookedDisk hooked(disk, hook);
  run_ranks(size, [&](int rank, Group& group) {
    HookedGroup hooked_group(group, hooked.seam);
    const bool faulty = rank == rank_of_fault;
    SaveOptions options = keeping_last(2);
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
        MemoryStorage disk = empty_disk();
        SaveOptions options = keeping_last(2);
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
  SaveOptions options = keeping_last(2);
  const auto small = [](int64_t step) {
    State state;
    state[kind::parameters].tensors = {floats("w", {2}, static_cast<float>(step))};
    return state;
  };
  constexpr int64_t kNever = 1000;
  const auto dies = [&](MemoryStorage& disk, int64_t step, int64_t at, int64_t* commit = nullptr) {
    FaultHook hook;
    hook.dead_from = at;
    HookedDisk hooked(disk, hook);
    AloneGroup alone;
    Saver(options, hooked, alone).save({step / 10, step}, small(step));
    const auto committing = std::ranges::find_if(hook.seen, [](const std::string& operation) {
      return operation.starts_with("rename") && operation.ends_with("/commit.json");
    });
    if (commit != nullptr) *commit = committing - hook.seen.begin();
    return static_cast<int64_t>(hook.seen.size()) > at;
  };
  const auto begun = [&](MemoryStorage& disk) {
    disk.put_folder("/run");
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

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names_in(Storage& disk) {
  std::vector<std::string> names;
  disk.list(kRoot, names);
  std::erase(names, ".lock");
  return names;
}

TEST(Retention, KeepsTheNewest) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(2);
  for (const int64_t step : {1, 2, 3, 4}) save_on(disk, step, 2, options);
  EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_3", "epoch_0_step_4", "latest"));
}

TEST(Retention, KeepsOneMoreAtMostThoughEverySaveEndsBeforeItsDeletions) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(2);
  int64_t newest = 0;
  for (const int64_t step : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    // The first operation after the commit is on the pointer: from there on nothing is done, as if the process had ended.
    FaultHook ends;
    ends.dead_at = ".latest-";
    HookedDisk hooked(disk, ends);
    // Before its own commit it may come to the pointer that the one before left behind.
    if (save_on(hooked, step, 1, options)[0]) newest = step;
    int whole = 0;
    for (const Entry& entry : survey(disk, kRoot, true).entries) whole += entry.standing == Standing::whole ? 1 : 0;
    EXPECT_LE(whole, 3) << step;
    EXPECT_EQ(wrong_with(load_on(disk, 1), newest), "");
  }
  EXPECT_GE(newest, 3);
}

TEST(Retention, CountsTheBestAmongThem) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(2);
  for (const int64_t step : {1, 2, 3, 4}) save_on(disk, step, 1, options, step == 2);
  EXPECT_THAT(names_in(disk), ElementsAre("best_model", "epoch_0_step_2", "epoch_0_step_4", "latest"));
  LoadOptions best = load_options();
  best.name = "best_model";
  EXPECT_EQ(wrong_with(load_on(disk, 1, best), 2), "");
}

/// Lets each operation fail whose words hold this.
class FailingWords final : public Hook {
 public:
  explicit FailingWords(std::string words) : words_(std::move(words)) {}
  Intervention before(const Operation& operation) override {
    if (in_words(operation).find(words_) == std::string::npos) return {};
    return {.error = {EIO, std::generic_category()}};
  }

 private:
  std::string words_;
};

TEST(Retention, LeavesWhatLatestNamesWhereItCouldNotBeAdvanced) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(1);
  save_on(disk, 3, 1, options);
  FailingWords hook("create /run/checkpoints/.latest-");
  HookedDisk failing(disk, hook);
  const SaveOutcome outcome = save_on(failing, 4, 1, options)[0];
  EXPECT_TRUE(outcome);
  EXPECT_THAT(outcome.remarks, ElementsAre(HasSubstr("cannot create: Input/output error")));
  EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_3", "epoch_0_step_4", "latest"));
  LoadOptions latest = load_options();
  latest.name = "latest";
  EXPECT_EQ(wrong_with(load_on(disk, 1, latest), 3), "");
  save_on(disk, 5, 1, options);
  EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_5", "latest"));
}

TEST(Retention, KeepsTheBestWhereItsPointerCouldNotBeAdvanced) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(2);
  save_on(disk, 1, 1, options, true);
  FailingWords hook("create /run/checkpoints/.best_model-");
  HookedDisk failing(disk, hook);
  const SaveOutcome outcome = save_on(failing, 2, 1, options, true)[0];
  EXPECT_TRUE(outcome);
  EXPECT_THAT(outcome.remarks, ElementsAre(HasSubstr(".best_model-")));
  for (const int64_t step : {3, 4}) EXPECT_TRUE(save_on(failing, step, 1, options)[0]);
  // What the pointer names stays, and what it should name.
  EXPECT_THAT(names_in(disk),
              ElementsAre("best_model", "epoch_0_step_1", "epoch_0_step_2", "epoch_0_step_4", "latest"));
  save_on(disk, 5, 1, options);
  EXPECT_THAT(names_in(disk), ElementsAre("best_model", "epoch_0_step_2", "epoch_0_step_5", "latest"));
  EXPECT_EQ(read_pointer(disk, kRoot, kBest).pointer.step, 2);
}

TEST(Retention, FinishesASaveThatEndedBetweenItsCommitAndItsPointers) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(2);
  for (const int64_t step : {1, 2}) save_on(disk, step, 1, options, step == 1);
  FaultHook ends;
  ends.dead_at = ".best_model-";
  HookedDisk hooked(disk, ends);
  ASSERT_TRUE(save_on(hooked, 3, 1, options, true)[0]);
  disk.put_file(std::string(kRoot) + "/.saving-epoch_0_step_9-1-0123456789abcdef/rank-0-of-1.safetensors", "half");
  EXPECT_EQ(read_pointer(disk, kRoot, kBest).pointer.step, 1);
  AloneGroup alone;
  EXPECT_THAT(Saver(options, disk, alone).finish_earlier(), IsEmpty());
  EXPECT_THAT(names_in(disk), ElementsAre("best_model", "epoch_0_step_2", "epoch_0_step_3", "latest"));
  EXPECT_EQ(read_pointer(disk, kRoot, kBest).pointer.step, 3);
  EXPECT_EQ(read_pointer(disk, kRoot, kLatest).pointer.step, 3);
}

/// Counts operations.
class Counter final : public Hook {
 public:
  int operations = 0;
  Intervention before(const Operation&) override {
    ++operations;
    return {};
  }
};

TEST(Retention, LooksAtWhatChangedAlone) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(100);
  Counter counter;
  HookedDisk counted(disk, counter);
  AloneGroup alone;
  Saver saver(options, counted, alone);
  std::vector<int> of_save;
  for (int64_t step = 1; step <= 40; ++step) {
    const int before = counter.operations;
    ASSERT_TRUE(saver.save({0, step}, state_at(step, 0, 1)));
    of_save.push_back(counter.operations - before);
  }
  // Of each that stands, its commit record alone: opened, read to its end, closed, before and after.
  EXPECT_LE(of_save[39] - of_save[29], 10 * 8);
}

/// Looks at the disk after every operation.
class Watcher final : public Hook {
 public:
  explicit Watcher(MemoryStorage& disk) : disk_(disk) {}
  int fewest = 1 << 20, most = 0;
  Intervention before(const Operation&) override { return {}; }
  void after(const Operation&, std::error_code) override {
    MemoryStorage now(disk_);
    int whole = 0;
    for (const Entry& entry : survey(now, kRoot, true).entries)
      whole += entry.standing == Standing::whole ? 1 : 0;
    fewest = std::min(fewest, whole);
    most = std::max(most, whole);
  }

 private:
  MemoryStorage& disk_;
};

TEST(Retention, NeverHasFewerThanOneOrMoreThanOneBesideThose) {
  for (const int keep : {1, 2, 3}) {
    MemoryStorage disk = empty_disk();
    SaveOptions options = keeping_last(keep);
    save_on(disk, 1, 1, options);
    Watcher watcher(disk);
    HookedDisk hooked(disk, watcher);
    for (const int64_t step : {2, 3, 3, 4, 4, 5}) ASSERT_TRUE(save_on(hooked, step, 1, options)[0]);
    EXPECT_EQ(watcher.fewest, 1);
    EXPECT_LE(watcher.most, keep + 1);
  }
}

TEST(Retention, DoesNotCountWhatIsTornOrUnfinished) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(2);
  save_on(disk, 1, 1, options);
  save_on(disk, 2, 1, options);
  const std::string root = kRoot;
  disk.put_file(root + "/epoch_0_step_8/rank-0-of-1.safetensors", "half");
  disk.put_file(root + "/.saving-epoch_0_step_9-1-0123456789abcdef/rank-0-of-1.safetensors", "half");
  disk.put_file(root + "/.latest-1-0123456789abcdef", "half");
  save_on(disk, 3, 1, options);
  EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_2", "epoch_0_step_3", "latest"));
}

TEST(Retention, LeavesADamagedOneUntilEnoughNewerOnesStand) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(2);
  for (const int64_t step : {1, 2}) save_on(disk, step, 1, options);
  disk.put_file(std::string(kRoot) + "/epoch_0_step_2/rank-0-of-1.safetensors", "torn");
  EXPECT_THAT(save_on(disk, 3, 1, options)[0].remarks,
              ElementsAre(HasSubstr("epoch_0_step_2 is damaged and stays")));
  EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_1", "epoch_0_step_2", "epoch_0_step_3", "latest"));
  EXPECT_THAT(save_on(disk, 4, 1, options)[0].remarks, IsEmpty());
  EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_3", "epoch_0_step_4", "latest"));
}

TEST(Retention, TakesNothingAwayWhereNothingIsWhole) {
  MemoryStorage disk = empty_disk();
  save_on(disk, 1, 1);
  disk.put_file(std::string(kRoot) + "/epoch_0_step_1/rank-0-of-1.safetensors", "torn");
  EXPECT_THAT(settle(disk, kRoot, {.keep_last = 1}), ElementsAre(HasSubstr("nothing is taken away")));
  EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_1", "latest"));
}

TEST(Retention, PutsANewSaveOfAStepInPlaceOfTheOld) {
  MemoryStorage disk = empty_disk();
  for (const int size : {2, 1, 2}) {
    for (const SaveOutcome& outcome : save_on(disk, 5, size)) EXPECT_TRUE(outcome) << outcome.problem;
    EXPECT_THAT(names_in(disk), ElementsAre("epoch_0_step_5", "latest"));
    EXPECT_EQ(wrong_with(load_on(disk, size), 5), "");
  }
}

TEST(Retention, GivesAReplacedOneItsNameBackWhereItsSuccessorNeverCame) {
  MemoryStorage disk = empty_disk();
  save_on(disk, 5, 1);
  FaultHook hook;
  hook.dead_at = "gather 'renamed'";
  HookedDisk hooked(disk, hook);
  AloneGroup alone;
  HookedGroup group(alone, hooked.seam);
  EXPECT_FALSE(Saver(save_options(), hooked, group).save({0, 5}, state_at(5, 0, 1)));
  EXPECT_THAT(names_in(disk), ElementsAre(HasSubstr(".replaced-epoch_0_step_5"), "epoch_0_step_5", "latest"));
  EXPECT_EQ(wrong_with(load_on(disk, 1), 5), "");
  // The dead one's lock went with its process; here it is taken over by hand.
  MemoryStorage after(disk);
  save_on(after, 6, 1);
  EXPECT_THAT(names_in(after), ElementsAre("epoch_0_step_5", "epoch_0_step_6", "latest"));
  LoadOptions older = load_options();
  older.name = "epoch_0_step_5";
  EXPECT_EQ(wrong_with(load_on(after, 1, older), 5), "");
}

TEST(Retention, IsNotMisledByAStaleCommitMark) {
  MemoryStorage disk = empty_disk();
  save_on(disk, 4, 1);
  save_on(disk, 5, 1);
  const std::string folder = std::string(kRoot) + "/epoch_0_step_5";
  const std::string stale = *disk.bytes(folder + "/commit.json");
  // Another try of the same step, which ended before its commit, with the mark of the first.
  disk.take(folder);
  FaultHook hook;
  hook.dead_at = "create /run/checkpoints/epoch_0_step_5/.commit.json";
  HookedDisk hooked(disk, hook);
  EXPECT_FALSE(save_on(hooked, 5, 1)[0]);
  ASSERT_TRUE(disk.bytes(folder + "/manifest.json")) << testing::PrintToString(hook.seen);
  ASSERT_FALSE(disk.bytes(folder + "/commit.json"));
  disk.put_file(folder + "/commit.json", stale);
  const std::vector<LoadOutcome> loaded = load_on(disk, 1);
  EXPECT_EQ(wrong_with(loaded, 4), "");
  EXPECT_THAT(loaded[0].refused, ElementsAre(HasSubstr("manifest.json: save_id:")));
  EXPECT_TRUE(save_on(disk, 5, 1)[0]);
  EXPECT_EQ(wrong_with(load_on(disk, 1), 5), "");
}

/// Holds the operations back at one of them until it is let go.
class Gate final : public Hook {
 public:
  explicit Gate(OperationKind kind) : kind_(kind) {}
  Intervention before(const Operation& operation) override {
    std::unique_lock lock(mutex_);
    if (operation.kind == kind_ && !open_) {
      waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
    }
    return {};
  }
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  OperationKind kind_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_ = false, open_ = false;
};

TEST(AsynchronousSave, SavesTheStateOfItsMoment) {
  MemoryStorage disk = empty_disk();
  Gate gate(OperationKind::create);
  HookedDisk hooked(disk, gate);
  AloneGroup group;
  Saver saver(save_options(), hooked, group);
  State state = state_at(6, 0, 1);
  EXPECT_FALSE(saver.save_async({0, 6}, state).has_value());
  gate.await();
  // Training goes on, and what is being saved does not.
  const auto bytes = std::const_pointer_cast<void>(state[kind::parameters].tensors[0].keeps);
  std::fill_n(static_cast<std::vector<std::byte>*>(bytes.get())->begin(), 8, std::byte{0xff});
  EXPECT_THAT(names_in(disk), ElementsAre(HasSubstr(".saving-epoch_0_step_6")));
  gate.let_go();
  const std::optional<SaveOutcome> outcome = saver.wait();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_TRUE(*outcome) << outcome->problem;
  EXPECT_FALSE(saver.wait().has_value());
  EXPECT_EQ(wrong_with(load_on(disk, 1), 6), "");
}

TEST(AsynchronousSave, IsLeftAloneByWhoWantsToSaveOrCleanMeanwhile) {
  MemoryStorage disk = empty_disk();
  save_on(disk, 5, 1);
  Gate gate(OperationKind::create);
  HookedDisk hooked(disk, gate);
  AloneGroup group;
  Saver saver(save_options(), hooked, group);
  saver.save_async({0, 6}, state_at(6, 0, 1));
  gate.await();
  EXPECT_THAT(save_on(disk, 7, 1)[0].problem, HasSubstr("another process saves into this folder now"));
  EXPECT_EQ(wrong_with(load_on(disk, 1), 5), "");
  gate.let_go();
  EXPECT_TRUE(*saver.wait());
  EXPECT_EQ(wrong_with(load_on(disk, 1), 6), "");
}

TEST(AsynchronousSave, TellsOfItsFailureAtTheNextCall) {
  MemoryStorage disk = empty_disk();
  FaultHook hook;
  hook.error = ENOSPC;
  AloneGroup group;
  HookedDisk hooked(disk, hook);
  Saver saver(save_options(), hooked, group);
  ASSERT_TRUE(saver.save({0, 5}, state_at(5, 0, 1)));
  hook.fail_at = static_cast<int64_t>(hook.seen.size()) + 16;
  EXPECT_FALSE(saver.save_async({0, 6}, state_at(6, 0, 1)).has_value());
  const std::optional<SaveOutcome> earlier = saver.save_async({0, 7}, state_at(7, 0, 1));
  ASSERT_TRUE(earlier.has_value());
  EXPECT_EQ(earlier->saved, Saved::failed);
  EXPECT_THAT(earlier->problem, HasSubstr("epoch_0_step_6 was not saved"));
  EXPECT_TRUE(*saver.wait());
  EXPECT_EQ(wrong_with(load_on(disk, 1), 7), "");
}

TEST(AsynchronousSave, RunsOnAllRanks) {
  MemoryStorage disk = empty_disk();
  run_ranks(3, [&](int rank, Group& group) {
    Saver saver(save_options(), disk, group);
    for (const int64_t step : {5, 6, 7}) {
      const std::optional<SaveOutcome> earlier = saver.save_async({0, step}, state_at(step, rank, 3));
      EXPECT_TRUE(!earlier || *earlier);
    }
    EXPECT_TRUE(*saver.wait());
  });
  EXPECT_EQ(wrong_with(load_on(disk, 3), 7), "");
}

}  // namespace
}  // namespace lockstep::checkpoint
