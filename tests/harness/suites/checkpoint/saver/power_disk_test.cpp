// What a power loss may leave, model by model.

#include "harness/suites/checkpoint/saver/power_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;
using checkpoint::OperationKind;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

scheduler::Note note(OperationKind kind, const std::string& path, const std::string& to = "", const std::string& bytes = "", int64_t at = 0) {
  return {.operation = {.kind = kind, .path = path, .to = to, .offset = at}, .size = bytes.size(), .bytes = bytes};
}

/// Every disk that may be left of "/d" with these operations, as "name=bytes" in one line each.
std::set<std::string> left(DiskModel model, const std::vector<scheduler::Note>& notes, const std::string& stood = "") {
  MemoryStorage before;
  before.put_folder("/d");
  if (!stood.empty()) before.put_file("/d/b", stood);
  PowerDisk disk(before, model);
  int number = 0;
  for (const scheduler::Note& each : notes) disk.apply(number++, each);
  bool all = false;
  std::set<std::string> result;
  for (const Remains& remains : disk.ways(5000, 1, all)) {
    const auto made = disk.disk(remains);
    std::string line;
    for (const std::string& path : made->paths()) {
      if (!path.ends_with('/')) line += path.substr(3) + "=" + *made->bytes(path) + " ";
    }
    result.insert(line);
  }
  EXPECT_TRUE(all);
  return result;
}

const std::vector<scheduler::Note> kReplace{note(OperationKind::create, "/d/a"), note(OperationKind::write, "/d/a", "", "new"),
                                 note(OperationKind::rename, "/d/a", "/d/b")};

TEST(PowerDisk, LosesWhatWasNotSyncedInAnySubset) {
  EXPECT_THAT(left(DiskModel::least, kReplace, "old"),
              ElementsAre("a= b=old ", "a=new b=old ", "b= ", "b=new ", "b=old "));
}

TEST(PowerDisk, KeepsWhatWasSynced) {
  std::vector<scheduler::Note> notes = kReplace;
  notes.insert(notes.begin() + 2, note(OperationKind::sync, "/d/a"));
  notes.push_back(note(OperationKind::sync_folder, "/d"));
  for (const DiskModel model : kDiskModels) EXPECT_THAT(left(model, notes, "old"), ElementsAre("b=new ")) << words_of(model);
  notes.pop_back();
  EXPECT_THAT(left(DiskModel::ordered, notes, "old"), ElementsAre("a=new b=old ", "b=new "));
}

TEST(PowerDisk, FlushesOnARenameWhereTheModelDoes) {
  EXPECT_THAT(left(DiskModel::ordered, kReplace, "old"), Contains("b= "));
  EXPECT_THAT(left(DiskModel::flush_on_rename, kReplace, "old"), Not(Contains("b= ")));
  // It replaces nothing: nothing is flushed.
  EXPECT_THAT(left(DiskModel::flush_on_rename, kReplace), Contains("b= "));
}

TEST(PowerDisk, KeepsNamesInTheirOrderWithAJournal) {
  const std::vector<scheduler::Note> notes{note(OperationKind::create, "/d/x"), note(OperationKind::create, "/d/y")};
  EXPECT_THAT(left(DiskModel::ordered, notes), ElementsAre("", "x= ", "x= y= "));
  EXPECT_THAT(left(DiskModel::least, notes), ElementsAre("", "x= ", "x= y= ", "y= "));
}

TEST(PowerDisk, TearsAWriteAtSectors) {
  const std::vector<scheduler::Note> notes{note(OperationKind::create, "/d/x"), note(OperationKind::sync_folder, "/d"),
                                note(OperationKind::write, "/d/x", "", std::string(1024, 'w'))};
  const std::string half(512, 'w'), hole(512, '\0'), whole(1024, 'w');
  EXPECT_THAT(left(DiskModel::least, notes),
              testing::UnorderedElementsAre("x= ", "x=" + half + " ", "x=" + hole + half + " ", "x=" + whole + " "));
  EXPECT_THAT(left(DiskModel::ordered, notes), testing::UnorderedElementsAre("x= ", "x=" + half + " ", "x=" + whole + " "));
}

TEST(PowerDisk, SaysWhichOperationWasLost) {
  MemoryStorage before;
  before.put_folder("/d");
  PowerDisk disk(before, DiskModel::least);
  disk.apply(7, note(OperationKind::create, "/d/x"));
  EXPECT_EQ(disk.lost({1}).at(7), "not durable, lost");
  EXPECT_TRUE(disk.lost({0}).empty());
  EXPECT_NE(disk.hash({0}), disk.hash({1}));
}

}  // namespace
}  // namespace lockstep::saver
