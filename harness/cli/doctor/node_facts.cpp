#include "harness/cli/doctor/node_facts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/run/host.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number_in(const std::string& path, int otherwise) {
  const std::string line = first_line(path);
  return line.empty() ? otherwise : static_cast<int>(std::strtol(line.c_str(), nullptr, 10));
}

void see_names(NodeFacts& node) {
  node.host = host_name();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(node.host.c_str(), nullptr, &hints, &list); error != 0) {
    node.host_problem = ::gai_strerror(error);
    return;
  }
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(each->ai_addr, each->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::ranges::find(node.host_addresses, text.data()) == node.host_addresses.end()) node.host_addresses.emplace_back(text.data());
  }
  ::freeaddrinfo(list);
}

void see_network(NodeFacts& node) {
  node.gloo_interface = variable("GLOO_SOCKET_IFNAME");
  node.lockstep_address = variable("LOCKSTEP_ADDRESS");
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text.data(), text.size());
    node.interfaces.push_back({each->ifa_name, text.data(), (each->ifa_flags & IFF_UP) != 0, (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  ::freeifaddrs(all);
}

/// Binds a port on all addresses; 0: any. The error, or 0.
int bind_error(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int error = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ? errno : 0;
  ::close(socket);
  return error;
}

void see_ports(NodeFacts& node) {
  if (const int error = bind_error(0); error != 0) node.port_problem = std::strerror(error);
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range >> node.ports_from >> node.ports_to;
  node.master_address = variable("MASTER_ADDR");
  node.master_port = variable("MASTER_PORT");
  const long port = std::strtol(node.master_port.c_str(), nullptr, 10);
  const bool here = node.master_address == "localhost" || node.master_address == "127.0.0.1" || node.master_address == node.host;
  // An agent's own store listens there while it starts ranks.
  if (port > 0 && port < 65536 && here && variable("TORCHELASTIC_USE_AGENT_STORE").empty())
    node.master_port_taken = bind_error(static_cast<int>(port)) == EADDRINUSE;
}

std::string file_system_of(const std::string& path) {
  struct statfs found {};
  if (::statfs(path.c_str(), &found) != 0) return "unknown";
  switch (static_cast<unsigned long>(found.f_type)) {  // statfs(2)
    case 0xef53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794c7630:
      return "overlay";
    case 0x6969:
      return "nfs";
    case 0x0bd00bd0:
      return "lustre";
    default:
      return fmt::format("file system {:#x}", static_cast<unsigned long>(found.f_type));
  }
}

/// Is a second process refused the lock that this one holds on `descriptor`? Of the kind that OUT and checkpoints are held by.
bool lock_holds(const std::string& path, int descriptor) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return false;
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ::_exit(own >= 0 && ::flock(own, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK ? 0 : 1);
  }
  int status = 1;
  while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

double seconds_of(const timespec& time) { return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec); }

SharedFolder see_folder(const std::string& path) {
  SharedFolder folder;
  folder.path = path;
  folder.file_system = file_system_of(path);
  std::string file = path + "/.lockstep-doctor-XXXXXX";
  const int descriptor = ::mkstemp(file.data());
  if (descriptor < 0) {
    folder.problem = std::string("cannot create a file: ") + std::strerror(errno);
    return folder;
  }
  timespec before{}, after{};
  struct stat seen {};
  ::clock_gettime(CLOCK_REALTIME, &before);
  const bool written = ::write(descriptor, "1", 1) == 1 && ::fsync(descriptor) == 0 && ::fstat(descriptor, &seen) == 0;
  ::clock_gettime(CLOCK_REALTIME, &after);
  if (!written) folder.problem = std::string("cannot write a file: ") + std::strerror(errno);
  const double changed = seconds_of(seen.st_mtim);
  if (written && changed > seconds_of(after)) folder.clock_ahead_s = changed - seconds_of(after);
  if (written && changed < seconds_of(before)) folder.clock_ahead_s = changed - seconds_of(before);
  folder.lock_holds = !written || lock_holds(file, descriptor);
  ::close(descriptor);
  ::unlink(file.c_str());
  return folder;
}

/// The first line that a command prints; empty if it fails.
std::string line_of(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return "";
  std::array<char, 256> line{};
  const bool any = std::fgets(line.data(), line.size(), pipe) != nullptr;
  while (std::fgetc(pipe) != EOF) {
  }
  if (::pclose(pipe) != 0 || !any) return "";
  line[std::strcspn(line.data(), "\n")] = '\0';
  return line.data();
}

void see_slurm(NodeFacts& node) {
  node.slurm_job = variable("SLURM_JOB_ID");
  if (find_program("srun").empty()) return;
  node.slurm_version = line_of("srun --version");
  if (node.slurm_version.empty()) node.slurm_version = "slurm";
  if (find_program("scontrol").empty() || find_program("timeout").empty()) return;
  if (const std::string answer = line_of("timeout 3 scontrol ping"); answer.find(" is UP") == std::string::npos)
    node.slurm_problem = answer.empty() ? "no slurm.conf, or no answer within 3 s" : answer;
}

double now_s() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return seconds_of(now);
}

/// Each node says its time; it was said after the question, and before the answer came.
void see_clocks(NodeFacts& node) {
  node.slurm_nodes = std::atoi(variable("SLURM_JOB_NUM_NODES").c_str());
  const bool can_ask = !node.slurm_version.empty() && !node.slurm_job.empty() && !find_program("timeout").empty();
  if (!can_ask || node.slurm_nodes < 2) return;
  const std::string command = fmt::format("timeout 15 srun --nodes={0} --ntasks={0} --ntasks-per-node=1 --overlap --mem=0 --input=none --mpi=none "
                                          "--unbuffered sh -c 'echo $SLURMD_NODENAME $(date +%s.%N)' 2>/dev/null", node.slurm_nodes);
  const double before_s = now_s();
  std::FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return;
  std::array<char, 256> line{}, name{};
  for (double said_s = 0; std::fgets(line.data(), line.size(), pipe) != nullptr;) {
    const double after_s = now_s();
    if (std::sscanf(line.data(), "%255s %lf", name.data(), &said_s) != 2) continue;
    node.clocks.push_back({name.data(), said_s > after_s ? said_s - after_s : std::min(said_s - before_s, 0.0)});
  }
  ::pclose(pipe);
}

/// What a program prints within 10 s; empty where it is not installed.
std::string answer_of(std::vector<std::string> words) {
  constexpr int kPatience_ms = 10'000;
  words.front() = find_program(words.front());
  return words.front().empty() ? "" : output_of(std::move(words), rank_environment(), kPatience_ms);
}

/// "13.0" of a version "2.13.0+cu130"; empty: it names none.
std::string cuda_of_torch(const std::string& flavour) {
  const std::size_t at = flavour.find("+cu");
  const std::string digits = at == std::string::npos ? "" : flavour.substr(at + 3, flavour.find_first_not_of("0123456789", at + 3) - at - 3);
  return digits.size() < 3 ? "" : digits.substr(0, digits.size() - 1) + "." + digits.back();
}

void see_gpus(NodeFacts& node, const std::string& rank_program) {
  std::ifstream version("/proc/driver/nvidia/version");
  for (std::string word; version >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) {
      node.driver = word;
      break;
    }
  }
  std::error_code error;
  const fs::directory_iterator list("/proc/driver/nvidia/gpus", error);
  if (!error) node.gpus = static_cast<int>(std::distance(begin(list), end(list)));
  if (!node.driver.empty()) {
    node.driver_cuda = cuda_version_in(answer_of({"nvidia-smi"}));
    if (node.gpus > 1) node.gpu_links = gpu_links_in(answer_of({"nvidia-smi", "topo", "-m"}));
  }
  if (const std::string folder = libtorch_folder(rank_program); !folder.empty()) node.torch_cuda = cuda_of_torch(libtorch_flavour(folder));
  node.visible_set = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  node.visible = variable("CUDA_VISIBLE_DEVICES");
  std::string plugin = variable("LOCKSTEP_GPU_PLUGIN");
  if (plugin.empty()) plugin = (fs::path(rank_program).parent_path() / "lockstep-gpu.so").string();
  if (::access(plugin.c_str(), R_OK) == 0) node.plugin = plugin;
}

void see_fabric(NodeFacts& node) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) node.memlock_bytes = static_cast<int64_t>(limit.rlim_cur);
  std::error_code error;
  for (fs::directory_iterator adapter("/sys/class/infiniband", error), end; !error && adapter != end; adapter.increment(error)) {
    std::error_code unlisted;
    for (fs::directory_iterator port(adapter->path() / "ports", unlisted), last; !unlisted && port != last; port.increment(unlisted)) {
      const std::string at = port->path().string(), state = first_line(at + "/state");  // "4: ACTIVE"
      node.fabric.push_back({adapter->path().filename().string() + "/" + port->path().filename().string(), state.substr(state.rfind(' ') + 1),
                             first_line(at + "/rate"), first_line(at + "/link_layer")});
    }
  }
  std::ranges::sort(node.fabric, {}, &FabricPort::name);
  node.fabric_devices = ::access("/dev/infiniband", F_OK) == 0;
  for (const auto& [name, value] : current_environment()) {
    if (name.starts_with("NCCL_") || name.starts_with("GLOO_")) node.settings[name] = value;
  }
}

void see_tracing(NodeFacts& node) {
  node.ptrace_scope = number_in("/proc/sys/kernel/yama/ptrace_scope", -1);
  node.perf_paranoid = number_in("/proc/sys/kernel/perf_event_paranoid", -1);
  node.root = ::geteuid() == 0;
  for (const char* tracer : {"gdb", "eu-stack", "py-spy"}) {
    if (!find_program(tracer).empty()) node.tracers.emplace_back(tracer);
  }
}

}  // namespace

std::map<std::string, int> gpu_links_in(const std::string& matrix) {
  std::map<std::string, int> links;
  std::istringstream lines(matrix);
  int row = -1;
  for (std::string line; std::getline(lines, line);) {
    // The head begins with blanks or, on a terminal, with a code for its font: its first word is no line's name.
    std::istringstream words(line);
    std::string word;
    if (!line.starts_with("GPU") || !(words >> word)) continue;
    ++row;
    for (int column = 0; column < row && words >> word; ++column) ++links[word];
  }
  return links;
}

std::string cuda_version_in(const std::string& text) {
  constexpr std::string_view kName = "CUDA Version:";
  const std::size_t at = text.find(kName);
  if (at == std::string::npos) return "";
  std::istringstream words(text.substr(at + kName.size(), 16));
  std::string version;
  words >> version;
  return version.find_first_not_of("0123456789.") == std::string::npos ? version : "";
}

NodeFacts see_node(const std::string& shared, const std::string& rank_program, bool ask_nodes) {
  NodeFacts node;
  see_names(node);
  see_network(node);
  see_ports(node);
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) node.shm_bytes = static_cast<int64_t>(shm.f_bavail) * static_cast<int64_t>(shm.f_frsize);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  node.cores = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  node.threads_a_rank = kThreadsPerRank;
  if (const Resolution found = resolve_rank_environment(current_environment(), {}); found.chosen)
    node.local_ranks = std::max(found.chosen->local_world, 1);
  node.shared = see_folder(shared);
  see_slurm(node);
  if (ask_nodes) see_clocks(node);
  see_fabric(node);
  see_gpus(node, rank_program);
  see_tracing(node);
  return node;
}

}  // namespace lockstep
