#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <thread>

#include "harness/cli/commands.h"
#include "harness/cli/doctor/node_facts.h"
#include "harness/cli/doctor/nodes.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Checks, AreALineEach) {
  const std::vector<Check> checks = {{Check::State::ok, "cores", "2"}, {Check::State::note, "data", "none"}};
  EXPECT_EQ(checks_text(checks, false), "ok      cores  2\nnote    data   none\nfit to run\n");
  EXPECT_TRUE(fit_to_run(checks));
  EXPECT_THAT(checks_text(checks, true), HasSubstr("\x1b[32mok"));
  const auto json = nlohmann::json::parse(checks_json(checks));
  EXPECT_EQ(json.at("fit_to_run"), true);
  EXPECT_EQ(json.at("checks").at(1).at("state"), "note");
}

TEST(Checks, SayWhenTheMachineIsNotFit) {
  const std::vector<Check> checks = {{Check::State::ok, "cores", "2"},
                                     {Check::State::failed, "memory", "0.1 GiB"}};
  EXPECT_FALSE(fit_to_run(checks));
  EXPECT_EQ(checks_text(checks, false),
            "ok      cores   2\nnot ok  memory  0.1 GiB\nnot fit to run: see above\n");
}

TEST(MachineChecks, FindSomethingToSayAboutEach) {
  const std::vector<Check> checks = machine_checks(".");
  EXPECT_GE(checks.size(), 7U);
  for (const Check& check : checks) EXPECT_FALSE(check.text.empty()) << check.name;
}

TEST(AllReduceCheck, SaysWhyNothingCanBeStarted) {
  const Check check = all_reduce_check("/nowhere/lockstep-rank");
  EXPECT_EQ(check.state, Check::State::failed);
  EXPECT_THAT(check.text, HasSubstr("/nowhere/lockstep-rank"));
}

// What doctor says of a node, by facts that a test plants: each fault alone on a node that is well.

using State = Check::State;

NodeFacts well() {
  NodeFacts node;
  node.host = "node7";
  node.host_addresses = {"10.0.0.7"};
  node.interfaces = {{"lo", "127.0.0.1", true, true}, {"eth0", "10.0.0.7", true, false}};
  node.ports_from = 32768;
  node.ports_to = 60999;
  node.shm_bytes = int64_t{1} << 30;
  node.cores = 8;
  node.local_ranks = 8;
  node.shared = {"/shared", "", true, 0.01, "nfs"};
  node.slurm_version = "slurm-wlm 22.05.8";
  node.slurm_job = "17";
  node.slurm_nodes = 2;
  node.clocks = {{"node7", 0}, {"node8", -0.2}};
  node.driver = "580.65.06";
  node.gpus = 8;
  node.driver_cuda = node.torch_cuda = "13.0";
  node.gpu_links = {{"NV18", 28}};
  node.fabric = {{"mlx5_0/1", "ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand"}};
  node.fabric_devices = true;
  node.settings = {{"NCCL_DEBUG", "WARN"}};
  node.plugin = "/opt/lockstep-gpu.so";
  node.ptrace_scope = 0;
  node.perf_paranoid = 2;
  node.tracers = {"gdb"};
  return node;
}

Check check_named(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::ranges::find(checks, name, &Check::name);
  return found == checks.end() ? Check{State::failed, name, "no such check"} : *found;
}

TEST(NodeChecks, FindNothingOnANodeThatIsWell) {
  const std::vector<Check> checks = node_checks(well());
  EXPECT_EQ(checks.size(), 13U);
  for (const Check& check : checks) EXPECT_EQ(check.state, State::ok) << check.name << ": " << check.text;
}

struct Planted {
  const char* label;
  std::function<void(NodeFacts&)> fault;
  const char* check;
  State state;
  const char* says;
  const char* what_to_do;
};

class NodeFault : public testing::TestWithParam<Planted> {};

TEST_P(NodeFault, IsSaidWithWhatToDoAndNothingElseIs) {
  NodeFacts node = well();
  GetParam().fault(node);
  const std::vector<Check> checks = node_checks(node);
  const Check check = check_named(checks, GetParam().check);
  EXPECT_EQ(check.state, GetParam().state) << check.text;
  EXPECT_THAT(check.text, HasSubstr(GetParam().says));
  EXPECT_THAT(check.text, HasSubstr(GetParam().what_to_do));
  for (const Check& other : checks) {
    if (other.name != check.name) {
      EXPECT_EQ(other.state, State::ok) << other.name << ": " << other.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, NodeFault,
    testing::Values(
        Planted{"unresolved", [](NodeFacts& n) { n.host_addresses.clear(), n.host_problem = "Name or service not known"; }, "host name",
                State::note, "node7 does not resolve", "/etc/hosts"},
        Planted{"loopback_trap", [](NodeFacts& n) { n.host_addresses = {"127.0.1.1"}; }, "host name", State::note,
                "only to 127.0.1.1", "GLOO_SOCKET_IFNAME"},
        Planted{"no_such_interface", [](NodeFacts& n) { n.gloo_interface = "ib0"; }, "network", State::failed, "ib0 is not an interface",
                "eth0 10.0.0.7"},
        Planted{"interface_down", [](NodeFacts& n) { n.gloo_interface = "eth0", n.interfaces[1].up = false; }, "network", State::failed,
                "is down", "ip link set eth0 up"},
        Planted{"loopback_chosen", [](NodeFacts& n) { n.gloo_interface = "lo"; }, "network", State::note, "lo 127.0.0.1",
                "other hosts cannot reach it"},
        Planted{"only_loopback", [](NodeFacts& n) { n.interfaces.pop_back(); }, "network", State::note, "only the loopback", "LOCKSTEP_ADDRESS"},
        Planted{"several", [](NodeFacts& n) { n.interfaces.push_back({"docker0", "172.17.0.1", true, false}); }, "network", State::note,
                "the first of eth0 10.0.0.7, docker0 172.17.0.1", "GLOO_SOCKET_IFNAME"},
        Planted{"no_port", [](NodeFacts& n) { n.port_problem = "Operation not permitted"; }, "ports", State::failed,
                "Operation not permitted", "firewall"},
        Planted{"port_in_use", [](NodeFacts& n) { n.master_port = "29500", n.master_port_taken = true; }, "ports", State::failed,
                "MASTER_PORT=29500", "another port"},
        Planted{"few_ports", [](NodeFacts& n) { n.ports_to = n.ports_from + 99; }, "ports", State::note, "100 local ports", "ip_local_port_range"},
        Planted{"no_shm", [](NodeFacts& n) { n.shm_bytes = -1; }, "/dev/shm", State::note, "missing", "tmpfs"},
        Planted{"small_shm", [](NodeFacts& n) { n.shm_bytes = 64 << 20; }, "/dev/shm", State::note, "64 MiB", "--shm-size"},
        Planted{"crowded", [](NodeFacts& n) { n.cores = 2; }, "threads", State::note, "8 ranks here, 2 cores", "fewer ranks"},
        Planted{"unwritable", [](NodeFacts& n) { n.shared.problem = "cannot create a file: Permission denied"; }, "shared folder",
                State::failed, "Permission denied", "--out"},
        Planted{"no_locks", [](NodeFacts& n) { n.shared.lock_holds = false; }, "shared folder", State::failed,
                "a second process got a lock", "nolock"},
        Planted{"clock_ahead", [](NodeFacts& n) { n.shared.clock_ahead_s = 3; }, "shared folder", State::note, "3.0 s ahead of", "NTP"},
        Planted{"clock_behind", [](NodeFacts& n) { n.shared.clock_ahead_s = -2.5; }, "shared folder", State::note, "2.5 s behind", "NTP"},
        Planted{"slurm_silent", [](NodeFacts& n) { n.slurm_problem = "no answer within 3 s"; }, "slurm", State::note, "does not answer",
                "scontrol ping"},
        Planted{"slurm_not_in_container", [](NodeFacts& n) { n.slurm_version.clear(); }, "slurm", State::note,
                "inside job 17", "bind Slurm's programs"},
        Planted{"node_ahead", [](NodeFacts& n) { n.clocks[1].ahead_s = 30; }, "clocks", State::note, "compared with node7: node8 is 30.0 s ahead", "NTP"},
        Planted{"node_behind", [](NodeFacts& n) { n.clocks[1].ahead_s = -2; }, "clocks", State::note, "node8 is 2.0 s behind", "NTP"},
        Planted{"node_silent", [](NodeFacts& n) { n.clocks.pop_back(); }, "clocks", State::note, "1 of 2 nodes", "srun --overlap date"},
        Planted{"no_plugin", [](NodeFacts& n) { n.plugin.clear(); }, "GPUs", State::note, "8 GPUs, pairs of them joined by 28 NV18; no plugin", "--preset gpu"},
        Planted{"no_driver", [](NodeFacts& n) { n.driver.clear(), n.gpus = 0; }, "GPUs", State::note, "no NVIDIA driver", "nvidia-smi"},
        Planted{"no_gpu", [](NodeFacts& n) { n.gpus = 0; }, "GPUs", State::note, "0 GPUs", "--gpus all"},
        Planted{"hidden", [](NodeFacts& n) { n.visible_set = true; }, "GPUs", State::note, "CUDA_VISIBLE_DEVICES= hides all GPUs", "unset"},
        Planted{"old_driver", [](NodeFacts& n) { n.driver_cuda = "12.4"; }, "GPUs", State::failed, "LibTorch was built for CUDA 13.0", "a newer driver"},
        Planted{"old_driver_unused", [](NodeFacts& n) { n.driver_cuda = "12.4", n.plugin.clear(); }, "GPUs", State::note, "(up to CUDA 12.4)", "a newer driver"},
        Planted{"port_down", [](NodeFacts& n) { n.fabric.push_back({"mlx5_1/1", "DOWN", "10 Gb/sec (4X SDR)", "InfiniBand"}); }, "InfiniBand", State::note,
                "mlx5_1/1 is DOWN", "ibstat"},
        Planted{"no_devices", [](NodeFacts& n) { n.fabric_devices = false; }, "InfiniBand", State::note, "/dev/infiniband is missing", "the devices"},
        Planted{"fabric_off", [](NodeFacts& n) { n.settings["NCCL_IB_DISABLE"] = "1"; }, "InfiniBand", State::note, "NCCL use sockets", "unset"},
        Planted{"little_memlock", [](NodeFacts& n) { n.memlock_bytes = 8 << 20; }, "memlock", State::note, "8 MiB a process", "ulimit -l unlimited"},
        Planted{"no_nccl_interface", [](NodeFacts& n) { n.settings["NCCL_SOCKET_IFNAME"] = "ib0"; }, "settings", State::failed, "ib0 is not an interface", "ip address"},
        Planted{"nobody_traces", [](NodeFacts& n) { n.ptrace_scope = 3, n.root = true; }, "tracing", State::note, "no process may be traced", "reboot"},
        Planted{"parents_trace", [](NodeFacts& n) { n.ptrace_scope = 1; }, "tracing", State::note, "only its parent", "sysctl"},
        Planted{"no_perf", [](NodeFacts& n) { n.perf_paranoid = 3; }, "tracing", State::note, "perf cannot measure", "sysctl"},
        Planted{"no_tracer", [](NodeFacts& n) { n.tracers.clear(); }, "tracing", State::note, "gdb, eu-stack and py-spy are missing", "elfutils"}),
    [](const auto& info) { return std::string(info.param.label); });

TEST(NodeChecks, LetRootTraceWhereOthersMayNot) {
  NodeFacts node = well();
  node.ptrace_scope = 2;
  node.perf_paranoid = 3;
  node.root = true;
  EXPECT_EQ(check_named(node_checks(node), "tracing").state, State::ok);
}

TEST(NodeChecks, TakeAMachineWithoutGpusAndSlurmAsItIs) {
  NodeFacts node = well();
  node.driver = node.plugin = node.slurm_version = node.slurm_job = "";
  node.gpus = node.slurm_nodes = 0;
  EXPECT_EQ(check_named(node_checks(node), "GPUs").state, State::ok);
  EXPECT_EQ(check_named(node_checks(node), "slurm").state, State::ok);
  EXPECT_EQ(check_named(node_checks(node), "clocks").state, State::ok);
}

TEST(NodeChecks, TakeLittleMemlockAsItIsWithoutInfiniBand) {
  NodeFacts node = well();
  node.memlock_bytes = 8 << 20;
  node.fabric.clear();
  EXPECT_EQ(check_named(node_checks(node), "memlock").state, State::ok);
  EXPECT_EQ(check_named(node_checks(node), "InfiniBand").state, State::ok);
  node.settings["NCCL_SOCKET_IFNAME"] = "^docker,lo";
  EXPECT_EQ(check_named(node_checks(node), "settings").state, State::ok) << "all but these";
}

TEST(NodeFactsSeen, CountPairsOfGpusByTheirLink) {
  const std::string matrix =
      "\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\x1b[0m\n"
      "GPU0\t X \tNV18\tSYS\tPIX\t0-31\nGPU1\tNV18\t X \tSYS\tSYS\t0-31\nGPU2\tSYS\tSYS\t X \tSYS\t32-63\nNIC0\tPIX\tSYS\tSYS\t X\n\nLegend:\n  X = Self\n";
  EXPECT_EQ(gpu_links_in(matrix), (std::map<std::string, int>{{"NV18", 1}, {"SYS", 2}}));
  EXPECT_TRUE(gpu_links_in("").empty());
  EXPECT_EQ(cuda_version_in("| NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0     |"), "13.0");
  EXPECT_EQ(cuda_version_in("CUDA Version: N/A"), "");
}

TEST(NodeFactsSeen, HoldOfAFolderThatCanBeWritten) {
  const TempFolder folder;
  const NodeFacts node = see_node(folder.path(), "/nowhere/lockstep-rank", false);
  EXPECT_EQ(node.shared.problem, "");
  EXPECT_TRUE(node.shared.lock_holds);
  EXPECT_FALSE(node.interfaces.empty());
  EXPECT_EQ(node.port_problem, "");
  EXPECT_EQ(node.plugin, "");
  EXPECT_NE(see_node(folder.path() + "/missing", "", false).shared.problem, "");
}

// doctor --nodes: what is said of reports that a test plants, and a meeting of ranks in threads.

std::vector<NodeReport> three() {
  std::vector<NodeReport> reports;
  for (const char* node : {"n1", "n2", "n3"}) {
    NodeReport report;
    report.node = node;
    report.checks = {{State::ok, "memory", std::string("of ") + node}, {State::ok, "GPUs", "8 GPUs"}};
    report.driver = "580.65.06";
    report.settings = {{"NCCL_DEBUG", "INFO"}};
    report.reached = 2;
    report.answer_s = 0.02;
    report.sums = {{61e-6}, {0.0447}};
    reports.push_back(report);
  }
  return reports;
}

std::vector<Check> named(const std::vector<Check>& checks, const std::string& name) {
  std::vector<Check> found;
  std::ranges::copy_if(checks, std::back_inserter(found), [&](const Check& each) { return each.name == name; });
  return found;
}

TEST(Nodes, FindNothingBetweenNodesThatAreWell) {
  const std::vector<Check> checks = checks_of_nodes(three());
  EXPECT_EQ(checks.size(), 8U);
  for (const Check& check : checks) EXPECT_EQ(check.state, State::ok) << check.name << ": " << check.text;
  EXPECT_EQ(named(checks, "GPUs").at(0).text, "8 GPUs") << "said once, as all say it";
  EXPECT_EQ(named(checks, "memory").at(0).text, "of n1 (of n1; ok on n1, n2, n3)");
  EXPECT_EQ(named(checks, "nodes").at(0).text, "3 processes on 3 nodes: n1, n2, n3");
  EXPECT_THAT(named(checks, "connections").at(0).text, HasSubstr("6 connections in both directions"));
  EXPECT_EQ(named(checks, "all-reduce").at(0).text,
            "3 real ranks on Gloo agree bit for bit, and every element is right; 4 kB in 61 us, bus bandwidth 0.0895 GB/s; "
            "64 MB in 44.7 ms, bus bandwidth 2 GB/s");
}

struct PlantedIn {
  const char* label;
  std::function<void(std::vector<NodeReport>&)> fault;
  const char* check;
  State state;
  std::vector<const char*> says;
};

class PlantedBetweenNodes : public testing::TestWithParam<PlantedIn> {};

TEST_P(PlantedBetweenNodes, AreFoundWithTheirNodeAndNoOther) {
  std::vector<NodeReport> reports = three();
  GetParam().fault(reports);
  int found = 0;
  for (const Check& check : checks_of_nodes(reports)) {
    if (check.name != GetParam().check) {
      EXPECT_EQ(check.state, State::ok) << check.name << ": " << check.text;
    } else if (check.state != State::ok) {
      ++found;
      EXPECT_EQ(check.state, GetParam().state);
      for (const char* words : GetParam().says) EXPECT_THAT(check.text, HasSubstr(words));
    }
  }
  EXPECT_EQ(found, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Each, PlantedBetweenNodes,
    testing::Values(
        PlantedIn{"one_is_ill", [](auto& r) { r[2].checks[1] = {State::failed, "GPUs", "0 GPUs"}; }, "GPUs", State::failed, {"n3: 0 GPUs"}},
        PlantedIn{"silent", [](auto& r) { r[1].answer_s = -1; }, "folder latency", State::failed, {"n2 did not answer", "actimeo"}},
        PlantedIn{"slow_folder", [](auto& r) { r[1].answer_s = 3; }, "folder latency", State::note, {"3.000 s (slowest: n2", "more than 1 s", "actimeo"}},
        PlantedIn{"no_lock", [](auto& r) { r[2].lock_holds = false; }, "locks of nodes", State::failed, {"n3 got a lock (flock) that n1 held", "localflock"}},
        PlantedIn{"one_way", [](auto& r) { r[0].unreachable = {"n3 (10.0.0.3:40001): Connection refused"}; }, "connections", State::failed,
                {"n1 cannot reach n3 (10.0.0.3:40001): Connection refused", "LOCKSTEP_PORTS", "ip_local_port_range"}},
        PlantedIn{"ahead", [](auto& r) { r[1].clock_ahead_s = 30; }, "clocks", State::note, {"compared with n1: n2 is 30.0 s ahead", "NTP"}},
        PlantedIn{"drivers", [](auto& r) { r[1].driver = "535.1"; }, "drivers", State::note, {"535.1 on n2", "580.65.06 on n1, n3"}},
        PlantedIn{"settings", [](auto& r) { r[2].settings.clear(); }, "settings", State::note, {"NCCL_DEBUG differs: none on n3, INFO on n1, n2", "--export=ALL"}},
        PlantedIn{"wrong_sum", [](auto& r) { r[1].sums[1] = {0.0447, 3, 39, "nan", 4}; }, "all-reduce", State::failed,
                {"rank 1 on n2 has nan at element 39 of 16,777,216, not 4, and 3 elements wrong in two calls", "ethtool"}},
        PlantedIn{"no_sum", [](auto& r) { r[2].sums.clear(), r[2].sum_problem = "it hangs"; }, "all-reduce", State::failed,
                {"rank 2 on n3: it hangs"}},
        PlantedIn{"one_node", [](auto& r) { r.resize(1); }, "nodes", State::note, {"1 process on 1 node: n1", "salloc -N2"}}),
    [](const auto& info) { return std::string(info.param.label); });

TEST(Nodes, MeetInTheFolderTheyShare) {
  const TempFolder folder;
  constexpr int kWorld = 3;
  std::vector<std::vector<NodeReport>> of(kWorld);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kWorld; ++rank) {
      ranks.emplace_back([&, rank] {
        RankEnvironment environment;
        environment.rank = rank;
        environment.world = kWorld;
        NodeReport mine;
        mine.node = "n" + std::to_string(rank);
        mine.checks = {{State::note, "memory", "little"}};
        of[static_cast<std::size_t>(rank)] = meet_nodes(folder.path() + "/meeting", environment, mine, "/bin/false");
      });
    }
  }
  EXPECT_TRUE(of[1].empty() && of[2].empty()) << "rank 0 says it";
  ASSERT_EQ(of[0].size(), 3U);
  for (const NodeReport& report : of[0]) {
    EXPECT_EQ(report.checks.at(0).state, State::note);
    EXPECT_TRUE(report.lock_holds) << report.node;
    EXPECT_EQ(report.reached, 2) << report.node;
    EXPECT_THAT(report.unreachable, testing::IsEmpty());
    EXPECT_EQ(report.clock_ahead_s, 0);
    EXPECT_EQ(report.sum_problem, "/bin/false gave no answer");
  }
  EXPECT_GT(of[0][2].answer_s, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/meeting"));
}

}  // namespace
}  // namespace lockstep
