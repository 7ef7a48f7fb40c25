#include "harness/run/process_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "harness/base/machine.h"
#include "harness/run/libraries.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Stacks, ReadsTheFirstThreadOfWhatEuStackSays) {
  const std::string said =
      "PID 71 - process\nTID 71:\n#0  0x00007f5c2f8f1545 clock_nanosleep@GLIBC_2.2.5\n#1  0x00007f5c2f8f5e53 nanosleep\n"
      "#2  0x0000561bd6f0f1a2 lockstep::faults::Program::doze(double) const\n#3  0x0000561bd6f0f1a9 std::function<void (int)>::operator()(int) const\n"
      "#4  0x0000561bd6f0f1aa main\nTID 72:\n#0  0x00007f5c2f8f1545 epoll_wait\n";
  const Stacks stacks = read_stacks("eu-stack", 71, said, true);
  EXPECT_THAT(stacks.frames, ElementsAre("clock_nanosleep", "nanosleep", "lockstep::faults::Program::doze"));
  EXPECT_EQ(in_words(stacks), "its first thread is in clock_nanosleep < nanosleep < lockstep::faults::Program::doze");
  EXPECT_EQ(stacks.text, said);
}

TEST(Stacks, ReadsTheFirstThreadOfWhatGdbSays) {
  const std::string said =
      "[New LWP 72]\n\nThread 2 (Thread 0x7f1 (LWP 72) \"gloo\"):\n#0  0x00007f in epoll_wait (epfd=3) at x.c:1\n\n"
      "Thread 1 (Thread 0x7f0 (LWP 71) \"rank\"):\n#0  0x00007f5c in __GI___clock_nanosleep (clock_id=1) at ../a.c:78\n"
      "#1  0x00007f5d in time_sleep (self=<optimized out>) at ./timemodule.c:383\n#2  load_rows (n=3) at rows.cpp:4\n#3  0x01 in ?? ()\n";
  EXPECT_THAT(read_stacks("gdb", 71, said, true).frames, ElementsAre("__GI___clock_nanosleep", "time_sleep", "load_rows"));
}

TEST(Stacks, ReadsTheThreadsOfWhatPySpySays) {
  const std::string said = "Process 71: python train.py\nPython v3.11\n\nThread 71 (idle): \"MainThread\"\n    decode (data.py:7)\n    train (train.py:20)\n"
                           "Thread 72 (idle): \"loader\"\n    wait (threading.py:1)\n";
  EXPECT_THAT(read_stacks("py-spy", 71, said, true).frames, ElementsAre("decode", "train"));
}

TEST(Stacks, SayWhatToDoWhereTracingIsNotAllowed) {
  const Stacks stacks = read_stacks("gdb", 71, "ptrace: Operation not permitted.\n", true);
  EXPECT_THAT(stacks.frames, IsEmpty());
  EXPECT_THAT(in_words(stacks), HasSubstr("gdb may not trace process 71; run lockstep as the user of its ranks with CAP_SYS_PTRACE"));
}

TEST(Stacks, SayThatAToolWasKilledOrFoundNothing) {
  EXPECT_THAT(in_words(read_stacks("gdb", 71, "", false)), HasSubstr("no stack: gdb was killed at its time limit"));
  EXPECT_THAT(in_words(read_stacks("eu-stack", 71, "no such process\n", true)), HasSubstr("found no frame of process 71"));
}

TEST(StackTaker, EndsAtItsLimit) {
  StackTaker taker(1 << 30, 10, 100);  // a process that is not there
  EXPECT_TRUE(taker.done(111));
  EXPECT_THAT(taker.stacks().frames, IsEmpty());
  EXPECT_THAT(taker.stacks().text, HasSubstr("no stack"));
  EXPECT_TRUE(taker.holds());
}

TEST(Stacks, AreKeptWithALineInWords) {
  const TempFolder run;
  EXPECT_TRUE(kept_stacks(run.path()).empty());
  write_stacks(run.path(), 11, {"TID 7:\n#0 0x1 pause\n", {"pause"}});
  write_stacks(run.path(), 2, {"no stack: gdb found no frame\nmore\n", {}});
  for (const char* other : {"stacks-.txt", "stacks-x.txt", "stacks-1x.txt", "other.txt"}) write_text(run / other, "no\n");
  const std::vector<KeptStacks> kept = kept_stacks(run.path());
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].rank, 2);
  EXPECT_EQ(kept[0].words, "no stack: gdb found no frame");
  EXPECT_EQ(kept[1].rank, 11);
  EXPECT_EQ(kept[1].words, "its first thread is in pause");
  EXPECT_EQ(read_text(kept[1].path), "its first thread is in pause\nTID 7:\n#0 0x1 pause\n");
}

/// A trainer in Python that hangs, by py-spy itself.
TEST(StackTaker, SaysWhereAPythonProcessIs) {
  const std::string python = find_program("python3"), spy = find_program("py-spy");
  if (python.empty() || spy.empty()) GTEST_SKIP() << (python.empty() ? "no python3" : "no py-spy in PATH: python3 -m pip install py-spy");
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ready[1], STDOUT_FILENO);
    ::execl(python.c_str(), "python3", "-c",
            "import signal\ndef read_rows():\n  print('there', flush=True)\n  signal.pause()\ndef train():\n  read_rows()\ntrain()\n", nullptr);
    ::_exit(127);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(stack_command(pid).front(), testing::EndsWith("/py-spy"));
  const double began = monotonic_s();
  StackTaker taker(pid, 20, began);
  while (!taker.done(monotonic_s())) ::poll(nullptr, 0, 5);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  for (const int end : ready) ::close(end);
  EXPECT_THAT(taker.stacks().frames, ElementsAre("read_rows", "train")) << taker.stacks().text;
}

}  // namespace
}  // namespace lockstep
