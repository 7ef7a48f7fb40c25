// doctor --nodes: what is said of reports that a test plants, and a meeting of ranks in threads.

#include "harness/cli/doctor/nodes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using State = Check::State;
using testing::HasSubstr;

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
  EXPECT_EQ(checks.size(), 7U);
  for (const Check& check : checks) EXPECT_EQ(check.state, State::ok) << check.name << ": " << check.text;
  EXPECT_EQ(named(checks, "GPUs").at(0).text, "8 GPUs") << "said once, as all say it";
  EXPECT_EQ(named(checks, "memory").at(0).text, "of n1 (of n1; ok on n1, n2, n3)");
  EXPECT_EQ(named(checks, "nodes").at(0).text, "3 processes on 3 nodes: n1, n2, n3");
  EXPECT_THAT(named(checks, "connections").at(0).text, HasSubstr("6 connections in both directions"));
}

struct Planted {
  const char* label;
  std::function<void(std::vector<NodeReport>&)> fault;
  const char* check;
  State state;
  std::vector<const char*> says;
};

class PlantedBetweenNodes : public testing::TestWithParam<Planted> {};

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
        Planted{"one_is_ill", [](auto& r) { r[2].checks[1] = {State::failed, "GPUs", "0 GPUs"}; }, "GPUs", State::failed, {"n3: 0 GPUs"}},
        Planted{"silent", [](auto& r) { r[1].answer_s = -1; }, "folder latency", State::failed, {"n2 did not answer", "actimeo"}},
        Planted{"slow_folder", [](auto& r) { r[1].answer_s = 3; }, "folder latency", State::note, {"3.000 s (slowest: n2", "more than 1 s", "actimeo"}},
        Planted{"no_lock", [](auto& r) { r[2].lock_holds = false; }, "locks of nodes", State::failed, {"n3 got a lock (flock) that n1 held", "localflock"}},
        Planted{"one_way", [](auto& r) { r[0].unreachable = {"n3 (10.0.0.3:40001): Connection refused"}; }, "connections", State::failed,
                {"n1 cannot reach n3 (10.0.0.3:40001): Connection refused", "LOCKSTEP_PORTS", "ip_local_port_range"}},
        Planted{"ahead", [](auto& r) { r[1].clock_ahead_s = 30; }, "clocks", State::note, {"compared with n1: n2 is 30.0 s ahead", "NTP"}},
        Planted{"drivers", [](auto& r) { r[1].driver = "535.1"; }, "drivers", State::note, {"535.1 on n2", "580.65.06 on n1, n3"}},
        Planted{"settings", [](auto& r) { r[2].settings.clear(); }, "settings", State::note, {"NCCL_DEBUG differs: none on n3, INFO on n1, n2", "--export=ALL"}},
        Planted{"one_node", [](auto& r) { r.resize(1); }, "nodes", State::note, {"1 process on 1 node: n1", "salloc -N2"}}),
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
        of[static_cast<std::size_t>(rank)] = meet_nodes(folder.path() + "/meeting", environment, mine);
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
  }
  EXPECT_GT(of[0][2].answer_s, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/meeting"));
}

}  // namespace
}  // namespace lockstep
