#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/writer.h"
#include "harness/run/launchers/local/launcher.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"
#include "harness/run/run_folder.h"
#include "harness/run/supervisor.h"
#include "tests/support/made_run.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class NameFailure : public testing::Test {
 protected:
  NameFailure() {
    ends_.run = "a";
    ends_.dir = folder_.path();
    ends_.world_size = 3;
    ends_.heartbeat = &heartbeat_;
  }
  void result(int rank, const std::string& status, const std::string& error = {}, int64_t steps_done = 9) {
    RankResult result;
    result.rank = rank;
    result.world_size = 3;
    result.status = status;
    result.error = error;
    result.phase = "train";
    result.steps_done = steps_done;
    write_rank_result(rank_result_path(folder_.path(), rank), result);
  }
  void all_finish() {
    for (int rank = 0; rank < 3; ++rank) result(rank, "finished");
  }
  const TempFolder folder_;
  HeartbeatFile heartbeat_ = HeartbeatFile::create(folder_ / "beat", 3);
  RunEnds ends_;
};

TEST_F(NameFailure, NamesTheRankThatFailedFirstAndHow) {
  struct Row {
    const char* what;
    std::vector<RankEnd> ends;
    std::function<void()> left;  ///< what the ranks have left
  };
  const auto finish = [this](std::vector<int> ranks) {
    for (const int rank : ranks) result(rank, "finished");
  };
  const std::string stopped = "stopped by signal 15 (SIGTERM) after step 7: saved as step 7";
  const Row rows[] = {
      {"every rank finished", {{2}, {0}, {1}}, [&] { finish({0, 1, 2}); }},
      {"one process of all finished", {{-1}}, [&] { finish({0, 1, 2}); }},
      {"stopped in order",
       {{2, 143}, {0, 143}, {1, 143}},
       [&] {
         for (const int rank : {0, 1, 2}) result(rank, "interrupted", stopped);
       }},
      {"lost before peers",
       {{0, 1}, {1, 1, 0, false, "there is no such process"}, {2, 0, 9, true}},
       [&] { result(0, "failed", "Connection closed by peer"); }},
      {"lost after one that failed",
       {{0, 1}, {1, 1, 0, false, "there is no such process"}, {2, 0, 11}},
       [&] { result(0, "failed", "Connection closed by peer"); }},
      {"threw, and the others lost it",
       {{0, 1}, {2, 1}, {1, 1}},
       [&] {
         result(0, "failed", "[pair.cc:534] Connection closed by peer [127.0.0.1]:31");
         result(1, "failed", "no such tensor");
         result(2, "failed", "Timed out waiting 1000ms for recv operation to complete");
         heartbeat_.report(1, 17, "forward");
         write_text(rank_log_path(folder_.path(), 1), "first\nlast\n");
       }},
      {"died, though its peers ended before",
       {{0, 1}, {2, 1}, {1, 0, SIGSEGV}},
       [&] {
         result(0, "failed", "Connection reset by peer");
         result(2, "failed", "Broken pipe");
       }},
      {"those that the launcher killed",
       {{0, 0, SIGKILL, true}, {1, 0, SIGKILL, true}, {2, 1}},
       [&] { result(2, "failed", "disk on fire"); }},
      {"an exit status without a result", {{0}, {1}, {2}}, [&] { finish({0, 2}); }},
      {"a crash after the result", {{0}, {1, 3}, {2}}, [&] { finish({0, 1, 2}); }},
      {"half a result",
       {{0}, {1}, {2}},
       [&] {
         finish({0, 1});
         write_text(rank_result_path(folder_.path(), 2), "{\"rank\": 2, ");
       }},
      {"a rank inside one process",
       {{-1, 1}},
       [&] {
         result(0, "failed", "another rank failed");
         result(1, "finished");
         result(2, "failed", "no such tensor");
         write_text(rank_log_path(folder_.path(), -1), "the only log\n");
       }},
      {"a process of several was killed", {{-1, 0, SIGKILL}}, [] {}},
      {"a process of one was killed", {{-1, 0, SIGKILL}}, [&] { ends_.world_size = 1; }},
  };
  support::Said said(folder_.path());
  for (const Row& row : rows) {
    for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
      if (file.path().filename() != "beat") std::filesystem::remove(file);
    heartbeat_ = HeartbeatFile::create(folder_ / "beat", 3);
    ends_.world_size = 3;
    row.left();
    ends_.ends = row.ends;
    const auto failure = name_failure(ends_);
    said(row.what, !failure ? "no failure"
                            : fmt::format("{}, rank {}, step {} {}: {} [{}]", to_word(failure->kind), failure->rank,
                                          failure->step, failure->operation, failure->message,
                                          fmt::join(failure->last_lines, " | ")));
  }
}
TEST_F(NameFailure, NamesARankThatLeftWellBeforeItsWorkWasDoneAndNotWhoWaitedForIt) {
  for (const int rank : {0, 1}) heartbeat_.report(rank, 5, "forward"), result(rank, "failed", "Connection closed by peer");
  ends_.ends = {{2}, {0, 1}, {1, 1}};
  result(2, "finished", "", 5);
  const auto failure = name_failure(ends_);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->kind, FailureKind::died);
  EXPECT_EQ(failure->message, "left with status 0 after 5 steps, while rank 0 is at step 5 and waits for it; rank 0: Connection closed by peer");
  EXPECT_FALSE(all_lost_their_peers(ends_));
  result(2, "finished", "", 6);  // it had done what the others were at
  EXPECT_EQ(name_failure(ends_)->rank, 0);
  EXPECT_TRUE(all_lost_their_peers(ends_));
}

TEST_F(NameFailure, KnowsWhatARankSaidOfItselfThoughItsProcessStays) {
  result(1, "failed", "ValueError: no such file");
  ASSERT_TRUE(said_failure(ends_, 1));
  EXPECT_EQ(said_failure(ends_, 1)->kind, FailureKind::threw);
  result(1, "failed", "Connection closed by peer");
  EXPECT_FALSE(said_failure(ends_, 1));
  result(1, "finished");
  EXPECT_FALSE(said_failure(ends_, 1));
  EXPECT_FALSE(said_failure(ends_, 0));
}

PlannedRun planned() {
  PlannedRun run;
  run.hash = "c0ffee";
  return run;
}

TEST_F(NameFailure, FindsNothingWrongWithWholeFiles) {
  all_finish();
  EXPECT_FALSE(unreadable_failure(ends_, planned())) << "no traces at the level `off`";
  support::write_ranks(folder_.path(), {"c0ffee", 0, 3, "energy", TraceLevel::hash, "real"}, [](TraceWriter&, int) {});
  EXPECT_FALSE(unreadable_failure(ends_, planned()));
}

TEST_F(NameFailure, NamesTheFileThatAFinishedRankLeftDamaged) {
  all_finish();
  const std::string path = folder_ / "rank-1.trace";
  {
    TraceWriter writer(path, {"c0ffee", 1, 3, "energy", TraceLevel::hash, "real"});
    writer.begin_step(0);
    writer.scalar(Phase::loss, "loss", 1, Sharing::own);
    writer.end_step();
    writer.finish();
  }
  const std::string whole = read_text(path);
  std::string damaged = whole;
  damaged[whole.size() - 30] ^= 1;
  write_text(path, damaged);
  auto failure = unreadable_failure(ends_, planned());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::unreadable);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_THAT(failure->message, HasSubstr(path + ": at offset "));
  write_text(path, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(unreadable_failure(ends_, planned())->message, HasSubstr("cut short"));
  write_text(path, whole);
  PlannedRun other;
  other.hash = "decaf";
  EXPECT_THAT(unreadable_failure(ends_, other)->message,
              HasSubstr("config hash c0ffee, where rank 1 of decaf belongs"));
  write_text(rank_result_path(folder_.path(), 2), "{\"schema_version\": 2}");
  std::filesystem::remove(path);
  EXPECT_THAT(unreadable_failure(ends_, planned())->message, HasSubstr("rank-2.result.json has no checksum"));
  RankResult result;
  result.config_hash = "decaf";
  write_rank_result(rank_result_path(folder_.path(), 0), result);
  EXPECT_THAT(
      unreadable_failure(ends_, planned())->message,
      HasSubstr("rank-0.result.json is of a run with the config hash decaf, where c0ffee was expected"));
}

TEST(OnlyLostItsPeers, TellsConsequencesFromCauses) {
  EXPECT_TRUE(
      only_lost_its_peers("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"));
  EXPECT_TRUE(only_lost_its_peers("Timed out waiting 60000ms for send operation to complete"));
  EXPECT_TRUE(only_lost_its_peers("ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."));
  EXPECT_FALSE(only_lost_its_peers("loss is not finite at step 17"));
  EXPECT_FALSE(only_lost_its_peers(""));
}

/// A file system of 128 KB, gone when the test ends.
class SmallDisk : public testing::Test {
 protected:
  SmallDisk() { there_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, "size=128k") == 0; }
  ~SmallDisk() override {
    if (there_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  const TempFolder folder_;
  bool there_ = false;
};

TEST_F(SmallDisk, IsFullWhenNothingFitsAnyMore) {
  if (!there_) GTEST_SKIP() << "mounting a small file system takes root";
  EXPECT_FALSE(disk_is_full(folder_.path()));
  write_text(folder_ / "filler", std::string(1 << 20, 'x'));
  EXPECT_TRUE(disk_is_full(folder_.path()));
  std::filesystem::remove(folder_ / "filler");
  EXPECT_FALSE(disk_is_full(folder_.path()));
  EXPECT_FALSE(disk_is_full("/nowhere")) << "what cannot be asked is not blamed";
}

// One run under a supervisor, by a launcher that reports what it is told.

using testing::Field;
using Kind = LauncherEvent::Kind;

LauncherEvent started() { return {.kind = Kind::started, .run = "run", .pids = {11, 12, 13}, .message = ""}; }

LauncherEvent exit_of(int rank, int code = 0, int signal = 0) {
  return {.kind = Kind::exit, .run = "run", .pids = {}, .rank = rank, .code = code, .signal = signal, .message = ""};
}

/// Reports a list of events in each poll; a kill ends the ranks that are left.
class Scripted final : public Launcher {
 public:
  explicit Scripted(std::deque<std::vector<LauncherEvent>> polls) : polls_(std::move(polls)) {}
  void start(const RankStart&) override {}
  void stop(const std::string&, int signal) override {
    signals.push_back(signal);
    polls_.assign(1, {});
    for (const int rank : left_by_kill) polls_.front().push_back(exit_of(rank, 0, signal));
  }
  std::vector<LauncherEvent> poll(double) override {
    if (polls_.empty()) return {};
    auto events = std::move(polls_.front());
    polls_.pop_front();
    return events;
  }
  void tell(const std::string&, const std::string& why) override { told.push_back(why); }
  void shut_down(double) override {}

  std::vector<std::string> told;
  std::vector<int> signals, left_by_kill;

 private:
  std::deque<std::vector<LauncherEvent>> polls_;
};

struct Supervised : testing::Test {
  RunSpec within(double deadline_s) const {
    RunSpec spec;
    spec.start = {"run", folder.path(), 3, 3};
    spec.thresholds = {60, 60, 60, 60, 60, 60};
    spec.deadline_s = deadline_s;
    return spec;
  }
  EndedRun run(const RunSpec& spec, RunHooks hooks = {}) {
    Supervisor supervisor(std::unique_ptr<Launcher>(std::exchange(launcher, nullptr)), "ranks");
    supervisor.on_other_event = [&](const LauncherEvent& event) { others.push_back(event.run); };
    EndedRun ended = supervise(supervisor, spec, std::move(hooks), &stop);
    signals = scripted->signals;  // it ends with the supervisor
    told = scripted->told;
    return ended;
  }
  void script(std::deque<std::vector<LauncherEvent>> polls, std::vector<int> left_by_kill = {}) {
    launcher = scripted = new Scripted(std::move(polls));
    scripted->left_by_kill = std::move(left_by_kill);
  }
  void finished(int rank) {
    RankResult result;
    result.rank = rank;
    result.world_size = 3;
    result.status = "finished";
    write_rank_result(rank_result_path(folder.path(), rank), result);
  }
  void all_finished() {
    for (int rank = 0; rank < 3; ++rank) finished(rank);
  }

  TempFolder folder;
  Launcher* launcher = nullptr;
  Scripted* scripted = nullptr;
  std::vector<std::string> others, told;
  std::vector<int> signals;
  int stop = 0;
};

TEST_F(Supervised, EndsWhenAllRanksHaveInTheOrderInWhichTheyDid) {
  all_finished();
  LauncherEvent other = exit_of(0, 9);
  other.run = "earlier";
  script({{{.kind = Kind::ready, .run = "", .pids = {}, .message = ""}, other, started()}, {exit_of(2)}, {exit_of(0), exit_of(1)}});
  const EndedRun ended = run(within(60));
  EXPECT_THAT(ended.ends, ElementsAre(Field(&RankEnd::rank, 2), Field(&RankEnd::rank, 0), Field(&RankEnd::rank, 1)));
  EXPECT_FALSE(ended.failure);
  EXPECT_FALSE(ended.late);
  EXPECT_THAT(signals, testing::IsEmpty());
  EXPECT_THAT(others, ElementsAre("earlier"));
}

TEST_F(Supervised, KeepsItsFailureWhereTheFlightRecordIsDamaged) {
  write_text(folder.path() + "/flight-0.ring", "");
  all_finished();
  script({{started()}, {exit_of(2), exit_of(0), exit_of(1)}});
  EXPECT_THAT(flight_record(run(within(60))), ElementsAre(testing::HasSubstr("cannot be read or written: ")));
}

TEST_F(Supervised, ShowsWhatGoesOn) {
  all_finished();
  script({{}, {started()}, {exit_of(1)}, {exit_of(0), exit_of(2)}});
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  RunHooks hooks;
  hooks.on_look = [&](const OngoingRun& going) {
    seen.emplace_back(going.pids.size(), going.ends.size());
    return false;
  };
  run(within(60), hooks);
  EXPECT_THAT(seen, ElementsAre(std::pair(3, 0), std::pair(3, 1)));
}

TEST_F(Supervised, IsKilledOnceAtItsDeadline) {
  finished(1);
  script({{started(), exit_of(1)}}, {0, 2});
  const EndedRun ended = run(within(-1));
  EXPECT_TRUE(ended.late);
  EXPECT_EQ(ended.left_before_kill, 1u);
  EXPECT_EQ(ended.ends.size(), 3u);
  EXPECT_THAT(signals, ElementsAre(SIGKILL));
}

TEST_F(Supervised, IsKilledWhenAHookSaysSo) {
  all_finished();
  script({{started()}, {exit_of(0), exit_of(2)}}, {1});
  RunHooks hooks;
  hooks.on_look = [](const OngoingRun& going) { return going.ends.size() == 2; };
  const EndedRun ended = run(within(60), hooks);
  EXPECT_FALSE(ended.late);
  EXPECT_EQ(ended.left_before_kill, 2u);
  EXPECT_EQ(ended.ends.back().signal, SIGKILL);
}

TEST_F(Supervised, KillsTheOthersAfterTheFirstFailureAndNamesIt) {
  finished(0);
  finished(2);
  script({{started()}, {exit_of(1, 0, SIGSEGV)}}, {0, 2});
  RunSpec spec = within(60);
  spec.failure_grace_s = 0;
  const EndedRun ended = run(spec);
  ASSERT_TRUE(ended.failure);
  EXPECT_EQ(ended.failure->kind, FailureKind::died);
  EXPECT_EQ(ended.failure->rank, 1);
  EXPECT_GT(ended.failure_at, 0);
  EXPECT_THAT(signals, ElementsAre(SIGKILL));
}

TEST_F(Supervised, TellsTheOthersOfARankThatLeftWithAGoodStatusAndNoResult) {
  script({{started()}, {exit_of(1)}}, {0, 2});
  RunSpec spec = within(60);
  spec.failure_grace_s = 0;
  run(spec);
  EXPECT_THAT(told, ElementsAre(testing::HasSubstr("rank 1 left: exited with status 0 without a result")));
}

TEST_F(Supervised, IsNotLateWhereAStopIsRequested) {
  script({{started()}}, {0, 1, 2});
  stop = 1;
  const EndedRun ended = run(within(60));
  EXPECT_FALSE(ended.late);
  EXPECT_THAT(signals, ElementsAre(SIGKILL));
}

TEST_F(Supervised, SaysWhyNothingWasStarted) {
  script({{{.kind = Kind::refused, .run = "run", .pids = {}, .message = "no memory"}}});
  EXPECT_THAT([&] { run(within(60)); },
              testing::ThrowsMessage<MachineError>(testing::HasSubstr("ranks cannot be started: no memory")));
}

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

bool is_null(int descriptor) {
  struct stat null {
  }, open{};
  return ::stat("/dev/null", &null) == 0 && ::fstat(descriptor, &open) == 0 && open.st_rdev == null.st_rdev &&
         S_ISCHR(open.st_mode);
}

/// What a child of ours sees that closes the descriptors of `mask` first: 0 if those are /dev/null and the
/// next file gets a number above them.
int end_of_child(unsigned mask) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd) {
      if ((mask >> fd & 1) != 0) ::close(fd);
    }
    open_standard_streams();
    for (int fd = 0; fd < 3; ++fd) {
      if ((mask >> fd & 1) != 0 && !is_null(fd)) ::_exit(10 + fd);
    }
    rlimit none{};
    ::setrlimit(RLIMIT_FSIZE, &none);
    if (::ftruncate(::memfd_create("a", 0), 1) == 0 || errno != EFBIG) ::_exit(40);
    if (::write(STDERR_FILENO, "", 0) != 0 || ::write(STDOUT_FILENO, "", 0) != 0) ::_exit(20);
    ::_exit(::open("/dev/zero", O_RDONLY) > 2 ? 0 : 30);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardStreams, AreOpenWhicheverWereClosed) {
  for (unsigned mask = 0; mask < 8; ++mask) EXPECT_EQ(end_of_child(mask), 0) << mask;
}

TEST(StandardStreams, StayAsTheyAreIfTheyAreOpen) {
  struct stat before {
  }, after{};
  ASSERT_EQ(::fstat(STDERR_FILENO, &before), 0);
  open_standard_streams();
  ASSERT_EQ(::fstat(STDERR_FILENO, &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(before.st_dev, after.st_dev);
}

}  // namespace
}  // namespace lockstep
