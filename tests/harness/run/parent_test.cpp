#include "harness/jobs/parent.h"

#include <gmock/gmock.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <poll.h>

#include "harness/jobs/rank_program.h"
#include "harness/run/launchers/local/protocol.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Serves in a forked child; the test holds the other end.
class ServedRanks {
 public:
  explicit ServedRanks(const std::function<int(const RankTask&)>& run_rank,
                       const std::function<void(const std::string&)>& make_ready = {}) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) ::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::_exit(serve_ranks(ends[1], {run_rank, make_ready}));
    }
    ::close(ends[1]);
    socket_ = std::make_unique<LineSocket>(ends[0]);
  }
  ~ServedRanks() {
    if (pid_ > 0) leave();
  }
  pid_t process() const { return pid_; }
  LauncherEvent next() {
    for (;;) {
      if (const auto line = socket_->line()) return event_from_line(*line);
      pollfd wait{socket_->descriptor(), POLLIN, 0};
      if (::poll(&wait, 1, 30000) != 1 || !socket_->receive())
        throw std::runtime_error("the parent says nothing");
    }
  }
  void start(const std::string& run, const std::string& dir, int processes) {
    ParentCommand command;
    command.op = ParentCommand::Op::start;
    command.run = run;
    command.dir = dir;
    command.world_size = command.processes = processes;
    command.command_started = 2.5;
    socket_->send(to_line(command));
  }
  void kill(const std::string& run, int signal) {
    ParentCommand command;
    command.op = ParentCommand::Op::kill;
    command.run = run;
    command.signal = signal;
    socket_->send(to_line(command));
  }
  void tell(const std::string& run, const std::string& why) {
    ParentCommand command;
    command.op = ParentCommand::Op::tell;
    command.run = run;
    command.why = why;
    socket_->send(to_line(command));
  }
  /// Closes the socket, waits, and returns the parent's exit status.
  int leave() {
    socket_.reset();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
  std::unique_ptr<LineSocket> socket_;
};

TEST(RankParent, GivesEachRankItsTaskAndReportsItsStatus) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    std::printf("%s %.1f\n", task.run_dir == folder.path() ? "right folder" : "wrong folder",
                task.command_started);
    return 10 + task.rank;
  });
  EXPECT_EQ(ranks.next().kind, LauncherEvent::Kind::ready);
  ranks.start("a", folder.path(), 3);
  const LauncherEvent started = ranks.next();
  EXPECT_EQ(started.kind, LauncherEvent::Kind::started);
  EXPECT_EQ(started.pids.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const LauncherEvent event = ranks.next();
    EXPECT_EQ(event.kind, LauncherEvent::Kind::exit);
    EXPECT_EQ(event.code, 10 + event.rank);
  }
  EXPECT_EQ(read_text(folder / "rank-2.log"), "right folder 2.5\n");
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, MakesReadyWhatItsRanksShareBeforeItForksThem) {
  const TempFolder folder;
  auto made = std::make_shared<std::string>();
  ServedRanks ranks([made](const RankTask& task) { return *made == task.run_dir ? 0 : 1; },
                    [made](const std::string& dir) {
                      *made = dir;
                      throw std::runtime_error("its ranks will find the same");
                    });
  ranks.next();
  ranks.start("a", folder.path(), 2);
  ranks.next();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ranks.next().code, 0);
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, KillsTheRanksOfOneRunAndNoOthers) {
  const TempFolder folder;
  ServedRanks ranks([](const RankTask&) -> int {
    release_stop_signals();
    for (;;) ::pause();
  });
  ranks.next();
  ranks.start("a", folder.path(), 2);
  ranks.start("b", folder.path(), 2);
  ranks.next();
  const LauncherEvent b = ranks.next();
  ranks.kill("a", SIGTERM);
  for (int i = 0; i < 2; ++i) {
    const LauncherEvent event = ranks.next();
    EXPECT_EQ(event.run, "a");
    EXPECT_EQ(event.signal, SIGTERM);
  }
  for (const int pid : b.pids) EXPECT_EQ(::kill(pid, 0), 0);
  EXPECT_EQ(ranks.leave(), 0);
  for (const int pid : b.pids) EXPECT_TRUE(::kill(pid, 0) != 0 && errno == ESRCH);
}

TEST(RankParent, OutlivesASignalToTheWholeJobAndTellsIt) {
  const TempFolder folder;
  ServedRanks ranks([](const RankTask&) -> int {
    for (;;) ::pause();
  });
  ranks.next();
  ranks.start("a", folder.path(), 1);
  const LauncherEvent started = ranks.next();
  for (const int signal : {SIGINT, SIGHUP, SIGTERM}) ::kill(ranks.process(), signal);
  const LauncherEvent told = ranks.next();
  EXPECT_EQ(told.kind, LauncherEvent::Kind::told_to_stop);
  EXPECT_EQ(told.signal, SIGTERM);
  EXPECT_EQ(::kill(started.pids.front(), 0), 0) << "its rank has not been ended by that";
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, GivesRanksFreshSignalsAndNoDescriptors) {
  const TempFolder folder;
  const int inherited = ::fcntl(STDOUT_FILENO, F_DUPFD, 20);  // above the rank's side channel
  ServedRanks ranks([&](const RankTask&) {
    sigset_t blocked;
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    struct stat ignored {};
    if (sigismember(&blocked, SIGCHLD) != 0 || sigismember(&blocked, SIGINT) != 0) return 1;
    if (sigismember(&blocked, SIGTERM) != 1) return 6;
    release_stop_signals();
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    if (sigismember(&blocked, SIGTERM) != 0) return 7;
    if (::fstat(inherited, &ignored) == 0) return 2;
    if (::signal(SIGTERM, SIG_DFL) != SIG_DFL) return 3;
    if (::signal(SIGHUP, SIG_DFL) != SIG_IGN) return 4;
    if (::getpgrp() != ::getpid()) return 5;
    return 0;
  });
  ranks.next();
  ranks.start("a", folder.path(), 1);
  ranks.next();
  const LauncherEvent end = ranks.next();
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.rank, -1) << "the one process is all ranks";
  ::close(inherited);
}

TEST(RankParent, RunsNoDestructorOfItsOwnInARank) {
  const TempFolder folder;
  struct Loud {
    std::string path;
    ~Loud() { write_text(path, "destroyed"); }
  };
  const auto loud = std::make_shared<Loud>(Loud{folder / "destroyed"});
  std::filesystem::remove(folder / "destroyed");
  ServedRanks ranks([loud](const RankTask&) { return 0; });
  ranks.next();
  ranks.start("a", folder.path(), 1);
  ranks.next();
  ranks.next();
  EXPECT_FALSE(std::filesystem::exists(folder / "destroyed"));
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankParent, RefusesARunWhoseLogItCannotOpen) {
  ServedRanks ranks([](const RankTask&) { return 0; });
  ranks.next();
  ranks.start("a", "/nowhere/at/all", 2);
  const LauncherEvent event = ranks.next();
  EXPECT_EQ(event.kind, LauncherEvent::Kind::refused);
  EXPECT_THAT(event.message, testing::HasSubstr("/nowhere/at/all/rank-0.log"));
  EXPECT_EQ(ranks.leave(), 0);
}

TEST(RankProgram, ExplainsItselfToPeople) {
  std::string program = "lockstep-rank", option = "--socket", number = "three";
  std::array<char*, 3> arguments = {program.data(), option.data(), number.data()};
  const auto none = [](const RankTask&) { return 0; };
  EXPECT_EQ(rank_program_main(1, arguments.data(), "v", {none}), 2);
  EXPECT_EQ(rank_program_main(3, arguments.data(), "v", {none}), 2);
}

/// What stands in a rank's side channel, waiting for it; it has a test's whole time.
std::string word_of_the_parent(int channel) {
  pollfd wait{channel, POLLIN, 0};
  char text[256] = {};
  if (::poll(&wait, 1, 30000) != 1 || ::recv(channel, text, sizeof text - 1, 0) <= 0) return "nothing";
  return text;
}

TEST(RankParent, TellsTheOthersOfADeathAndNobodyOfAGoodEnd) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    if (task.rank == 0) return 0;
    if (task.rank == 1) ::raise(SIGKILL);
    write_text(folder / ("told-" + std::to_string(task.rank)), word_of_the_parent(task.notices));
    return 130;
  });
  ranks.next();
  ranks.start("a", folder.path(), 4);
  for (int i = 0; i < 5; ++i) ranks.next();
  for (const char* rank : {"2", "3"})
    EXPECT_EQ(read_text(folder / (std::string("told-") + rank)), "rank 1 was killed by signal 9 (SIGKILL)");
}

TEST(RankParent, PassesOnWhatItIsTold) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    write_text(folder / ("told-" + std::to_string(task.rank)), word_of_the_parent(task.notices));
    return 130;
  });
  ranks.next();
  ranks.start("a", folder.path(), 2);
  ranks.next();
  ranks.tell("a", "rank 1 hangs: no progress");
  for (int i = 0; i < 2; ++i) ranks.next();
  EXPECT_EQ(read_text(folder / "told-0"), "rank 1 hangs: no progress");
  EXPECT_EQ(read_text(folder / "told-1"), "rank 1 hangs: no progress");
}

TEST(AbortListener, EndsARankThatWaitsForEver) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    AbortListener abort_listener(task.notices, 0.01, [&](const std::string& why) { write_text(folder / "why", why); });
    if (task.rank == 1) return 3;
    for (;;) ::pause();
  });
  ranks.next();
  ranks.start("a", folder.path(), 2);
  ranks.next();
  EXPECT_EQ(ranks.next().rank, 1);
  EXPECT_EQ(ranks.next().code, 1);
  EXPECT_EQ(read_text(folder / "why"), "rank 1 exited with status 3");
}

TEST(AbortListener, LeavesTheWordToARankThatEndsByItself) {
  const TempFolder folder;
  ServedRanks ranks([&](const RankTask& task) {
    AbortListener abort_listener(task.notices, 60, [&](const std::string&) { write_text(folder / "why", "left"); });
    if (task.rank == 1) return 3;
    const std::string why = abort_listener.told(30);
    abort_listener.end_by_itself();
    write_text(folder / "own", why);
    return 1;
  });
  ranks.next();
  ranks.start("a", folder.path(), 2);
  for (int i = 0; i < 3; ++i) ranks.next();
  EXPECT_EQ(read_text(folder / "own"), "rank 1 exited with status 3");
  EXPECT_FALSE(std::filesystem::exists(folder / "why"));
}

}  // namespace
}  // namespace lockstep
