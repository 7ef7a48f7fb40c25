#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>

#include "harness/base/text.h"
#include "harness/lib/checkpoint/group.h"
#include "harness/suites/checkpoint/saver/search.h"

namespace lockstep::saver {
namespace {

namespace fs = std::filesystem;
using checkpoint::Saved;
using checkpoint::State;

/// Of a group one of whose ranks stops.
constexpr double kStopDeadline_s = 0.3;
/// A rank that neither ends nor is killed for so long hangs.
constexpr unsigned kHang_s = 90;

void lay_out(const checkpoint::MemoryStorage& disk, const std::string& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const std::string& path : disk.paths()) {
    const std::string relative = path.substr(std::min(path.size(), kParent.size()));
    if (relative.empty() || relative == "/") continue;
    if (path.ends_with('/')) {
      fs::create_directories(folder + relative);
      continue;
    }
    const auto bytes = disk.bytes(path);
    std::ofstream file(folder + relative, std::ios::binary);
    file.write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
    if (!file.flush()) throw MachineError(folder + relative + ": cannot be written");
  }
}

struct Job {
  const std::string& root;
  const Scene& scene;
  const Point& point;
  const std::vector<std::shared_ptr<const State>>& states;
  int signal;
};

[[noreturn]] void be_rank(const Job& job, int rank, checkpoint::SocketGroup& sockets) {
  ::alarm(kHang_s);
  checkpoint::SignalAt hook(rank == job.point.rank ? job.point.script.at : -1, job.signal, true);
  checkpoint::Seam seam(hook);
  checkpoint::HookedStorage storage(checkpoint::posix_storage(), seam);
  checkpoint::HookedGroup group(sockets, seam);
  checkpoint::SaveOptions options = options_of(job.scene, 9, {}, job.root);
  if (job.signal == SIGSTOP) options.deadline_s = kStopDeadline_s;
  checkpoint::Saver saver(options, storage, group);
  const Content content = new_content(job.scene);
  const checkpoint::SaveRequest request{content.step / 10, content.step, job.scene.best};
  ::_exit(static_cast<int>(save_as(saver, job.scene, request, *job.states[static_cast<std::size_t>(rank)]).saved));
}

std::vector<pid_t> start(const Job& job, int ranks) {
  // A process that is forked meanwhile would hold the sockets of these open.
  static std::mutex forking;
  const std::lock_guard lock(forking);
  auto groups = checkpoint::make_socket_groups(ranks);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    if (process < 0) {
      const int error = errno;
      for (const pid_t each : processes) {
        ::kill(each, SIGKILL);
        ::waitpid(each, nullptr, 0);
      }
      throw MachineError(fmt::format("cannot start a process: {}", std::strerror(error)));
    }
    if (process == 0) {
      for (int other = 0; other < ranks; ++other) {
        if (other != rank) groups[static_cast<std::size_t>(other)]->close();
      }
      be_rank(job, rank, *groups[static_cast<std::size_t>(rank)]);
    }
    processes.push_back(process);
  }
  for (auto& group : groups) group->close();
  return processes;
}

/// How one of the processes ended; nothing if it has stopped.
std::optional<int> status_of(pid_t process, int flags) {
  int status = 0;
  while (::waitpid(process, &status, flags) < 0 && errno == EINTR) {
  }
  return WIFSTOPPED(status) ? std::nullopt : std::optional(status);
}

}  // namespace

Judgement judge_signal(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                       const Point& point, int signal, Contents& contents) {
  lay_out(before, folder);
  const std::string root = folder + std::string(kRoot.substr(kParent.size()));
  const SavingRun saved{new_content(scene), ranks};
  std::vector<std::shared_ptr<const State>> states;
  for (int rank = 0; rank < ranks; ++rank) states.push_back(contents.state(saved.content, rank, ranks));
  const std::vector<pid_t> processes = start({root, scene, point, states, signal}, ranks);
  const auto victim = static_cast<std::size_t>(point.rank);
  std::vector<int> status(processes.size());
  std::optional<int> of_victim = status_of(processes[victim], WUNTRACED);
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    if (rank != victim) status[rank] = *status_of(processes[rank], 0);
  }
  if (!of_victim) {
    ::kill(processes[victim], SIGKILL);
    of_victim = status_of(processes[victim], 0);
  }
  status[victim] = *of_victim;
  SaveEnd end;
  end.told.resize(processes.size());
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    end.ended.push_back(WIFSIGNALED(status[rank]) && WTERMSIG(status[rank]) == SIGKILL);
    if (WIFSIGNALED(status[rank]) && !end.ended[rank])
      return {"hang", true, fmt::format("rank {} did not come to its end within {} s", rank, kHang_s)};
    if (!end.ended[rank]) end.told[rank].saved = static_cast<Saved>(WEXITSTATUS(status[rank]));
  }
  if (!end.ended[victim]) return {"not reached", true, "the operation was not reached"};
  const Allowed allowed = allowed_after(scene, saved, end.any(Saved::committed), end.any(Saved::failed));
  return judge_disk(checkpoint::posix_storage(), scene, ranks, allowed, contents, root);
}

}  // namespace lockstep::saver
