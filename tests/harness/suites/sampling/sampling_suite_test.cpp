// A slice of every kind of trials: the good code is silent, each planted mistake is found and named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/suites/sampling/counter_writer_race.h"
#include "harness/suites/sampling/sampling.h"
#include "tests/support/suite_run.h"

namespace lockstep {
namespace {

using support::expect_silent;
using support::fact;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

SuiteResult run(const std::string& section, const std::string& only = "") {
  return support::run_tried(sampling_suite(), "name: slice\nlaboratory: sampling\nsampling: {" + section + "}\n", only);
}

struct PlantedCase {
  const char *experiment, *mutant, *code;
};

class Planted : public testing::TestWithParam<PlantedCase> {};

TEST_P(Planted, IsFoundAndNamed) {
  const auto& [experiment, mutant, code] = GetParam();
  const SuiteResult result =
      run(std::string("most_samples: 30, most_ranks: 5, experiment: ") + experiment,
          std::string("planted:") + mutant);
  EXPECT_EQ(result.trials, 1);
  EXPECT_EQ(result.faults, 0);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].verdict, CaseVerdict::planted) << result.findings[0].sentence;
  EXPECT_THAT(result.findings[0].sentence, HasSubstr(std::string("named ") + code + " in all "));
}

constexpr PlantedCase kPlanted[] = {
    {"sampler", "set_epoch_forgotten", "order_repeats"},
    {"sampler", "padded_twice", "padded_twice"},
    {"sampler", "padding_counted", "padding_counted"},
    {"sampler", "drop_last_loses", "samples_lost"},
    {"sampler", "same_shard", "same_shard"},
    {"sampler", "one_rank_short", "unequal_lengths"},
    {"sampler", "own_permutations", "shards_overlap"},
    {"tasks", "tasks_by_modulo", "empty_rank"},
    {"tasks", "task_given_twice", "task_twice"},
    {"tasks", "done_forgotten", "task_twice"},
    {"tasks", "dead_rank_lost", "dead_rank_lost"},
    {"tasks", "slow_ignored", "unbalanced"},
    {"states", "equal_environment_seeds", "equal_environment_seeds"},
    {"states", "chunk_local_index", "chunk_index_seeds"},
    {"states", "epoch_key_forgotten", "epoch_order_repeats"},
    {"states", "round_over_the_edge", "state_twice"},
    {"states", "with_replacement", "state_twice"},
    {"states", "state_never_drawn", "state_left_out"},
    {"counter", "reset_in_place", "reset_half_seen"},
    {"counter", "add_unlocked", "lost_update"},
    {"control", "stop_alone", "stop_from_local_validation"},
    {"control", "epoch_off", "epoch_differs"},
    {"control", "rate_local_kl", "learning_rate_from_local_kl"},
    {"control", "rate_local_success", "learning_rate_from_local_success"},
    {"control", "step_off", "step_differs"},
    {"control", "offset_off", "random_offset_differs"},
    {"control", "scale_off", "loss_scale_differs"},
    {"control", "merge_interval", "merge_due_differs"},
    {"control", "no_sync", "synchronises_differs"},
    {"control", "own_gradient", "parameters_differs"},
    {"control", "leaves", "group_broken"},
};
INSTANTIATE_TEST_SUITE_P(Mistakes, Planted, testing::ValuesIn(kPlanted),
                         [](const auto& info) { return std::string(info.param.mutant); });

const std::string kManyRanks =
    "most_samples: 2, most_ranks: 1, samples: 50000, ranks: 4096, states: 20000, states_a_round: 5000, "
    "episodes: 2000, tasks: {a: 3, b: 1.5, c: 2}, experiment: ";

class PlantedOnManyRanks : public testing::TestWithParam<PlantedCase> {};

TEST_P(PlantedOnManyRanks, IsFoundAndNamed) {
  const auto& [experiment, mutant, code] = GetParam();
  const SuiteResult result = run(kManyRanks + experiment, std::string("planted:") + mutant);
  EXPECT_EQ(result.faults, 0);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].verdict, CaseVerdict::planted) << result.findings[0].sentence;
  EXPECT_THAT(result.findings[0].sentence, HasSubstr(std::string("named ") + code + " in all "));
}

INSTANTIATE_TEST_SUITE_P(Mistakes, PlantedOnManyRanks,
                         testing::Values(PlantedCase{"sampler", "one_rank_short", "unequal_lengths"},
                                         PlantedCase{"sampler", "set_epoch_forgotten", "order_repeats"},
                                         PlantedCase{"tasks", "tasks_by_modulo", "empty_rank"},
                                         PlantedCase{"tasks", "dead_rank_lost", "dead_rank_lost"},
                                         PlantedCase{"states", "equal_environment_seeds", "equal_environment_seeds"},
                                         PlantedCase{"states", "round_over_the_edge", "state_twice"}),
                         [](const auto& info) { return std::string(info.param.mutant); });

TEST(SamplerTrials, AreSilentOnManyRanks) {
  expect_silent(run(kManyRanks + "sampler, planted: false, epochs: 4"), 2);
}

TEST(TaskTrials, AreSilentOnManyRanks) {
  expect_silent(run(kManyRanks + "tasks, planted: false", "tasks:4096"), 4);
  expect_silent(run(kManyRanks + "tasks, planted: false", "job:tasks"), 2);
}

TEST(StateTrials, AreSilentOnManyRanks) { expect_silent(run(kManyRanks + "states, planted: false"), 3); }

TEST(ControlTrials, SayHowManyOfTheRanksAreGuarded) {
  expect_silent(run("experiment: control, planted: false, ranks: 65, states: 65, states_a_round: 65", "control:65"), 1);
  const SuiteResult result = run(kManyRanks + "control, planted: false", "control:1");
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("128 of one's own job's 4,096 ranks were compared")));
}

TEST(SamplingSuite, PlantsNothingThatNoTestExpects) {
  const SuiteResult all = run("most_samples: 2, most_ranks: 1, planted: true", "planted:none");
  EXPECT_EQ(all.trials, 0);
  const SuiteResult without = run("experiment: states, most_ranks: 2, planted: false");
  expect_silent(without, 50);
}

TEST(SamplerTrials, FindNothingInTheSamplerAsItIs) {
  const SuiteResult result = run("experiment: sampler, most_samples: 40, most_ranks: 6, planted: false");
  expect_silent(result, 41 * 6 * 4 * 3);
  EXPECT_EQ(fact(result, "cases of samples, ranks, drop_last, shuffle and epoch, partitioned as PyTorch partitions"),
            "2,952");
}

TEST(TaskTrials, FindNothingInTheAssignmentAsItIs) {
  expect_silent(run("experiment: tasks, most_ranks: 6, planted: false, tasks: {a: 3, b: 1.5, c: 2}"),
                21 * 44);
}

TEST(CounterTrials, FindNoScheduleThatBreaksTheCounter) {
  expect_silent(run("experiment: counter, planted: false", "place==two processes add"), 500);
  expect_silent(
      run("experiment: counter, planted: false", "place==three processes: one resets, one adds, one reads"),
      100);
}

TEST(CounterTrials, FindNoEndOfAProcessThatBreaksTheCounter) {
  expect_silent(run("experiment: counter, planted: false", "failure==counter, a process ends"), 200);
}

TEST(CounterTrials, ShowTheScheduleOfALostUpdate) {
  const SuiteResult result = run("experiment: counter", "planted:add_unlocked");
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_THAT(result.findings[0].sentence,
              HasSubstr("two processes were given the same numbers, and so draw the same initial states"));
  EXPECT_THAT(result.findings[0].sentence, HasSubstr("stops before its operation"));
  EXPECT_THAT(result.findings[0].timeline, Not(IsEmpty()));
}

TEST(AuditCounter, TakesWhatSomeOrderExplains) {
  using sampling::CounterVerb;
  const std::vector<std::string> names{"process A", "process B"};
  const sampling::CounterEvent first{0, {CounterVerb::add, 2}, {10, ""}, 0, 3},
      second{1, {CounterVerb::add, 1}, {12, ""}, 1, 2};
  EXPECT_EQ(sampling::audit_counter(10, {first, second}, names).sentence, "");
  sampling::CounterEvent same = second;
  same.answer.value = 11;
  EXPECT_EQ(sampling::audit_counter(10, {first, same}, names).code, "lost_update");  // 11 is both's.
  // It ended before the other one began, and cannot come after it.
  sampling::CounterEvent late = second;
  late.answer.value = 10;
  late.begun = 4;
  late.ended = 5;
  EXPECT_EQ(sampling::audit_counter(10, {first, late}, names).code, "lost_update");
  sampling::CounterEvent cut_off = first;
  cut_off.cut_off = true;
  cut_off.answer = {0, "gone"};
  EXPECT_EQ(sampling::audit_counter(10, {cut_off, late}, names).sentence, "");
  late.answer.value = 12;
  EXPECT_EQ(sampling::audit_counter(10, {cut_off, late}, names).sentence, "");
  late.answer.value = 11;
  EXPECT_EQ(sampling::audit_counter(10, {cut_off, late}, names).code, "no_order");
}

TEST(SeedTrials, TheKeyedFormAloneCollidesNowhere) {
  const SuiteResult keyed = run("experiment: seeds", "seeds:keyed");
  expect_silent(keyed, 1'000'000);
  expect_silent(run("experiment: seeds", "seeds:keyed-against-keyed"), 990);
  const SuiteResult ranks = run("experiment: seeds", "seeds:plus_rank");
  ASSERT_EQ(ranks.findings.size(), 1u);
  EXPECT_EQ(ranks.findings[0].verdict, CaseVerdict::planted);
  EXPECT_THAT(ranks.findings[0].sentence, HasSubstr("1,000,000 streams have 109 seeds"));
  const SuiteResult cross = run("experiment: seeds", "seeds:plus_rank-against-plus_epoch");
  ASSERT_EQ(cross.findings.size(), 1u);
  EXPECT_THAT(cross.findings[0].sentence,
              HasSubstr("run 0, rank 1, worker 0, epoch 0 draws from seed 1, and so does the permutation "
                        "of run 0, epoch 1"));
}

TEST(ControlTrials, LeaveRanksAloneThatAgree) {
  const SuiteResult result = run("experiment: control, most_ranks: 6, planted: false");
  expect_silent(result, 120);
}

TEST(ControlTrials, SayWhatWouldComeOfItWithoutTheGuard) {
  const SuiteResult result = run("experiment: control", "planted:stop_alone");
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_THAT(result.findings[0].sentence, HasSubstr("Without the guard: "));
}

}  // namespace
}  // namespace lockstep
