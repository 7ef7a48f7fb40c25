#include "harness/cli/doctor/node_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace lockstep {
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
