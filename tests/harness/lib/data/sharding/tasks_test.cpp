// Tasks on ranks: each once, at least so many a rank, near the best time; and the audit of a round.

#include "harness/lib/data/sharding/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "harness/base/errors.h"
#include "harness/lib/data/sharding/task_audit.h"

namespace lockstep::sharding {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<Task> tasks(const std::vector<double>& costs, int64_t episodes = 4) {
  std::vector<Task> all;
  for (const double cost : costs) all.push_back({"t" + std::to_string(all.size()), cost, episodes});
  return all;
}

TaskRound whole(const std::vector<Task>& all, const AssignOptions& options) {
  TaskRound round{all, options, assign_tasks(all, options), {}, {}};
  for (std::size_t rank = 0; rank < round.assigned.size(); ++rank) {
    for (const Share& share : round.assigned[rank]) round.done.push_back({static_cast<int>(rank), share});
  }
  return round;
}

TEST(AssignTasks, PutsTheDearestFirst) {
  // The example of Graham (1969) for two ranks: 7 where 6 is possible, and 4/3 - 1/6 is met.
  const std::vector<Task> all = tasks({3, 3, 2, 2, 2});
  const Assignment assigned = assign_tasks(all, {.ranks = 2});  // Good enough not to be cut.
  EXPECT_EQ(finish_s(all, {.ranks = 2}, assigned), 7);
  const BestFinish best = best_finish(all, {.ranks = 2}, assigned);
  EXPECT_EQ(best.seconds, 6);
  EXPECT_TRUE(best.exact);
  EXPECT_EQ(audit_tasks(whole(all, {.ranks = 2})).sentence, "");
}

TEST(AssignTasks, CutsTasksWhereThereAreFewerThanRanks) {
  const std::vector<Task> all = tasks({6, 1});
  const Assignment assigned = assign_tasks(all, {.ranks = 4});
  EXPECT_THAT(assigned, testing::Each(SizeIs(1)));
  EXPECT_EQ(name_of(all, assigned[0][0]), "t0, part 1 of 3");
  EXPECT_EQ(audit_tasks(whole(all, {.ranks = 4})).sentence, "");
}

TEST(AssignTasks, GivesEveryRankItsLeast) {
  const std::vector<Task> all = tasks({9, 9, 1, 1, 1, 1});
  const Assignment assigned = assign_tasks(all, {.ranks = 3, .least = 2});
  EXPECT_THAT(assigned, testing::Each(SizeIs(testing::Ge(2u))));
}

TEST(AssignTasks, CutsTasksThatAreTooDearToBeBalanced) {
  const std::vector<Task> all = tasks({20, 1, 1});
  const AssignOptions three{.ranks = 3, .least = 1, .speed = {}};
  const Assignment assigned = assign_tasks(all, three);
  EXPECT_LE(finish_s(all, three, assigned), 4.0 / 3 * fluid_s(all, three));
  // One rank at an eighth of the speed must have a share, and gets a small one.
  const AssignOptions slow{.ranks = 2, .least = 1, .speed = {1, 0.125}};
  const std::vector<Task> one = tasks({1}, 32);
  EXPECT_LE(finish_s(one, slow, assign_tasks(one, slow)), 4.0 / 3 * fluid_s(one, slow));
  EXPECT_EQ(audit_tasks(whole(one, slow)).sentence, "");
  // Without episodes it stays whole.
  EXPECT_EQ(finish_s(tasks({20, 1, 1}, 1), three, assign_tasks(tasks({20, 1, 1}, 1), three)), 20);
}

TEST(AssignTasks, GivesASlowRankLess) {
  const std::vector<Task> all = tasks({1, 1, 1, 1, 1, 1, 1, 1, 1});
  const Assignment assigned = assign_tasks(all, {.ranks = 2, .least = 1, .speed = {1, 0.125}});
  EXPECT_THAT(assigned, ElementsAre(SizeIs(8), SizeIs(1)));
}

TEST(AssignTasks, RefusesWhatCannotBePartitioned) {
  EXPECT_THROW(assign_tasks({}, {.ranks = 2}), ConfigError);
  EXPECT_THROW(assign_tasks(tasks({0}), {.ranks = 1}), ConfigError);
  try {
    assign_tasks(tasks({1, 1}, 2), {.ranks = 5});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 tasks of 4 episodes in all give 5 ranks no 1 share each"));
  }
}

/// The rule as it is written: a look at every rank for each share.
Assignment partitioned_by_looking_at_all(const std::vector<Task>& all, const AssignOptions& options) {
  std::vector<Share> shares;
  for (int task = 0; task < static_cast<int>(all.size()); ++task) shares.push_back({task, 0, 1});
  std::ranges::stable_sort(shares,
                           [&](const Share& a, const Share& b) { return cost_of(all, a) > cost_of(all, b); });
  Assignment assigned(static_cast<std::size_t>(options.ranks));
  std::vector<double> cost(assigned.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    int64_t lacking = 0;
    for (const auto& own : assigned) lacking += own.empty() ? 1 : 0;
    const bool must_fill = static_cast<int64_t>(shares.size() - i) <= lacking;
    std::size_t to = assigned.size();
    const auto end_s = [&](std::size_t rank) {
      return (cost[rank] + cost_of(all, shares[i])) / options.speed_of(rank);
    };
    for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
      if (must_fill && !assigned[rank].empty()) continue;
      if (to == assigned.size() || end_s(rank) < end_s(to)) to = rank;
    }
    assigned[to].push_back(shares[i]);
    cost[to] += cost_of(all, shares[i]);
  }
  return assigned;
}

TEST(AssignTasks, GivesAShareToTheFirstOfTheRanksThatWouldEndItFirst) {
  std::mt19937 draws(5);
  for (int trial = 0; trial < 400; ++trial) {
    AssignOptions options{.ranks = 1 + static_cast<int>(draws() % 33)};
    // Costs of tenths add up to loads that differ in their last bits alone.
    std::vector<double> costs(static_cast<std::size_t>(options.ranks) + draws() % 90);
    for (double& cost : costs) cost = 0.1 * static_cast<double>(1 + draws() % 9);
    const double speeds[] = {1, 0.125, 0.3};
    if (trial % 2 == 1)
      for (int rank = 0; rank < options.ranks; ++rank) options.speed.push_back(speeds[draws() % 3]);
    const std::vector<Task> all = tasks(costs, 1);
    EXPECT_EQ(assign_tasks(all, options), partitioned_by_looking_at_all(all, options)) << "trial " << trial;
  }
}

TEST(AssignTasks, KeepsItsRulesOnManyRanks) {
  const std::vector<Task> few = tasks({5.5, 3.2, 2.9, 1.1, 0.8}, 1000);
  const AssignOptions many{.ranks = 4096};
  // 1,000 episodes of the dearest one are too few for an equal share.
  const TaskRound cut = whole(few, many);
  EXPECT_EQ(audit_tasks(cut).sentence, "");
  EXPECT_EQ(finish_s(few, many, cut.assigned), 5.5 / 1000);
  std::vector<double> costs(12'000);
  for (std::size_t i = 0; i < costs.size(); ++i) costs[i] = 1 + static_cast<double>(i % 17);
  AssignOptions slow{.ranks = 4096, .least = 1, .speed = std::vector<double>(4096, 1)};
  slow.speed[2048] = 0.125;
  EXPECT_EQ(audit_tasks(whole(tasks(costs, 8), slow)).sentence, "");
}

TEST(AuditTasks, NamesOneRankOfManyThatHasNothingToDo) {
  TaskRound round = whole(tasks(std::vector<double>(8192, 1)), {.ranks = 4096});
  round.assigned[7].push_back(round.assigned[4095][0]);
  round.assigned[7].push_back(round.assigned[4095][1]);
  round.assigned[4095].clear();
  EXPECT_THAT(audit_tasks(round).sentence, HasSubstr("rank 4095 of 4096 has none of 8192 tasks"));
}

TEST(ReassignTasks, GivesWhatManyRanksLeftToManyOthers) {
  const std::vector<Task> all = tasks(std::vector<double>(8192, 1));
  TaskRound round = whole(all, {.ranks = 4096});
  for (int rank = 1; rank < 4096; rank += 2) round.dead.push_back(rank);
  const Assignment left = reassign_tasks(all, round.options, round.assigned, {}, round.dead);
  round.done.clear();
  for (std::size_t rank = 0; rank < left.size(); ++rank) {
    EXPECT_EQ(left[rank].size(), rank % 2 == 0 ? 4u : 0u);
    for (const Share& share : left[rank]) round.done.push_back({static_cast<int>(rank), share});
  }
  EXPECT_EQ(audit_tasks(round).sentence, "");
}

TEST(ReassignTasks, GivesTheLivingWhatTheDeadHadNotDone) {
  const std::vector<Task> all = tasks({4, 3, 2, 1, 1, 1});
  TaskRound round = whole(all, {.ranks = 3});
  const std::vector<Share> done{round.assigned[2][0]};
  const std::vector<int> dead{2};
  const Assignment left = reassign_tasks(all, round.options, round.assigned, done, dead);
  EXPECT_THAT(left[2], SizeIs(0));
  round.done = {{2, done[0]}};
  round.dead = dead;
  for (std::size_t rank = 0; rank < left.size(); ++rank) {
    for (const Share& share : left[rank]) round.done.push_back({static_cast<int>(rank), share});
  }
  EXPECT_EQ(audit_tasks(round).sentence, "");
  EXPECT_THROW(reassign_tasks(all, round.options, round.assigned, done, std::vector<int>{0, 1, 2}),
               ConfigError);
}

TEST(AuditTasks, NamesWhatWentWrong) {
  const std::vector<Task> all = tasks({4, 3, 2, 1});
  TaskRound round = whole(all, {.ranks = 2});
  const TaskRound good = round;
  round.assigned = {{{0, 0, 1}, {1, 0, 1}, {2, 0, 1}, {3, 0, 1}}, {}};
  EXPECT_THAT(audit_tasks(round).sentence, HasSubstr("rank 1 of 2 has none of 4 tasks"));
  round = good;
  round.done.push_back({1, round.done[0].share});
  EXPECT_EQ(audit_tasks(round).code, "task_twice");
  round = good;
  const TaskRound::Done last = round.done.back();
  round.done.pop_back();
  EXPECT_EQ(audit_tasks(round).code, "task_lost");
  round.dead = {last.rank};
  EXPECT_EQ(audit_tasks(round).code, "dead_rank_lost");
  round = good;
  round.assigned = {{{0, 0, 1}, {1, 0, 1}, {2, 0, 1}}, {{3, 0, 1}}};
  const Finding unbalanced = audit_tasks(round);
  EXPECT_EQ(unbalanced.code, "unbalanced");
  EXPECT_THAT(unbalanced.sentence, HasSubstr("ends after 9 s, and 5 s are possible"));
}

}  // namespace
}  // namespace lockstep::sharding
