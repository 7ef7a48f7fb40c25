#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "harness/base/machine.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/shard.h"
#include "harness/lib/checkpoint/storage.h"
#include "tests/support/checkpoint_ranks.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;
using testing::ElementsAre;
using testing::HasSubstr;

/// Both file systems must answer alike.
class AnyStorage : public testing::TestWithParam<bool> {
 protected:
  AnyStorage() { memory_.put_folder(folder_.path()); }
  Storage& storage() { return GetParam() ? static_cast<Storage&>(memory_) : posix_storage(); }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, std::string_view bytes) {
    return write_new_file(storage(), path(name), bytes).text;
  }
  std::string read(const std::string& name) { return read_small_file(storage(), path(name)).text; }
  TempFolder folder_;
  MemoryStorage memory_;
};

INSTANTIATE_TEST_SUITE_P(Storages, AnyStorage, testing::Bool(),
                         [](const auto& at) { return at.param ? "memory" : "posix"; });

TEST_P(AnyStorage, MakesFilesAndFoldersOnlyIfTheirNamesAreFree) {
  EXPECT_EQ(write("f", "one"), "");
  EXPECT_THAT(write("f", "two"), HasSubstr("f: cannot create: File exists"));
  EXPECT_EQ(read("f"), "one");
  EXPECT_FALSE(storage().make_folder(path("d")));
  EXPECT_EQ(storage().make_folder(path("d")), std::errc::file_exists);
  EXPECT_EQ(storage().make_folder(path("none/d")), std::errc::no_such_file_or_directory);
  EXPECT_EQ(storage().make_folder(path("f/d")), std::errc::not_a_directory);
  std::vector<std::string> names;
  EXPECT_FALSE(storage().list(folder_.path(), names));
  EXPECT_THAT(names, ElementsAre("d", "f"));
  EXPECT_EQ(storage().list(path("none"), names), std::errc::no_such_file_or_directory);
}

TEST_P(AnyStorage, RenamesAFolderOverNoneOrAnEmptyOneOnly) {
  for (const char* name : {"a", "b", "empty"}) ASSERT_FALSE(storage().make_folder(path(name)));
  write("a/f", "a");
  write("b/f", "b");
  const std::error_code error = storage().rename(path("a"), path("b"));
  EXPECT_TRUE(error == std::errc::directory_not_empty || error == std::errc::file_exists) << error.message();
  EXPECT_FALSE(storage().rename(path("a"), path("empty")));
  EXPECT_EQ(read("empty/f"), "a");
  EXPECT_FALSE(storage().rename(path("b"), path("c")));
  EXPECT_EQ(read("c/f"), "b");
  EXPECT_EQ(storage().rename(path("b"), path("d")), std::errc::no_such_file_or_directory);
  write("g", "g");
  EXPECT_FALSE(storage().rename(path("g"), path("c/f")));
  EXPECT_EQ(read("c/f"), "g");
}

TEST_P(AnyStorage, RemovesEmptyFoldersOnly) {
  storage().make_folder(path("d"));
  write("d/f", "x");
  EXPECT_EQ(storage().remove_folder(path("d")), std::errc::directory_not_empty);
  EXPECT_FALSE(storage().unlink(path("d/f")));
  EXPECT_EQ(storage().unlink(path("d/f")), std::errc::no_such_file_or_directory);
  EXPECT_FALSE(storage().sync_folder(path("d")));
  EXPECT_FALSE(storage().remove_folder(path("d")));
  EXPECT_EQ(storage().remove_folder(path("d")), std::errc::no_such_file_or_directory);
}

TEST_P(AnyStorage, TellsWhatStandsAtAPath) {
  write("f", "four");
  PathStatus status;
  EXPECT_FALSE(storage().stat(path("f"), status));
  EXPECT_TRUE(status.exists && status.file && !status.folder);
  EXPECT_EQ(status.length, 4u);
  EXPECT_FALSE(storage().stat(folder_.path(), status));
  EXPECT_TRUE(status.exists && status.folder && !status.file);
  EXPECT_FALSE(storage().stat(path("none"), status));
  EXPECT_FALSE(status.exists);
  int file = 0;
  EXPECT_EQ(storage().open(path("none"), file), std::errc::no_such_file_or_directory);
  EXPECT_EQ(storage().open(folder_.path(), file), std::errc::is_a_directory);
  EXPECT_EQ(file, -1);
}

TEST_P(AnyStorage, LocksAgainstEveryOther) {
  int first = -1, second = -1;
  EXPECT_FALSE(storage().lock(path("l"), first));
  EXPECT_EQ(storage().lock(path("l"), second), std::errc::operation_would_block);
  EXPECT_FALSE(storage().close(first));
  EXPECT_FALSE(storage().lock(path("l"), second));
  EXPECT_FALSE(storage().close(second));
}

TEST_P(AnyStorage, ReplacesASmallFileWhole) {
  const Writer writer{7, "0123456789abcdef"};
  EXPECT_EQ(replace_file(storage(), folder_.path(), "latest", "one", writer).text, "");
  EXPECT_EQ(replace_file(storage(), folder_.path(), "latest", "two", writer).text, "");
  EXPECT_EQ(read("latest"), "two");
  std::vector<std::string> names;
  storage().list(folder_.path(), names);
  EXPECT_THAT(names, ElementsAre("latest"));
}

TEST_P(AnyStorage, SavesAndLoads) {
  SaveOptions options = save_options();
  options.root = path("checkpoints");
  LoadOptions load_from = load_options();
  load_from.root = options.root;
  for (const int64_t step : {1, 2, 3, 4, 4}) {
    for (const SaveOutcome& outcome : save_on(storage(), step, 2, options))
      EXPECT_TRUE(outcome) << outcome.problem;
    EXPECT_EQ(wrong_with(load_on(storage(), 2, load_from), step), "");
  }
}

TEST(Names, SayWhatTheyAre) {
  const Writer writer{12, "0123456789abcdef"};
  const std::string name = checkpoint_name(2, 371);
  EXPECT_EQ(name, "epoch_2_step_371");
  EXPECT_EQ(parse_entry_name(name).kind, EntryKind::checkpoint);
  EXPECT_EQ(parse_entry_name(name).step, 371);
  EXPECT_EQ(parse_entry_name(saving_name(name, writer)).kind, EntryKind::saving);
  EXPECT_EQ(parse_entry_name(saving_name(name, writer)).writer, writer);
  EXPECT_EQ(parse_entry_name(replaced_name(name, writer)).kind, EntryKind::replaced);
  EXPECT_EQ(parse_entry_name(temporary_name_of("latest", writer)).kind, EntryKind::temporary);
  for (const char* other :
       {"epoch_2", "epoch_02_step_3", "epoch_2_step_3.old", "epoch_-1_step_3", ".saving-epoch_1_step_2",
        "latest", ".lock", "", ".saving-epoch_1_step_2-x-0123456789abcdef"}) {
    EXPECT_EQ(parse_entry_name(other).kind, EntryKind::other) << other;
  }
  for (const char* part : {"manifest.json", "commit.json", "rank-3-of-4.safetensors"})
    EXPECT_TRUE(is_part_name(part));
  EXPECT_TRUE(is_part_name(temporary_name_of("commit.json", writer)));
  for (const char* other :
       {"rank-4-of-4.safetensors", "notes.txt", "rank-0-of-1.safetensors.bak", ".commit.json"}) {
    EXPECT_FALSE(is_part_name(other)) << other;
  }
}

TEST(Safetensors, AreTheFormatByteForByte) {
  ShardHeader header;
  header.metadata = {{"format", "pt"}};
  header.tensors = {{"a", "F32", {2}, 0, 8}, {"b", "U8", {}, 8, 9}};
  const std::string text =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  const std::string padded = text + std::string((8 - text.size() % 8) % 8, ' ');
  const std::string bytes = encode_header(header);
  ASSERT_EQ(bytes.size(), 8 + padded.size());
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]), padded.size());
  EXPECT_EQ(bytes.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(bytes.substr(8), padded);
  uint64_t begin = 0;
  std::string problem;
  const ShardHeader read = decode_header(bytes + "123456789", begin, problem);
  EXPECT_EQ(problem, "");
  EXPECT_EQ(begin, bytes.size());
  EXPECT_EQ(read.metadata, header.metadata);
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[1].name, "b");
}

TEST(Safetensors, RefuseWhatTheFormatForbids) {
  const auto problem_of = [](const std::string& json, std::size_t data) {
    std::string file(8, '\0');
    file[0] = static_cast<char>(json.size());
    file += json + std::string(data, 'x');
    uint64_t begin = 0;
    std::string problem;
    decode_header(file, begin, problem);
    return problem;
  };
  struct Row {
    const char* json;
    std::size_t data;
    const char* says;
  };
  EXPECT_EQ(problem_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4), "");
  for (const auto& [json, data, says] :
       {Row{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "4 bytes of data expected, found 5"},
        Row{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "4 bytes of data expected, found 3"},
        Row{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "8 bytes expected of its shape"},
        Row{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "data from 0 on expected, found 4"},
        Row{R"({"a":{"dtype":"X","shape":[],"data_offsets":[0,1]}})", 1, "no type is called 'X'"},
        Row{R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "a shape of counts"},
        Row{R"({"a":{"dtype":"F64","shape":[4611686018427387904,8],"data_offsets":[0,0]}})", 0, "found offsets 0 to 0"},
        Row{R"({"a":1})", 0, "dtype, shape and data_offsets expected"}, Row{R"([1])", 0, "an object expected"}}) {
    EXPECT_THAT(problem_of(json, data), HasSubstr(says));
  }
  uint64_t begin = 0;
  std::string problem;
  decode_header("1234", begin, problem);
  EXPECT_THAT(problem, HasSubstr("8 bytes of length expected, found 4"));
  decode_header(std::string(8, '\xff') + "x", begin, problem);
  EXPECT_THAT(problem, HasSubstr("a header of"));
}

TEST(Shard, KeepsRowsOfASliceAndAlignsItsTensors) {
  MemoryStorage disk;
  disk.put_folder("/d");
  State state;
  state[kind::parameters].tensors = {floats("rows", {4, 3}, 0, Placement::sharded, {3, 9}),
                                     floats("part", {4, 3}, 0, Placement::sharded, {1, 5})};
  Tensor byte;
  byte.name = "flag";
  byte.dtype = "U8";
  byte.placement = Placement::per_rank;
  const std::byte one{1};
  state[kind::loss_scale].tensors = {owning(byte, std::span(&one, 1))};
  const ShardIdentity identity{std::string(32, 'a'), 0, 1, 1, 2, "config"};
  const WrittenShard written = write_shard(disk, "/d", identity, state, {.block_bytes = 16});
  ASSERT_EQ(written.failure.text, "");
  const FileEntry measured = measure_shard(identity, state, {});
  EXPECT_EQ(measured.hash, written.entry.hash);
  EXPECT_EQ(measured.length, written.entry.length);
  const ReadShard shard = read_shard(disk, "/d", written.entry, identity, {});
  ASSERT_EQ(shard.problem, "");
  const ShardTensor *rows = nullptr, *part = nullptr;
  shard.tensor("parameters/rows", &rows);
  shard.tensor("parameters/part", &part);
  EXPECT_EQ(rows->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(part->shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(shard.data_begin % 8, 0u);
  EXPECT_EQ(shard.header.tensors.back().name, "loss_scale/flag");
}

// A save in which an operation fails: every rank hears of it, the older checkpoint stays, and the next save
// succeeds.

using testing::AllOf;

struct Faulty {
  std::vector<SaveOutcome> outcomes;
  std::vector<std::string> seen;
};

/// Saves step 11 on two ranks over step 10; one rank's operation fails. Kept savers save step 12 afterwards,
/// without a fault.
Faulty save_with(MemoryStorage& disk, int rank_of_fault, FaultHook& hook, bool again) {
  Faulty result;
  result.outcomes.resize(2);
  HookedDisk hooked(disk, hook);
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
        MemoryStorage disk = empty_disk();
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
    MemoryStorage disk = empty_disk();
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
  MemoryStorage disk = empty_disk();
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
  MemoryStorage disk = empty_disk();
  FaultHook hook;
  hook.error = EIO;
  hook.fail_at = 2;
  const Faulty faulty = save_with(disk, 1, hook, false);
  EXPECT_THAT(faulty.seen, testing::ElementsAre(HasSubstr("create"), HasSubstr("write"), HasSubstr("sync"),
                                                HasSubstr("close"), HasSubstr("unlink")));
  EXPECT_EQ(faulty.outcomes[0].saved, Saved::failed);
}

TEST(SaveErrors, AreNoneWhereWritesAreShort) {
  MemoryStorage disk = empty_disk();
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
  MemoryStorage disk = empty_disk();
  for (const int64_t step : {10, 11, 12}) save_on(disk, step, 1);
  Unreadable hook;
  HookedDisk storage(disk, hook);
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
  MemoryStorage disk = empty_disk();
  Hook hook;
  HookedDisk storage(disk, hook);
  CountingGroup group;
  EXPECT_TRUE(Saver(save_options(), storage, group).save({1, 11}, state_at(11, 0, 1)));
  EXPECT_GE(group.signs, storage.seam.count());
  const int64_t saved = storage.seam.count(), signs = group.signs;
  EXPECT_TRUE(load(load_options(), storage, group));
  EXPECT_GE(group.signs - signs, storage.seam.count() - saved);
}

TEST(SaveErrors, TellOfARankThatIsGoneAtOnce) {
  MemoryStorage disk = empty_disk();
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
    MemoryStorage disk = empty_disk();
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
  MemoryStorage disk = empty_disk();
  disk.put_file(std::string(kRoot) + "/epoch_1_step_11/notes.txt", "mine");
  const std::vector<SaveOutcome> outcomes = save_on(disk, 11, 2);
  EXPECT_THAT(outcomes[1].problem,
              HasSubstr("epoch_1_step_11: it holds notes.txt, which is no part of a checkpoint"));
  EXPECT_EQ(*disk.bytes(std::string(kRoot) + "/epoch_1_step_11/notes.txt"), "mine");
  EXPECT_TRUE(save_on(disk, 12, 2)[0]);
  EXPECT_EQ(*disk.bytes(std::string(kRoot) + "/epoch_1_step_11/notes.txt"), "mine");
}

TEST(SaveErrors, KeepASecondProcessOut) {
  MemoryStorage disk = empty_disk();
  save_on(disk, 10, 1);
  int lock = -1;
  ASSERT_FALSE(disk.lock(std::string(kRoot) + "/.lock", lock));
  EXPECT_THAT(save_on(disk, 11, 2)[1].problem, HasSubstr("another process saves into this folder now"));
  disk.close(lock);
  EXPECT_TRUE(save_on(disk, 11, 2)[1]);
}

// The classic mistakes of savers, planted: each does the harm that the order of operations is there to
// prevent.

/// Saves steps 10 and 11 on two ranks, the latter with a mistake, and rank 0 ends at `dead_at` if that is a
/// part of an operation's words. Returns what is wrong then: an acknowledged step that does not load, or a
/// pointer to what does not.
std::string harm_of(const Planted& planted, const std::string& dead_at, bool pointer = false) {
  MemoryStorage disk = empty_disk();
  SaveOptions options = keeping_last(1);
  save_on(disk, 10, 2, options);
  options.planted = planted;
  FaultHook hook;
  hook.dead_at = dead_at;
  if (dead_at.empty()) hook.dead_at = "never";
  HookedDisk hooked(disk, hook);
  std::vector<SaveOutcome> outcomes(2);
  run_ranks(2, [&](int rank, Group& group) {
    HookedGroup hooked_group(group, hooked.seam);
    Saver saver(options, rank == 0 ? static_cast<Storage&>(hooked) : disk,
                rank == 0 ? static_cast<Group&>(hooked_group) : group);
    outcomes[static_cast<std::size_t>(rank)] = saver.save({1, 11}, state_at(11, rank, 2));
  });
  for (const SaveOutcome& outcome : outcomes) {
    if (outcome.saved == Saved::failed && dead_at.empty()) return outcome.problem;
  }
  LoadOptions load_from = load_options();
  if (pointer) load_from.name = "latest";
  const std::vector<LoadOutcome> loaded = load_on(disk, 2, load_from);
  const bool acknowledged = outcomes[0] || outcomes[1];
  const bool is_new = loaded[0] && loaded[0].manifest.step == 11;
  // The pointer may be behind; what it names must load.
  return wrong_with(loaded, is_new || (acknowledged && !pointer) ? 11 : 10);
}

TEST(Planted, DoNoHarmWhereNothingIsPlanted) {
  for (const char* dead_at : {"", "create", "gather 'written'", "gather 'renamed'", "commit.json",
                              "gather 'committed'", "unlink"}) {
    EXPECT_EQ(harm_of({}, dead_at), "") << dead_at;
    EXPECT_EQ(harm_of({}, dead_at, true), "") << dead_at;
  }
}

TEST(Planted, OneFileNameTears) { EXPECT_NE(harm_of({.one_file_name = true}, ""), ""); }

TEST(Planted, DeletingBeforeTheCommitLosesEverything) {
  EXPECT_NE(harm_of({.delete_before_commit = true}, "gather 'written'"), "");
}

TEST(Planted, APointerBeforeTheCommitPointsToNothing) {
  EXPECT_NE(harm_of({.latest_before_commit = true}, "gather 'written'", true), "");
}

// Ranks as processes on the machine's file system, one of which is killed at an operation.

/// Two processes save step 11; `killed` dies before its operation `at`. Returns how the survivor's save
/// ended, and whether the other one was killed.
std::pair<Saved, bool> save_and_kill(const SaveOptions& options, int killed, int64_t at) {
  const std::vector<int> codes = run_processes(2, [&](int rank, Group& own) {
    SignalAt hook(rank == killed ? at : -1, SIGKILL);
    HookedDisk storage(posix_storage(), hook);
    HookedGroup group(own, storage.seam);
    return static_cast<int>(Saver(options, storage, group).save({1, 11}, state_at(11, rank, 2)).saved);
  });
  return {static_cast<Saved>(codes[static_cast<std::size_t>(1 - killed)]), codes[static_cast<std::size_t>(killed)] < 0};
}

TEST(KilledRank, LeavesTheOldOrTheNewOnTheDisk) {
  for (const int killed : {0, 1}) {
    bool dies = true;
    for (int64_t at = killed; dies; at += 5) {
      TempFolder folder;
      SaveOptions options = save_options();
      options.root = folder / "checkpoints";
      LoadOptions load_from = load_options();
      load_from.root = options.root;
      for (const SaveOutcome& outcome : save_on(posix_storage(), 10, 2, options))
        ASSERT_TRUE(outcome) << outcome.problem;
      const auto [survivor, was_killed] = save_and_kill(options, killed, at);
      dies = was_killed;
      const std::vector<LoadOutcome> loaded = load_on(posix_storage(), 2, load_from);
      const bool is_new = loaded[0] && loaded[0].manifest.step == 11;
      EXPECT_EQ(wrong_with(loaded, is_new ? 11 : 10), "") << "rank " << killed << " at " << at;
      EXPECT_TRUE(is_new || survivor != Saved::committed) << "rank " << killed << " at " << at;
      // The kernel has let go of the lock, and the next run saves.
      for (const SaveOutcome& outcome : save_on(posix_storage(), 12, 2, options))
        EXPECT_TRUE(outcome) << outcome.problem;
      EXPECT_EQ(wrong_with(load_on(posix_storage(), 2, load_from), 12), "");
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
