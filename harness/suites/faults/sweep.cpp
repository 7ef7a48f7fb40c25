#include "harness/suites/faults/sweep.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

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

Before look_round() { return {listening_sockets(), names_in("/dev/shm")}; }

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

}  // namespace lockstep::faults
