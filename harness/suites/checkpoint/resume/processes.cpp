#include "harness/suites/checkpoint/resume/processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <optional>

#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/lib/checkpoint/hooked_storage.h"
#include "harness/lib/checkpoint/names.h"
#include "harness/lib/checkpoint/socket_group.h"
#include "harness/suites/checkpoint/resume/unsynced.h"

namespace lockstep::resume {
namespace {

constexpr std::size_t kBoardBytes = sizeof(RankBoard) * kMostRanks + sizeof(std::atomic<int64_t>);
const std::vector<int> kSignals{SIGTERM, SIGUSR1};

/// Counts a rank's operations where others can see it, and kills it before one of them.
class KillAt final : public checkpoint::Hook {
 public:
  KillAt(int64_t number, RankBoard& board) : number_(number), board_(board) {}
  checkpoint::Intervention before(const checkpoint::Operation& operation) override {
    board_.operations = operation.number;
    if (operation.number == number_) ::kill(::getpid(), SIGKILL);
    return {};
  }

 private:
  int64_t number_;
  RankBoard& board_;
};

/// The process of one rank, from its fork to its end.
[[noreturn]] void be_rank(const ProcessRun& run, RankBoard& board, int rank, checkpoint::SocketGroup& training,
                          checkpoint::SocketGroup& saving) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  board.process = ::getpid();
  std::optional<PreemptionSignals> signals;
  if (run.signals) signals.emplace(kSignals);
  KillAt hook(rank == run.killed_rank ? run.killed_at : -1, board);
  checkpoint::Seam seam(hook);
  Unsynced unsynced(checkpoint::posix_storage());
  checkpoint::HookedStorage storage(run.sync ? checkpoint::posix_storage() : unsynced, seam);
  checkpoint::HookedGroup steps(training, seam), saves(saving, seam);
  toy::RunOptions options = run.options;
  options.on_step = [&board](const toy::StepRecord& record) { board.reached = record.step; };
  options.on_committed = [&board](const checkpoint::SaveOutcome& outcome) {
    board.committed = checkpoint::parse_entry_name(outcome.name).step;
  };
  options.on_phase = [&](toy::Phase phase, int64_t step) {
    board.phase = static_cast<int>(phase);
    if (run.on_phase) run.on_phase(rank, phase, step);
  };
  int code = 1;
  try {
    const toy::RunEnd end = toy::run_rank(options, storage, steps, saves, signals ? &*signals : nullptr);
    board.began_at = end.began_at;
    board.ended_at = end.ended_at;
    board.refused = static_cast<int>(end.refused.size());
    board.in_grace = end.in_grace ? 1 : 0;
    const std::string said = end.problem.empty() && !end.refused.empty() ? end.refused.front() : end.problem;
    std::strncpy(board.problem.data(), said.c_str(), board.problem.size() - 1);
    code = end.problem.empty() ? end.exit_code : 1;
  } catch (const std::exception& error) {
    std::strncpy(board.problem.data(), error.what(), board.problem.size() - 1);
  }
  board.signals = signals ? static_cast<int>(signals->count()) : 0;
  board.exit_code = code;
  ::_exit(code);
}

[[noreturn]] void be_launcher(const ProcessRun& run, const Board& board) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  board.launcher() = ::getpid();
  SignalRelay relay(kSignals);
  std::vector<pid_t> ranks;
  {
    const HeldSignals held(kSignals);
    ranks = start_ranks(run, board, [&relay](pid_t process) { relay.add(process); });
  }
  int common = -1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const pid_t process = ranks[rank];
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    relay.remove(process);
    // Once it is waited for its number may be somebody else's.
    board.rank(static_cast<int>(rank)).process = 0;
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    board.rank(static_cast<int>(rank)).killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 1 : 0;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    common = common < 0 || common == code ? code : 1;
  }
  ::_exit(common);
}

}  // namespace

Board::Board() {
  memory_ = ::mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw MachineError(fmt::format("no memory for a board: {}", std::strerror(errno)));
  ranks_ = static_cast<RankBoard*>(memory_);
  launcher_ = new (static_cast<char*>(memory_) + sizeof(RankBoard) * kMostRanks) std::atomic<int64_t>(0);
  clear();
}

Board::~Board() { ::munmap(memory_, kBoardBytes); }

void Board::clear() {
  for (int at = 0; at < kMostRanks; ++at) new (&ranks_[at]) RankBoard();
  *launcher_ = 0;
}

int64_t Board::reached(int ranks) const {
  int64_t furthest = 0;
  for (int at = 0; at < ranks; ++at) furthest = std::max<int64_t>(furthest, ranks_[at].reached);
  return furthest;
}

int64_t Board::committed(int ranks) const {
  int64_t furthest = 0;
  for (int at = 0; at < ranks; ++at) furthest = std::max<int64_t>(furthest, ranks_[at].committed);
  return furthest;
}

std::vector<pid_t> start_ranks(const ProcessRun& run, const Board& board, const std::function<void(pid_t)>& on_start) {
  const auto training = checkpoint::make_socket_groups(run.ranks), saving = checkpoint::make_socket_groups(run.ranks);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < run.ranks; ++rank) {
    const pid_t process = ::fork();
    if (process < 0) throw MachineError(fmt::format("no process for rank {}: {}", rank, std::strerror(errno)));
    const auto own = static_cast<std::size_t>(rank);
    if (process == 0) {
      for (std::size_t other = 0; other < training.size(); ++other) {
        if (other == own) continue;
        training[other]->close();
        saving[other]->close();
      }
      be_rank(run, board.rank(rank), rank, *training[own], *saving[own]);
    }
    processes.push_back(process);
    if (on_start) on_start(process);
  }
  for (const auto& group : training) group->close();
  for (const auto& group : saving) group->close();
  return processes;
}

Ended wait_for(const std::vector<pid_t>& processes, double deadline_s) {
  Ended ended;
  ended.statuses.assign(processes.size(), -1);
  const double until_s = monotonic_s() + deadline_s;
  std::size_t left = processes.size();
  while (left > 0) {
    for (std::size_t at = 0; at < processes.size(); ++at) {
      int status = 0;
      if (ended.statuses[at] != -1 || ::waitpid(processes[at], &status, WNOHANG) != processes[at]) continue;
      ended.statuses[at] = status;
      --left;
    }
    if (left == 0) break;
    if (monotonic_s() > until_s && !ended.hung) {
      ended.hung = true;
      for (std::size_t at = 0; at < processes.size(); ++at) {
        if (ended.statuses[at] == -1) ::kill(processes[at], SIGKILL);
      }
    }
    ::poll(nullptr, 0, 1);
  }
  return ended;
}

pid_t start_launcher(const ProcessRun& run, const Board& board) {
  const HeldSignals held(kSignals);
  const pid_t process = ::fork();
  if (process < 0) throw MachineError(fmt::format("no process for a launcher: {}", std::strerror(errno)));
  if (process == 0) be_launcher(run, board);
  return process;
}

void wait_ms(double ms, const std::function<bool()>& ready) {
  const double until_s = monotonic_s() + ms / 1000;
  while (monotonic_s() < until_s && !(ready && ready())) {
    timespec short_while{0, 100'000};
    ::ppoll(nullptr, 0, &short_while, nullptr);
  }
}

}  // namespace lockstep::resume
