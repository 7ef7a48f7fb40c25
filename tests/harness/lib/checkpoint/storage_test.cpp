#include "harness/lib/checkpoint/storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/names.h"
#include "harness/lib/checkpoint/shard.h"
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

TEST(Recorder, KeepsBytesPlacesAndErrors) {
  MemoryStorage disk;
  FaultHook fault;
  fault.fail_at = 3;
  fault.error = EIO;
  Recorder recorder(&fault);
  Seam seam(recorder);
  HookedStorage storage(disk, seam);
  int file = -1;
  std::size_t written = 0;
  storage.create("/f", file);
  for (const char* bytes : {"one", "two"}) storage.write(file, bytes, written);
  EXPECT_EQ(storage.sync(file), std::errc::io_error);
  ASSERT_EQ(recorder.done().size(), 4u);
  EXPECT_EQ(recorder.done()[2].operation.bytes, "two");
  EXPECT_EQ(recorder.done()[2].operation.offset, 3);
  EXPECT_EQ(recorder.done()[2].operation.path, "/f");
  EXPECT_EQ(recorder.done()[3].operation.kind, OperationKind::sync);
  EXPECT_EQ(recorder.done()[3].error, std::errc::io_error);
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
  EXPECT_EQ(problem_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4), "");
  EXPECT_THAT(problem_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5),
              HasSubstr("4 bytes of data expected, found 5"));
  EXPECT_THAT(problem_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3),
              HasSubstr("4 bytes of data expected, found 3"));
  EXPECT_THAT(problem_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("8 bytes expected of its shape"));
  EXPECT_THAT(problem_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8),
              HasSubstr("data from 0 on expected, found 4"));
  EXPECT_THAT(problem_of(R"({"a":{"dtype":"X","shape":[],"data_offsets":[0,1]}})", 1),
              HasSubstr("no type is called 'X'"));
  EXPECT_THAT(problem_of(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1),
              HasSubstr("a shape of counts"));
  EXPECT_THAT(problem_of(R"({"a":{"dtype":"F64","shape":[4611686018427387904,8],"data_offsets":[0,0]}})", 0),
              HasSubstr("found offsets 0 to 0"));
  EXPECT_THAT(problem_of(R"({"a":1})", 0), HasSubstr("dtype, shape and data_offsets expected"));
  EXPECT_THAT(problem_of(R"([1])", 0), HasSubstr("an object expected"));
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

}  // namespace
}  // namespace lockstep::checkpoint
