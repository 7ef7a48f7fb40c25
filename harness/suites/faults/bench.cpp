#include "harness/suites/faults/bench.h"

#include <dirent.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "harness/run/run_folder.h"

namespace lockstep::faults {
namespace {

namespace fs = std::filesystem;

/// Inodes of sockets that listen on TCP.
std::set<std::string> listening_sockets() {
  std::set<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, skipped, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      if (state == "0A") inodes.insert(inode);
    }
  }
  return inodes;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.insert(entry.path().filename().string());
  return names;
}

struct Process {
  int pid = 0, group = 0;
  char state = '?';
};

std::vector<Process> processes() {
  std::vector<Process> all;
  for (const std::string& name : names_in("/proc")) {
    if (!std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    std::ifstream file("/proc/" + name + "/stat");
    std::string line;
    std::getline(file, line);
    const std::size_t end = line.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream words(line.substr(end + 1));
    Process process;
    int parent = 0;
    words >> process.state >> parent >> process.group;
    process.pid = std::stoi(name);
    all.push_back(process);
  }
  return all;
}

/// Which processes hold one of these sockets.
std::set<int> holders_of(const std::string& inode, const std::vector<Process>& all) {
  std::set<int> holders;
  const std::string target = "socket:[" + inode + "]";
  for (const Process& process : all) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(process.pid) + "/fd", error)) {
      std::error_code gone;
      if (fs::read_symlink(entry.path(), gone) == target) holders.insert(process.pid);
    }
  }
  return holders;
}

/// What a run's folder may hold when its ranks have ended.
bool belongs(const std::string& name) {
  constexpr std::array<std::string_view, 8> kNames = {"run.json", "heartbeat", "acted", "store", "rank-", "state-", "flight", "stacks-"};
  const bool temporary = name.ends_with(".tmp") || name.find(".tmp.") != std::string::npos;
  return !temporary && std::ranges::any_of(kNames, [&](std::string_view known) { return name.starts_with(known); });
}

}  // namespace

static Before look_round() { return {listening_sockets(), names_in("/dev/shm")}; }

std::vector<std::string> left_behind(const Before& before, int group, const std::string& run_dir) {
  std::vector<std::string> found;
  const std::vector<Process> all = processes();
  std::set<int> of_group;
  for (const Process& process : all) {
    if (process.group != group) continue;
    of_group.insert(process.pid);
    found.push_back("process " + std::to_string(process.pid) + " (" + process.state + ")");
  }
  for (const std::string& inode : listening_sockets()) {
    if (before.listening.contains(inode)) continue;
    const std::set<int> holders = holders_of(inode, all);
    const bool ours = std::ranges::any_of(holders, [&](int pid) { return of_group.contains(pid); });
    if (ours) found.push_back("listening socket " + inode);
  }
  for (const std::string& name : names_in("/dev/shm")) {
    const bool libraries = name.find("torch") != std::string::npos || name.find("gloo") != std::string::npos;
    if (libraries && !before.shared_memory.contains(name)) found.push_back("shared memory " + name);
  }
  for (const std::string& name : names_in(run_dir)) {
    if (!belongs(name)) found.push_back("file " + name);
  }
  return found;
}

namespace {

/// Before the first step LibTorch's threads, Gloo's connections and the preflight check take their time; the kind that hangs there
/// has a threshold of its own.
double load_s(const Order& order) {
  return order.kind == "blocked_in_store" || order.kind == "half_open" ? 4 * order.threshold_s : 10;
}

/// A run that ends by itself may have so many steps that they take longer than any fault.
double long_run_s(const Order& order) {
  constexpr double kStep_s = 0.2;  // on a machine with other work, stragglers and all
  constexpr int64_t kMost = 100'000;
  return order.steps <= kMost ? kStep_s * static_cast<double>(order.steps) : 0;
}

/// The step of the file that the rank saved last; -1: none.
int64_t saved_in(const std::string& dir, int rank) {
  std::ifstream file(fmt::format("{}/state-{}", dir, rank), std::ios::binary);
  int64_t step = -1;
  file.read(reinterpret_cast<char*>(&step), sizeof step);
  return file ? step : -1;
}

double time_in(const std::string& path) {
  std::ifstream file(path);
  double seconds = 0;
  return file >> seconds ? seconds : 0;
}

RankResult result_in(const std::string& dir, int rank) {
  try {
    return read_rank_result(rank_result_path(dir, rank));
  } catch (const std::runtime_error&) {
    return {};  // none, or one that the rank died over: its end says so
  }
}

}  // namespace

bool Played::finished() const {
  return !run.late && std::ranges::all_of(results, [](const RankResult& result) { return result.status == "finished"; });
}

Bench::Bench(const Options& options) : options_(options), runs_(options.rank_program, options.work, options.stop_requested) {}

Played Bench::play(const Order& order, const Disturb& disturb) {
  if (!dir_.empty()) fs::remove_all(dir_);
  dir_ = runs_.folder(fmt::format("program-{}", ++rounds_));
  const Before before = look_round();
  RankRun asked;
  asked.world_size = order.world;
  if (options_.watches)
    asked.thresholds = {load_s(order), order.threshold_s, order.threshold_s, order.disk_threshold_s(), order.disk_threshold_s(), 0};
  asked.deadline_s = options_.deadline_s + long_run_s(order);
  // The program kills its own rank, where that is the fault, and another in its recovery; where there is no such program the suite does.
  const bool dies = order.kind.empty() || (order.wrong && order.kind.starts_with("kill"));
  asked.kills = [&](int rank) { return dies && (rank == order.rank || (order.kind == "killed_in_recovery" && rank == (order.rank + 1) % order.world)); };
  double acted_at = 0;
  std::vector<int> pids;
  RunHooks hooks;
  hooks.on_started = [&](const OngoingRun& run) { pids = run.pids; };
  hooks.on_look = [&](const OngoingRun& run) {
    if (!disturb) return false;
    if (acted_at == 0) acted_at = time_in(dir_ + "/acted");
    disturb({run.heartbeats, run.pids, acted_at});
    return false;
  };
  Played played;
  played.run = runs_.run(dir_, {{"fault_case", to_json(order)}}, asked, std::move(hooks));
  played.acted_at = time_in(dir_ + "/acted");
  std::vector<int64_t> saved, finished;
  for (int rank = 0; rank < order.world; ++rank) {
    played.results.push_back(result_in(dir_, rank));
    played.error_at.push_back(time_in(fmt::format("{}/rank-{}.error", dir_, rank)));
    saved.push_back(saved_in(dir_, rank));
    finished.push_back(played.run.heartbeats->step(rank));
  }
  played.saved_step = std::ranges::min(saved);
  played.finished_steps = std::ranges::min(finished);
  (void)flight_record(played.run);
  played.left_behind = left_behind(before, pids.empty() ? 0 : pids.front(), dir_);
  return played;
}

std::vector<std::string> Bench::record_of(int rank) const {
  std::vector<std::string> lines;
  std::ifstream file(fmt::format("{}/rank-{}.record", dir_, rank));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::faults
