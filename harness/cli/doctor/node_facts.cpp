#include "harness/cli/doctor/node_facts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "harness/run/job_queue.h"
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

/// The first line that a program prints within 3 s; empty if it fails.
std::string line_of(std::vector<std::string> words) {
  const Reply answer = answer_of(std::move(words), rank_environment(), 3000);
  return answer.status == 0 ? answer.text.substr(0, answer.text.find('\n')) : "";
}

void see_slurm(NodeFacts& node) {
  node.slurm_job = variable("SLURM_JOB_ID");
  if (find_program("srun").empty()) return;
  node.slurm_version = line_of({"srun", "--version"});
  if (node.slurm_version.empty()) node.slurm_version = "slurm";
  if (find_program("scontrol").empty()) return;
  if (const std::string answer = line_of({"scontrol", "ping"}); answer.find(" is UP") == std::string::npos)
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
std::string said_by(std::vector<std::string> words) {
  constexpr int kPatience_ms = 10'000;
  words.front() = find_program(words.front());
  return words.front().empty() ? "" : answer_of(std::move(words), rank_environment(), kPatience_ms).text;
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
    node.driver_cuda = cuda_version_in(said_by({"nvidia-smi"}));
    if (node.gpus > 1) node.gpu_links = gpu_links_in(said_by({"nvidia-smi", "topo", "-m"}));
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

namespace {

using State = Check::State;

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kLeastShm_MiB = 64;   // what containers get by default; NCCL wants about 33 MiB a rank
constexpr int kFewPorts = 1000;        // a rank has a connection to each other rank in each group
constexpr double kMostSkew_s = 1;      // heartbeats and deadlines of a run are compared in seconds

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

Check own_name(const NodeFacts& node) {
  if (!node.host_problem.empty() || node.host_addresses.empty()) {
    return {State::note, "host name",
            fmt::format("{} does not resolve ({}); ranks here connect by address, but launchers that pass host names fail: add it to "
                        "/etc/hosts or DNS", node.host, node.host_problem.empty() ? "no address" : node.host_problem)};
  }
  const std::string addresses = fmt::format("{}", fmt::join(node.host_addresses, ", "));
  if (std::ranges::all_of(node.host_addresses, is_loopback)) {
    return {State::note, "host name",
            fmt::format("{} resolves only to {}: other hosts cannot reach a process that listens on that name (one host is fine); use "
                        "its network address in /etc/hosts, or set GLOO_SOCKET_IFNAME", node.host, addresses)};
  }
  return {State::ok, "host name", node.host + " is " + addresses};
}

Check network(const NodeFacts& node) {
  const std::string name = "network";
  if (!node.lockstep_address.empty()) return {State::ok, name, "ranks announce " + node.lockstep_address + " (LOCKSTEP_ADDRESS)"};
  std::vector<std::string> outside;
  for (const Interface& each : node.interfaces) {
    if (each.up && !each.loopback) outside.push_back(each.name + " " + each.address);
  }
  if (!node.gloo_interface.empty()) {
    const auto found = std::ranges::find(node.interfaces, node.gloo_interface, &Interface::name);
    if (found == node.interfaces.end()) {
      return {State::failed, name,
              fmt::format("GLOO_SOCKET_IFNAME={} is not an interface here; there are: {}", node.gloo_interface,
                          outside.empty() ? "none but the loopback" : fmt::format("{}", fmt::join(outside, ", ")))};
    }
    if (!found->up) return {State::failed, name, fmt::format("GLOO_SOCKET_IFNAME={} is down: ip link set {} up", found->name, found->name)};
    return {found->loopback ? State::note : State::ok, name,
            fmt::format("Gloo uses {} {} (GLOO_SOCKET_IFNAME){}", found->name, found->address,
                        found->loopback ? ": ranks on other hosts cannot reach it" : "")};
  }
  if (outside.empty())
    return {State::note, name, "only the loopback is up: ranks can run on this host only; several hosts need an interface, or LOCKSTEP_ADDRESS"};
  if (outside.size() == 1) return {State::ok, name, "Gloo uses " + outside.front()};
  return {State::note, name,
          fmt::format("Gloo uses the first of {}; if other hosts cannot reach it, set GLOO_SOCKET_IFNAME", fmt::join(outside, ", "))};
}

Check ports(const NodeFacts& node) {
  if (!node.port_problem.empty())
    return {State::failed, "ports", "no port can be bound: " + node.port_problem + "; ranks cannot connect: check limits and firewall of this account"};
  if (node.master_port_taken) {
    return {State::failed, "ports",
            fmt::format("another process already listens on MASTER_PORT={}: end it, or choose another port", node.master_port)};
  }
  const int count = node.ports_to - node.ports_from + 1;
  if (node.ports_to > 0 && count < kFewPorts) {
    return {State::note, "ports",
            fmt::format("the system has {} local ports ({} to {}); many ranks need more: sysctl net.ipv4.ip_local_port_range", count,
                        node.ports_from, node.ports_to)};
  }
  return {State::ok, "ports", node.ports_to > 0 ? fmt::format("{} to {} are available", node.ports_from, node.ports_to) : "can be bound"};
}

Check shared_memory(const NodeFacts& node) {
  if (node.shm_bytes < 0)
    return {State::note, "/dev/shm", "missing; NCCL and data loaders need it: mount a tmpfs there"};
  const double free_MiB = static_cast<double>(node.shm_bytes) / kMiB;
  const std::string text = fmt::format("{:.0f} MiB free", free_MiB);
  if (free_MiB > kLeastShm_MiB) return {State::ok, "/dev/shm", text};
  return {State::note, "/dev/shm", text + "; enough for lockstep, but NCCL and data loaders end with a bus error: docker run --shm-size=1g"};
}

Check load(const NodeFacts& node) {
  const int threads = node.local_ranks * node.threads_a_rank;
  const std::string text = fmt::format("{} a rank, {} here, {}", node.threads_a_rank,
                                       node.local_ranks == 1 ? "1 rank" : fmt::format("{} ranks", node.local_ranks),
                                       node.cores == 1 ? "1 core" : fmt::format("{} cores", node.cores));
  if (threads <= node.cores) return {State::ok, "threads", text};
  return {State::note, "threads", text + ": they share cores, so bits are the same but times are not; start fewer ranks on this node"};
}

Check shared_folder(const SharedFolder& folder) {
  const std::string name = "shared folder";
  if (!folder.problem.empty()) return {State::failed, name, fmt::format("{}: {}; give --out a folder that you may write to", folder.path, folder.problem)};
  if (!folder.lock_holds) {
    return {State::failed, name,
            fmt::format("{} ({}): a second process got a lock that the first one held; two runs would write over each other: mount "
                        "it with locks (NFS: without nolock), or use another folder", folder.path, folder.file_system)};
  }
  if (std::abs(folder.clock_ahead_s) > kMostSkew_s) {
    return {State::note, name,
            fmt::format("{} ({}): its clock is {:.1f} s {} this host's; ages of heartbeats and files are wrong by that much: run NTP on both",
                        folder.path, folder.file_system, std::abs(folder.clock_ahead_s), folder.clock_ahead_s > 0 ? "ahead of" : "behind")};
  }
  return {State::ok, name, fmt::format("{} ({}): locks work, and its clock agrees with this host's within {:g} s", folder.path, folder.file_system, kMostSkew_s)};
}

Check slurm(const NodeFacts& node) {
  if (node.slurm_version.empty()) {
    if (node.slurm_job.empty()) return {State::ok, "slurm", "not installed, and not inside a job"};
    return {State::note, "slurm", fmt::format("inside job {}, but srun is not in PATH: in a container, bind Slurm's programs and munge's socket", node.slurm_job)};
  }
  if (!node.slurm_problem.empty()) {
    return {State::note, "slurm",
            fmt::format("{}, but its controller does not answer ({}): --launcher slurm cannot submit; check scontrol ping",
                        node.slurm_version, node.slurm_problem)};
  }
  return {State::ok, "slurm", node.slurm_version + (node.slurm_job.empty() ? ", outside any job" : ", inside job " + node.slurm_job)};
}

Check clocks(const NodeFacts& node) {
  const std::string name = "clocks";
  if (node.slurm_nodes < 2) return {State::ok, name, "one host; inside a Slurm job of several nodes doctor checks all of them"};
  std::vector<std::string> wrong;
  for (const NodeClock& each : node.clocks) {
    if (std::abs(each.ahead_s) > kMostSkew_s)
      wrong.push_back(fmt::format("{} is {:.1f} s {}", each.node, std::abs(each.ahead_s), each.ahead_s > 0 ? "ahead" : "behind"));
  }
  if (!wrong.empty()) {
    return {State::note, name,
            fmt::format("compared with {}: {}; times in logs and ages of files cannot be compared: run NTP on all nodes", node.host, fmt::join(wrong, ", "))};
  }
  if (std::cmp_less(node.clocks.size(), node.slurm_nodes)) {
    return {State::note, name,
            fmt::format("{} of {} nodes of the job reported their clock within 15 s: try srun --overlap date on them", node.clocks.size(), node.slurm_nodes)};
  }
  return {State::ok, name, fmt::format("those of the job's {} nodes agree with this host's within {:g} s", node.slurm_nodes, kMostSkew_s)};
}

/// Is the CUDA `a` too old for what was built for `b`? Only the major number counts: libraries of one major version run on each of its drivers.
bool is_older(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && std::atoi(a.c_str()) < std::atoi(b.c_str()); }

Check gpus(const NodeFacts& node) {
  const std::string plugin = node.plugin.empty() ? "no plugin" : "plugin " + node.plugin;
  if (node.driver.empty()) {
    if (node.plugin.empty()) return {State::ok, "GPUs", "no NVIDIA driver, no plugin; ranks compute on the CPU over Gloo"};
    return {State::note, "GPUs", plugin + " is installed, but no NVIDIA driver is loaded: NCCL cannot be used here (see nvidia-smi)"};
  }
  std::string text = fmt::format("driver {}{}, {}", node.driver, node.driver_cuda.empty() ? "" : fmt::format(" (up to CUDA {})", node.driver_cuda),
                                 node.gpus == 1 ? "1 GPU" : fmt::format("{} GPUs", node.gpus));
  std::vector<std::string> links;
  for (const auto& [kind, pairs] : node.gpu_links) links.push_back(fmt::format("{} {}", pairs, kind));
  if (!links.empty()) text += fmt::format(", pairs of them joined by {}", fmt::join(links, ", "));
  if (node.gpus == 0) return {State::note, "GPUs", text + ": in a container start it with --gpus all"};
  if (is_older(node.driver_cuda, node.torch_cuda)) {
    return {node.plugin.empty() ? State::note : State::failed, "GPUs",
            fmt::format("{}; LibTorch was built for CUDA {}, which this driver does not run: install a newer driver, or a LibTorch of CUDA {}", text,
                        node.torch_cuda, node.driver_cuda)};
  }
  if (node.visible_set && (node.visible.empty() || node.visible.starts_with("-")))
    return {State::note, "GPUs", fmt::format("{}; CUDA_VISIBLE_DEVICES={} hides all GPUs: unset it", text, node.visible)};
  if (node.plugin.empty()) return {State::note, "GPUs", text + "; no plugin, so NCCL cannot be used: build with cmake --preset gpu against a CUDA build of LibTorch"};
  return {State::ok, "GPUs", text + ", " + plugin + (node.visible_set ? ", CUDA_VISIBLE_DEVICES=" + node.visible : "")};
}

std::string size_text(int64_t bytes) { return bytes < 0 ? "no limit" : fmt::format("{:g} MiB a process", static_cast<double>(bytes) / kMiB); }

Check fabric(const NodeFacts& node) {
  const std::string name = "InfiniBand";
  if (node.fabric.empty()) return {State::ok, name, "none: Gloo uses TCP, NCCL its sockets"};
  std::vector<std::string> ports, down;
  for (const FabricPort& each : node.fabric) {
    ports.push_back(fmt::format("{} {} {}", each.name, each.link_layer, each.rate));
    if (each.state != "ACTIVE") down.push_back(fmt::format("{} is {}", each.name, each.state));
  }
  const std::string text = fmt::format("{}", fmt::join(ports, ", "));
  if (!down.empty()) return {State::note, name, fmt::format("{}: {}; check cable and subnet manager (ibstat), or leave it out with NCCL_IB_HCA", text, fmt::join(down, ", "))};
  if (!node.fabric_devices) return {State::note, name, text + "; /dev/infiniband is missing, so NCCL falls back to sockets: give the container the devices"};
  if (const auto off = node.settings.find("NCCL_IB_DISABLE"); off != node.settings.end() && off->second == "1")
    return {State::note, name, text + "; NCCL_IB_DISABLE=1 makes NCCL use sockets: unset it"};
  return {State::ok, name, text};
}

Check memlock(const NodeFacts& node) {
  const std::string name = "memlock", text = size_text(node.memlock_bytes);
  if (node.memlock_bytes < 0 || node.fabric.empty()) return {State::ok, name, text + (node.fabric.empty() ? "; lockstep locks none, InfiniBand would" : "")};
  return {State::note, name,
          text + "; InfiniBand registers buffers in locked memory, and NCCL fails with 'ibv_reg_mr': ulimit -l unlimited; under Slurm LimitMEMLOCK=infinity of slurmd, and "
                 "PropagateResourceLimitsExcept=MEMLOCK"};
}

Check settings(const NodeFacts& node) {
  const std::string name = "settings";
  std::vector<std::string> all;
  for (const auto& [variable, value] : node.settings) all.push_back(variable + "=" + value);
  if (all.empty()) return {State::ok, name, "no NCCL_* or GLOO_* is set"};
  const std::string text = fmt::format("{} (kept in each run's run.json)", fmt::join(all, ", "));
  const auto chosen = node.settings.find("NCCL_SOCKET_IFNAME");
  // NCCL takes prefixes, "=eth0" for one name and "^docker" for all others.
  const std::string prefix = chosen == node.settings.end() ? "" : chosen->second.substr(chosen->second.starts_with("=") ? 1 : 0);
  const bool one_name = !prefix.empty() && prefix.find_first_of("^,") == std::string::npos;
  if (one_name && std::ranges::none_of(node.interfaces, [&](const Interface& each) { return each.name.starts_with(prefix); }))
    return {State::failed, name, fmt::format("{}; NCCL_SOCKET_IFNAME={} is not an interface here: NCCL finds no network; choose one that `ip address` shows", text, chosen->second)};
  return {State::ok, name, text};
}

Check tracing(const NodeFacts& node) {
  std::string text, todo;
  const auto add = [](std::string& list, const std::string& more) { list += (list.empty() ? "" : "; ") + more; };
  if (node.ptrace_scope == 3) {
    add(todo, "ptrace_scope 3: no process may be traced, not even by root; suites that stop programs fail until a reboot with another value");
  } else if (node.ptrace_scope > 0 && !node.root) {
    add(todo, fmt::format("ptrace_scope {}: only {} can read a hung rank's stack: sysctl kernel.yama.ptrace_scope=0", node.ptrace_scope,
                          node.ptrace_scope == 1 ? "its parent" : "root"));
  } else {
    add(text, "processes may be traced");
  }
  if (node.perf_paranoid > 2 && !node.root) add(todo, fmt::format("perf_event_paranoid {}: perf cannot measure: sysctl kernel.perf_event_paranoid=2", node.perf_paranoid));
  if (node.tracers.empty())
    add(todo, "gdb, eu-stack and py-spy are missing: apt-get install elfutils");
  else
    add(text, fmt::format("{}", fmt::join(node.tracers, ", ")));
  if (todo.empty()) return {State::ok, "tracing", text};
  return {State::note, "tracing", todo + (text.empty() ? "" : "; " + text)};
}

}  // namespace

std::vector<Check> node_checks(const NodeFacts& node) {
  return {own_name(node), network(node), ports(node), shared_memory(node), load(node), shared_folder(node.shared),
          slurm(node), clocks(node), gpus(node), fabric(node), memlock(node), settings(node), tracing(node)};
}

}  // namespace lockstep
