// A counter in a file: what it answers, and that processes at one file never get the same number.

#include "harness/lib/data/sharding/file_counter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "harness/lib/checkpoint/memory_storage.h"
#include "tests/support/temp_folder.h"

namespace lockstep::sharding {
namespace {

using testing::HasSubstr;

bool never() { return false; }

TEST(FileCounter, CountsFromWhereItWasReset) {
  checkpoint::MemoryStorage disk;
  FileCounter counter(disk, "/counter", never);
  EXPECT_THAT(counter.read().problem, HasSubstr("no number was ever set"));
  EXPECT_THAT(counter.add(1).problem, HasSubstr("no number was ever set"));
  EXPECT_EQ(counter.reset(7).value, 7);
  EXPECT_EQ(counter.add(3).value, 7);
  EXPECT_EQ(counter.add(1).value, 10);
  EXPECT_EQ(counter.read().value, 11);
}

TEST(FileCounter, RefusesWhatIsNoWholeNumber) {
  checkpoint::MemoryStorage disk;
  FileCounter counter(disk, "/counter", never);
  for (const char* text : {"", "7", "7\n", "07 5e1a6c1f4cd3bb1b\n", "seven"}) {
    disk.put_file("/counter", text);
    EXPECT_THAT(counter.read().problem, HasSubstr("no whole number with its checksum")) << text;
  }
}

TEST(FileCounter, GivesUpOnALockAndClearsWhatADeadWriterLeft) {
  checkpoint::MemoryStorage disk;
  FileCounter counter(disk, "/counter", never);
  counter.reset(1);
  int lock = -1;
  ASSERT_FALSE(disk.lock(counter.lock_path(), lock));
  EXPECT_THAT(counter.add(1).problem, HasSubstr("held it for too long"));
  EXPECT_EQ(counter.read().value, 1);
  disk.close(lock);
  disk.put_file("/counter.new", "half");
  EXPECT_EQ(counter.add(1).value, 1);
  EXPECT_EQ(counter.read().value, 2);
}

TEST(FileCounter, GivesEachProcessNumbersOfItsOwn) {
  const support::TempFolder folder;
  const std::string path = folder.path() + "/counter";
  constexpr int kProcesses = 4, kAdds = 100;
  const auto wait = [] { return ::sched_yield() == 0; };
  ASSERT_TRUE(FileCounter(checkpoint::posix_storage(), path, wait).reset(0));
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FileCounter counter(checkpoint::posix_storage(), path, wait);
      std::ofstream mine(path + "-of-" + std::to_string(process));
      bool well = true;
      for (int i = 0; i < kAdds; ++i) {
        const CounterAnswer answer = counter.add(2);
        well = well && answer;
        mine << answer.value << "\n";
      }
      mine.close();
      ::_exit(well ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::set<int64_t> numbers;
  for (int process = 0; process < kProcesses; ++process) {
    std::ifstream theirs(path + "-of-" + std::to_string(process));
    for (int64_t number = 0; theirs >> number;) EXPECT_TRUE(numbers.insert(number).second) << number;
  }
  EXPECT_EQ(numbers.size(), std::size_t{kProcesses * kAdds});
  EXPECT_EQ(FileCounter(checkpoint::posix_storage(), path, wait).read().value, 2 * kProcesses * kAdds);
}

}  // namespace
}  // namespace lockstep::sharding
