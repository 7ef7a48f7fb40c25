#include "harness/trace/temporary_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::TempFolder;
using testing::ElementsAre;

/// A number that was a process's and is none any more.
pid_t gone() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(LeftTemporaries, OfAGoneProcessAreRemoved) {
  TempFolder folder;
  const std::string pid = std::to_string(gone());
  for (const char* name :
       {"results.json", "report.html", "run.json", "done", "rank-12.result.json", "looks.json"}) {
    support::write_file(folder / (std::string(name) + "." + pid + ".3.tmp"), "half a fi");
  }
  support::write_file(temporary_name(folder / "judged.json"), "by an earlier process of our own number");
  EXPECT_EQ(remove_left_temporaries(folder.path()), 7);
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
                                     "results.json." + gone_pid + ".1.tmp.old",
                                     "mine.json." + gone_pid + ".1.tmp",
                                     "rank-x.result.json." + gone_pid + ".1.tmp",
                                     "rank-.result.json." + gone_pid + ".1.tmp",
                                     ".1.2.tmp",
                                     "..tmp",
                                     ".tmp"};
  for (const std::string& name : others) support::write_file(folder / name, "");
  std::filesystem::create_directory(folder / ("done." + gone_pid + ".0.tmp"));
  EXPECT_EQ(remove_left_temporaries(folder.path()), 0);
  EXPECT_EQ(names_in(folder.path()).size(), others.size() + 1);
  EXPECT_EQ(remove_left_temporaries(folder / "no folder"), 0);
}

}  // namespace
}  // namespace lockstep
