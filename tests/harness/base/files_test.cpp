#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
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

std::error_code write_as(OpenFor purpose, const std::string& path, const std::string& content) {
  int file = -1;
  if (const auto error = real_files().open(path, purpose, file)) return error;
  std::error_code error = real_files().write(file, content);
  if (!error) error = real_files().sync(file);
  const std::error_code unclosed = real_files().close(file);
  return error ? error : unclosed;
}

TEST(RealFiles, OpenForWhatTheyAreAsked) {
  TempFolder folder;
  EXPECT_FALSE(write_as(OpenFor::creating, folder / "f", "one"));
  EXPECT_EQ(write_as(OpenFor::creating, folder / "f", "two"), std::errc::file_exists);
  EXPECT_EQ(read_text(folder / "f"), "one");
  EXPECT_FALSE(write_as(OpenFor::appending, folder / "f", ", two"));
  EXPECT_EQ(read_text(folder / "f"), "one, two");
  EXPECT_FALSE(write_as(OpenFor::replacing, folder / "f", "3"));
  EXPECT_EQ(read_text(folder / "f"), "3");
  EXPECT_EQ(write_as(OpenFor::syncing, folder / "f", ""), std::errc::not_a_directory);
}

TEST(RealFiles, SayWhatTheSystemSays) {
  TempFolder folder;
  EXPECT_EQ(real_files().remove(folder / "none"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(real_files().rename(folder / "none", folder / "f"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(real_files().close(-1), std::errc::bad_file_descriptor);
  EXPECT_EQ(real_files().sync(-1), std::errc::bad_file_descriptor);
  EXPECT_EQ(real_files().write(-1, "x"), std::errc::bad_file_descriptor);
  write_text(folder / "f", "");
  EXPECT_EQ(real_files().make_folders(folder / "f/g"), std::errc::not_a_directory);
}

TEST(RealFiles, MakeAndRemoveWholeFolders) {
  TempFolder folder;
  EXPECT_FALSE(real_files().make_folders(folder / "a/b"));
  EXPECT_FALSE(real_files().make_folders(folder / "a/b"));
  write_text(folder / "a/b/f", "");
  EXPECT_FALSE(real_files().remove_all(folder / "a"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  EXPECT_FALSE(real_files().remove_all(folder / "a"));
}

// A test that waited for its deadline would be slow: these are short, and one test alone waits for one.
constexpr Patience kShort{0.2, 0.3};

std::string fifo_in(const TempFolder& folder) {
  const std::string path = folder / "fifo";
  EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  return path;
}

TEST(ReadFile, GivesTheBytesOfARegularFile) {
  const TempFolder folder;
  const std::string bytes("a\0b\r\n", 5);
  write_text(folder / "f", bytes);
  const FileText file = read_file(folder / "f");
  EXPECT_TRUE(file);
  EXPECT_EQ(file.text, bytes);
}

TEST(ReadFile, ReadsAFileOfTheKernelWhoseSizeIsSaidToBeNothing) {
  EXPECT_THAT(read_file("/proc/self/status").text, HasSubstr("Name:"));
}

TEST(ReadFile, SaysWhetherAFileIsMissingOrCannotBeRead) {
  const TempFolder folder;
  const FileText missing = read_file(folder / "none");
  EXPECT_TRUE(missing.missing);
  EXPECT_EQ(missing.problem, "cannot be read: No such file or directory");
  write_text(folder / "f", "x");
  EXPECT_TRUE(read_file(folder / "f/below").missing) << "a file is no folder";
  const FileText there = read_file(folder.path());
  EXPECT_FALSE(there.missing);
  EXPECT_EQ(there.problem, "is a folder, not a file");
}

TEST(ReadFile, RefusesWhatWouldBeWaitedForAndNamesIt) {
  const TempFolder folder;
  EXPECT_EQ(read_file(fifo_in(folder)).problem, "is a FIFO, not a file");
  EXPECT_EQ(read_file("/dev/zero").problem, "is a device, not a file");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "s").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(read_file(folder / "s").problem, "is a socket, not a file");
  ::close(socket);
}

TEST(ReadFile, RefusesMoreThanItsLimitWithoutReadingIt) {
  const TempFolder folder;
  write_text(folder / "f", "12345");
  EXPECT_EQ(read_file(folder / "f", 4).problem, "has more than 4 bytes");
  EXPECT_TRUE(read_file(folder / "f", 5));
  // A hole of a tebibyte: read, it would take all memory.
  ASSERT_EQ(::truncate((folder / "f").c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(read_file(folder / "f").problem, "has more than 4096 MiB");
}

TEST(ReadFileOrPipe, ReadsAPipeToItsEnd) {
  const TempFolder folder;
  const std::string fifo = fifo_in(folder);
  std::thread writer([&fifo] {
    const int descriptor = ::open(fifo.c_str(), O_WRONLY);
    const std::string text(200000, 'y');
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t wrote = ::write(descriptor, text.data() + done, text.size() - done);
      if (wrote <= 0) break;
      done += static_cast<std::size_t>(wrote);
    }
    ::close(descriptor);
  });
  const FileText file = read_file_or_pipe(fifo, kMostConfigBytes);
  writer.join();
  EXPECT_TRUE(file) << file.problem;
  EXPECT_EQ(file.text, std::string(200000, 'y'));
}

TEST(ReadFileOrPipe, ReadsAPipeWhoseWriterHasGone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "name: x\n", 8), 8);
  ::close(ends[1]);
  EXPECT_EQ(read_file_or_pipe("/proc/self/fd/" + std::to_string(ends[0]), 100).text, "name: x\n");
  ::close(ends[0]);
}

TEST(ReadFileOrPipe, DoesNotWaitForEverForAWriter) {
  const TempFolder folder;
  const FileText file = read_file_or_pipe(fifo_in(folder), 100, kShort);
  EXPECT_EQ(file.problem, "gave no byte within 0.2 s: does anything write to it?");
}

TEST(ReadFileOrPipe, EndsAtItsLimitWhateverComes) {
  EXPECT_EQ(read_file_or_pipe("/dev/zero", kMostConfigBytes).problem, "has more than 1 MiB");
}

TEST(ReadConfigText, NamesThePathOfWhatIsTooLarge) {
  const TempFolder folder;
  write_text(folder / "m.yaml", std::string(kMostConfigBytes + 1, '#'));
  try {
    read_config_text(folder / "m.yaml");
    FAIL() << "a config of more than a MiB was read";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), folder / "m.yaml: has more than 1 MiB: too large for a config");
  }
}

using nlohmann::json;

json sealed() {
  json object = {
      {"text", "a \"b\"\n\xff"},
      {"whole", -3},
      {"real", 0.1 + 0.2},
      {"smallest", std::numeric_limits<double>::denorm_min()},
      {"list", {1, 2.0, "3", nullptr, true}},
      {"inner", {{"checksum", "of something else"}, {"empty", json::object()}, {"none", json::array()}}}};
  seal(object);
  return object;
}

std::string text_of(const json& object) { return object.dump(1, ' ', false, json::error_handler_t::replace); }

TEST(SealedJson, ComesBackFromItsTextHoweverThatIsLaidOut) {
  const std::string text = text_of(sealed());
  EXPECT_EQ(seal_problem(json::parse(text)), "");
  EXPECT_EQ(seal_problem(nlohmann::ordered_json::parse(text)), "");
  EXPECT_EQ(seal_problem(json::parse(json::parse(text).dump())), "");
  nlohmann::ordered_json turned;
  const json object = json::parse(text);
  for (auto at = object.rbegin(); at != object.rend(); ++at) turned[at.key()] = at.value();
  EXPECT_EQ(seal_problem(turned), "");
}

TEST(SealedJson, NoticesEachChangedCharacter) {
  const std::string text = sealed().dump(-1, ' ', true, json::error_handler_t::replace);
  int same = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char other : {'0', '7', 'b', '-', ' '}) {
      std::string damaged = text;
      damaged[i] = other;
      const json object = json::parse(damaged, nullptr, false);
      if (object.is_discarded() || !object.is_object()) continue;
      if (object == json::parse(text)) {
        ++same;  // another text of the same content
        continue;
      }
      EXPECT_NE(seal_problem(object), "") << damaged;
    }
  }
  EXPECT_LT(same, 40);
}

TEST(SealedJson, TellsPlaceAndNameAndType) {
  const std::string fits = "";
  const auto changed = [](auto change) {
    json object = sealed();
    change(object);
    return seal_problem(object);
  };
  EXPECT_EQ(changed([](json&) {}), fits);
  EXPECT_NE(changed([](json& j) { std::swap(j["list"][0], j["list"][1]); }), fits);
  EXPECT_NE(changed([](json& j) { j["inner"]["checksum"] = "of nothing"; }), fits);
  EXPECT_NE(changed([](json& j) { j["inner"]["empty"] = json::array(); }), fits);
  EXPECT_NE(changed([](json& j) { j["whole"] = -3.0; }), fits);
  EXPECT_NE(changed([](json& j) { j["more"] = nullptr; }), fits);
  EXPECT_NE(changed([](json& j) { j["list"][0] = "1"; }), fits);
}

TEST(SealedJson, SaysWhatIsWrong) {
  json object = sealed();
  object["whole"] = 4;
  EXPECT_THAT(seal_problem(object), StartsWith("is damaged: its checksum is "));
  object.erase("checksum");
  EXPECT_THAT(seal_problem(object), HasSubstr("has no checksum: an earlier lockstep or another program wrote it"));
  EXPECT_EQ(seal_problem(json::array()), "is not a JSON object");
}

TEST(SealedJson, SurvivesNestingWithoutEnd) {
  const std::string deep =
      "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + ", \"checksum\": \"0\"}";
  EXPECT_THAT(seal_problem(json::parse(deep)), HasSubstr("is damaged"));
}

TEST(SealedJson, IsReadFromAFile) {
  const TempFolder folder;
  std::string problem;
  EXPECT_FALSE(read_sealed(folder / "none", problem));
  EXPECT_THAT(problem, HasSubstr("cannot be read: "));
  write_text(folder / "f", text_of(sealed()).substr(0, 40));
  EXPECT_FALSE(read_sealed(folder / "f", problem));
  EXPECT_THAT(problem, StartsWith("is damaged: not JSON, or cut short, at line "));
  write_text(folder / "f", text_of(sealed()));
  const auto object = read_sealed(folder / "f", problem);
  ASSERT_TRUE(object) << problem;
  EXPECT_EQ((*object)["real"], 0.1 + 0.2);
}

}  // namespace
}  // namespace lockstep
