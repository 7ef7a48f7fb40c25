#include "harness/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "tests/support/fake_files.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::FakeFiles;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

const std::vector<std::string> kAtomicWrite = {"create f.tmp", "write 6 f.tmp",  "sync f.tmp",
                                               "close f.tmp",  "rename f.tmp f", "open folder",
                                               "sync folder",  "close folder"};
constexpr std::size_t kRename = 4, kOpenFolder = 5, kSyncFolder = 6, kCloseFolder = 7;

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

/// What the write says; empty if it goes well.
std::string problem_of(const std::string& path, const std::string& content, Files& files) {
  try {
    write_file_atomically(path, content, files);
    return "";
  } catch (const MachineError& error) {
    return error.what();
  }
}

TEST(WriteFileAtomically, SyncsTheFileBeforeItsNameAndTheFolderAfterIt) {
  TempFolder folder;
  FakeFiles files;
  write_file_atomically(folder / "f", "second", files);
  EXPECT_THAT(files.operations, ElementsAreArray(kAtomicWrite));
}

TEST(WriteFileAtomically, ReplacesTheWholeFileAndLeavesNothingElse) {
  TempFolder folder;
  write_file_atomically(folder / "f", "first, long");
  write_file_atomically(folder / "f", "second");
  EXPECT_EQ(read_text(folder / "f"), "second");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("f"));
}

TEST(WriteFileAtomically, LeavesTheOldFileWholeWhicheverOperationFails) {
  for (const int error : {ENOSPC, EIO}) {
    for (std::size_t at = 0; at <= kRename; ++at) {
      TempFolder folder;
      write_text(folder / "f", "first");
      FakeFiles files;
      files.fail(at, error);
      const std::string problem = problem_of(folder / "f", "second", files);
      EXPECT_THAT(problem, StartsWith((folder / "f") + ": cannot ")) << kAtomicWrite[at];
      EXPECT_THAT(problem, EndsWith(std::string(": ") + std::strerror(error))) << kAtomicWrite[at];
      EXPECT_EQ(read_text(folder / "f"), "first") << kAtomicWrite[at];
      EXPECT_THAT(names_in(folder.path()), ElementsAre("f")) << kAtomicWrite[at];
    }
  }
}

TEST(WriteFileAtomically, NamesTheFolderThatCannotBeSynced) {
  for (const auto& [at, doing] :
       {std::pair{kOpenFolder, "cannot open"}, std::pair{kSyncFolder, "cannot sync"}}) {
    TempFolder folder;
    FakeFiles files;
    files.fail(at, EIO);
    EXPECT_EQ(problem_of(folder / "f", "second", files),
              folder.path() + "/: " + doing + ": Input/output error");
    EXPECT_EQ(read_text(folder / "f"), "second");
    EXPECT_THAT(names_in(folder.path()), ElementsAre("f"));
  }
}

TEST(WriteFileAtomically, TakesAFileSystemThatSyncsNoFolders) {
  TempFolder folder;
  FakeFiles files;
  files.fail(kSyncFolder, EINVAL, 2);
  EXPECT_EQ(problem_of(folder / "f", "second", files), "");
  EXPECT_EQ(files.operations.at(kCloseFolder), "close folder");
}

TEST(WriteFileAtomically, SaysWhichTemporaryFileStays) {
  TempFolder folder;
  write_text(folder / "f", "first");
  FakeFiles files;
  files.fail(1, ENOSPC);
  files.fail(3, EIO);
  const std::string problem = problem_of(folder / "f", "second", files);
  EXPECT_THAT(files.operations, ElementsAre("create f.tmp", "write 6 f.tmp", "close f.tmp", "remove f.tmp"));
  EXPECT_THAT(problem, StartsWith((folder / "f") + ": cannot write: No space left on device; "));
  EXPECT_THAT(problem, EndsWith(".tmp stays, it cannot be removed: Input/output error"));
  EXPECT_EQ(read_text(folder / "f"), "first");
  std::set<std::string> names = names_in(folder.path());
  EXPECT_EQ(names.erase("f"), 1u);
  ASSERT_EQ(names.size(), 1u);
  EXPECT_THAT(problem, HasSubstr(*names.begin()));
}

TEST(WriteFileAtomically, GoesOnWhereASignalInterruptedIt) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, std::size_t{2}, kOpenFolder, kSyncFolder}) {
    TempFolder folder;
    FakeFiles files;
    files.fail(at, EINTR, 3);
    EXPECT_EQ(problem_of(folder / "f", "second", files), "") << kAtomicWrite[at];
    std::vector<std::string> expected = kAtomicWrite;
    expected.insert(expected.begin() + static_cast<std::ptrdiff_t>(at), 3, kAtomicWrite[at]);
    EXPECT_EQ(files.operations, expected);
    EXPECT_EQ(read_text(folder / "f"), "second") << kAtomicWrite[at];
  }
}

TEST(WriteFileAtomically, ClosesNoFileTwice) {
  TempFolder folder;
  FakeFiles files;
  files.fail(3, EINTR);
  EXPECT_EQ(problem_of(folder / "f", "second", files), "");
  EXPECT_EQ(files.operations, kAtomicWrite);
}

TEST(WriteFileAtomically, GoesOnBehindAShortWrite) {
  TempFolder folder;
  FakeFiles files;
  files.most_bytes = 4;
  files.fail(2, EINTR);
  EXPECT_EQ(problem_of(folder / "f", "0123456789", files), "");
  files.operations.resize(5);
  EXPECT_THAT(files.operations, ElementsAre("create f.tmp", "write 4 f.tmp", "write 4 f.tmp", "write 4 f.tmp",
                                            "write 2 f.tmp"));
  EXPECT_EQ(read_text(folder / "f"), "0123456789");
}

TEST(WriteFileAtomically, LeavesTheOldFileWholeWhenTheDiskFillsAfterSomeBytes) {
  TempFolder folder;
  write_text(folder / "f", "first");
  FakeFiles files;
  files.most_bytes = 4;
  files.fail(2, ENOSPC);
  EXPECT_EQ(problem_of(folder / "f", "0123456789", files),
            (folder / "f") + ": cannot write: No space left on device");
  EXPECT_EQ(read_text(folder / "f"), "first");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("f"));
}

TEST(WriteFileAtomically, GivesUpOnAFileThatTakesNoByte) {
  TempFolder folder;
  FakeFiles files;
  files.most_bytes = 0;
  EXPECT_EQ(problem_of(folder / "f", "second", files), (folder / "f") + ": cannot write: Input/output error");
}

TEST(WriteFileAtomically, NamesThePathThatCannotBe) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "taken");
  write_text(folder / "taken/x", "");
  EXPECT_EQ(problem_of(folder / "none/f", "x", real_files()),
            (folder / "none/f") + ": cannot create: No such file or directory");
  // A folder that is not empty.
  EXPECT_THAT(problem_of(folder / "taken", "x", real_files()),
              StartsWith((folder / "taken") + ": cannot put the finished file in place: "));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "taken"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("taken"));
}

/// A number that was a process's and is none any more.
pid_t gone() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

bool is_ours(std::string_view name) { return name == "results.json" || name == "done"; }

TEST(LeftTemporaries, OfAGoneProcessAreRemoved) {
  TempFolder folder;
  const std::string pid = std::to_string(gone());
  for (const char* name : {"results.json", "done"})
    write_text(folder / (std::string(name) + "." + pid + ".3.tmp"), "half a fi");
  write_text(temporary_name(folder / "done"), "by an earlier process of our own number");
  FakeFiles files;
  EXPECT_EQ(remove_left_temporaries(folder.path(), is_ours, files), 3);
  EXPECT_THAT(files.operations,
              testing::UnorderedElementsAre("remove results.json.tmp", "remove done.tmp", "remove done.tmp"));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(LeftTemporaries, OfOthersStay) {
  TempFolder folder;
  const std::string gone_pid = std::to_string(gone()), living = std::to_string(::getppid());
  const std::set<std::string> others{"results.json." + living + ".0.tmp",
                                     "results.json",
                                     "results.json.tmp",
                                     "results.json.1.tmp",
                                     "results.json.x.1.tmp",
                                     "results.json.-5.1.tmp",
                                     "results.json.0.1.tmp",
                                     "results.json." + gone_pid + ".1.tmp.old",
                                     "mine.json." + gone_pid + ".1.tmp",
                                     ".1.2.tmp",
                                     "..tmp",
                                     ".tmp"};
  for (const std::string& name : others) write_text(folder / name, "");
  std::filesystem::create_directory(folder / ("done." + gone_pid + ".0.tmp"));
  EXPECT_EQ(remove_left_temporaries(folder.path(), is_ours), 0);
  EXPECT_EQ(names_in(folder.path()).size(), others.size() + 1);
  EXPECT_EQ(remove_left_temporaries(folder / "no folder", is_ours), 0);
}

TEST(LeftTemporaries, ThatCannotBeRemovedAreNotCounted) {
  TempFolder folder;
  const std::string left = folder / ("done." + std::to_string(gone()) + ".0.tmp");
  write_text(left, "");
  FakeFiles files;
  files.fail(0, EACCES);
  EXPECT_EQ(remove_left_temporaries(folder.path(), is_ours, files), 0);
  EXPECT_TRUE(std::filesystem::exists(left));
}

}  // namespace
}  // namespace lockstep
