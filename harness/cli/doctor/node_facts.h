#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// What is seen of a node: its names, network, limits, shared folder, GPUs, and who may look into processes. Seen apart from what
// is said of it (node_checks.h), so that every fault can be tried.

namespace lockstep {

struct Interface {
  std::string name, address;  ///< IPv4
  bool up = true, loopback = false;
};

struct SharedFolder {
  std::string path, problem;         ///< empty: a file could be written, locked and removed
  bool lock_holds = true;            ///< a second process was refused a lock that this one held
  double clock_ahead_s = 0;          ///< of the file system's clock before this host's
  std::string file_system;           ///< "nfs", "ext4", hexadecimal where the kind is not known
};

/// A port of an InfiniBand or RoCE adapter, as /sys/class/infiniband has it.
struct FabricPort {
  std::string name;   ///< "mlx5_0/1"
  std::string state;  ///< "ACTIVE", "DOWN"
  std::string rate, link_layer;  ///< "400 Gb/sec (4X NDR)"; "InfiniBand", "Ethernet"
};

/// Of a node of the job that doctor is in.
struct NodeClock {
  std::string node;
  double ahead_s = 0;  ///< of this host's clock; 0: no more than it took to ask
};

struct NodeFacts {
  std::string host;
  std::vector<std::string> host_addresses;  ///< what the host's name resolves to
  std::string host_problem;                 ///< why it resolves to nothing
  std::vector<Interface> interfaces;
  std::string gloo_interface, lockstep_address;  ///< GLOO_SOCKET_IFNAME, LOCKSTEP_ADDRESS; empty: not set
  std::string port_problem;                 ///< why no port can be bound; empty: one could
  int ports_from = 0, ports_to = 0;         ///< of those the system gives; 0: not known
  std::string master_address, master_port;  ///< MASTER_ADDR, MASTER_PORT
  bool master_port_taken = false;           ///< somebody listens there, on this host
  int64_t shm_bytes = -1;                   ///< free in /dev/shm; -1: there is none
  int cores = 1, local_ranks = 1, threads_a_rank = 1;  ///< local_ranks: of the launcher's rank environment
  SharedFolder shared;
  std::string slurm_version, slurm_problem, slurm_job;  ///< version empty: not installed; problem: no word from the controller
  int slurm_nodes = 0;                      ///< of the job; 0: none
  std::vector<NodeClock> clocks;            ///< of the nodes that have answered, where the job has several
  std::string driver;                       ///< version of NVIDIA's; empty: not loaded
  std::string driver_cuda;                  ///< newest CUDA that the driver runs, "13.0"; empty: nvidia-smi does not say
  std::string torch_cuda;                   ///< that LibTorch was built for, "13.0"; empty: a CPU build, or it does not say
  std::map<std::string, int> gpu_links;     ///< pairs of GPUs by how they are joined: "NV18", "SYS" (nvidia-smi topo -m)
  int gpus = 0;                             ///< that it lists
  std::string visible;                      ///< CUDA_VISIBLE_DEVICES
  bool visible_set = false;
  std::string plugin;                       ///< path of the plugin for collectives on GPUs; empty: not there
  int ptrace_scope = -1, perf_paranoid = -1;  ///< of the kernel; -1: it has no such limit
  bool root = false;
  int64_t memlock_bytes = -1;               ///< what a process may lock in memory; -1: no limit
  std::vector<FabricPort> fabric;           ///< of InfiniBand and RoCE; empty: there is none
  bool fabric_devices = false;              ///< /dev/infiniband is there, so that processes can use it
  std::map<std::string, std::string> settings;  ///< variables NCCL_* and GLOO_*
  std::vector<std::string> tracers;         ///< of gdb, eu-stack, py-spy those that are installed
};

/// Of this process's host. `shared`: the folder that runs would be written to; `ask_nodes`: the other nodes of a Slurm job say their time.
/// Takes a few milliseconds; a question to Slurm's controller ends after 3 s, one to the nodes of a job after 15 s, one to the driver
/// after 10 s.
NodeFacts see_node(const std::string& shared, const std::string& rank_program, bool ask_nodes);

/// Pairs of GPUs by how they are joined, from what `nvidia-smi topo -m` prints.
std::map<std::string, int> gpu_links_in(const std::string& matrix);
/// "13.0" of the head of what `nvidia-smi` prints; empty: it does not say.
std::string cuda_version_in(const std::string& text);

// One line of `lockstep doctor`.

struct Check {
  enum class State { ok, note, failed } state = State::ok;  ///< note: works, but somebody should know
  std::string name, text;
};

/// A line each: host name, network, ports, shared memory, threads, shared folder, Slurm, clocks, GPUs, InfiniBand, memlock, settings of NCCL
/// and Gloo, tracing. What is wrong comes with
/// what to do.
std::vector<Check> node_checks(const NodeFacts& node);

}  // namespace lockstep
