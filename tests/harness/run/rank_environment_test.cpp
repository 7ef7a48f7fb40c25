#include "harness/run/rank_environment.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Environment kTorchrun = {{"RANK", "5"},         {"WORLD_SIZE", "8"},          {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"}, {"GROUP_RANK", "1"},      {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "job"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Environment kSlurm = {{"SLURM_JOB_ID", "17"},      {"SLURM_STEP_ID", "3"},  {"SLURM_PROCID", "5"},
                            {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "1"},       {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}, {"SLURM_STEP_NODELIST", "n[07-08]"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},       {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"PMIX_RANK", "5"},            {"PMIX_NAMESPACE", "4104519681"}};
const Environment kMpich = {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
const Environment kKubernetes = {{"JOB_COMPLETION_INDEX", "5"}, {"LOCKSTEP_WORLD_SIZE", "8"}};
const Environment kOwn = {{"LOCKSTEP_RANK_ID", "5"}, {"LOCKSTEP_WORLD_SIZE", "8"}, {"LOCKSTEP_LOCAL_RANK", "1"},
                          {"LOCKSTEP_RENDEZVOUS", "/shared/meet"}};

Environment operator+(Environment a, const Environment& b) {
  a.insert(b.begin(), b.end());
  return a;
}

Environment with(Environment base, const std::string& name, const std::string& value) {
  base[name] = value;
  return base;
}

Environment without(Environment base, const std::string& name) {
  base.erase(name);
  return base;
}

TEST(RankEnvironment, IsReadFromEveryLauncher) {
  const std::vector<std::pair<std::string, Environment>> table = {{"torchrun", kTorchrun}, {"Slurm step", kSlurm},
                                                                  {"Open MPI", kOpenMpi},  {"PMI", kMpich},
                                                                  {"Kubernetes", kKubernetes}, {"lockstep", kOwn}};
  for (const auto& [name, environment] : table) {
    const Resolution found = resolve_rank_environment(environment, {});
    ASSERT_TRUE(found.chosen) << name << ": " << testing::PrintToString(found.problems);
    EXPECT_EQ(found.chosen->name, name);
    EXPECT_EQ(found.chosen->rank, 5) << name;
    EXPECT_EQ(found.chosen->world, 8) << name;
    EXPECT_EQ(found.chosen->local_rank, name == "Kubernetes" ? 0 : 1) << name;
    EXPECT_THAT(found.problems, IsEmpty()) << name;
  }
}

TEST(RankEnvironment, KeepsWhatALauncherSaysBesides) {
  const RankEnvironment torchrun = *resolve_rank_environment(kTorchrun, {}).chosen;
  EXPECT_EQ(torchrun.address, "node0");
  EXPECT_EQ(torchrun.port, 29500);
  EXPECT_EQ(torchrun.local_world, 4);
  EXPECT_EQ(torchrun.restarts, 2);
  const RankEnvironment slurm = *resolve_rank_environment(kSlurm, {}).chosen;
  EXPECT_EQ(slurm.local_world, 4);
  EXPECT_EQ(slurm.node, 1);
  EXPECT_EQ(slurm.address, "n07");
  EXPECT_EQ(slurm.start, "17.3 0");
  EXPECT_EQ(resolve_rank_environment(kOwn, {}).chosen->file, "/shared/meet");
}

TEST(RankEnvironment, IsNobodysWhereNothingIsSaid) {
  const Resolution found = resolve_rank_environment({{"PATH", "/bin"}, {"MASTER_ADDR", "node0"}}, {});
  EXPECT_FALSE(found.chosen);
  EXPECT_THAT(found.problems, IsEmpty());
}

TEST(RankEnvironment, GoesByPrecedenceWhereAllAgree) {
  const Environment all = kOwn + kTorchrun + kSlurm + kOpenMpi + kMpich + kKubernetes;
  Environment left = all;
  const auto first = [&] {
    const Resolution found = resolve_rank_environment(left, {});
    EXPECT_THAT(found.problems, IsEmpty());
    return found.chosen ? found.chosen->name : "";
  };
  // A pod's local rank is 0 of 1, which the others contradict: it stands for a launcher of another kind.
  left.erase("JOB_COMPLETION_INDEX");
  EXPECT_EQ(first(), "lockstep");
  left.erase("LOCKSTEP_RANK_ID");
  left.erase("LOCKSTEP_LOCAL_RANK");
  EXPECT_EQ(first(), "torchrun");
  for (const auto& [name, value] : kTorchrun) left.erase(name);
  EXPECT_EQ(first(), "Slurm step");
  left.erase("SLURM_STEP_ID");
  left.erase("SLURM_JOB_ID");
  EXPECT_EQ(first(), "Open MPI");
  for (const auto& [name, value] : kOpenMpi) left.erase(name);
  EXPECT_EQ(first(), "PMI");
  EXPECT_EQ(resolve_rank_environment(all, {"--run", "x", "--rank", "5", "--world", "8"}).seen.front().rank_environment.name, "command line");
}

TEST(RankEnvironment, FillsWhatTheChosenOneLeavesOpen) {
  const RankEnvironment own = *resolve_rank_environment(without(kOwn, "LOCKSTEP_LOCAL_RANK") + kTorchrun, {}).chosen;
  EXPECT_EQ(own.name, "lockstep");
  EXPECT_EQ(own.local_rank, 1);
  EXPECT_EQ(own.node, 1);
  EXPECT_EQ(own.address, "") << "it has named a file";
}

TEST(RankEnvironment, ThatContradictsAnotherIsRefusedAndBothAreShown) {
  for (const auto& [name, value] : Environment{{"SLURM_PROCID", "4"}, {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_LOCALID", "0"}}) {
    const Resolution found = resolve_rank_environment(kTorchrun + with(kSlurm, name, value), {});
    EXPECT_FALSE(found.chosen) << name;
    ASSERT_THAT(found.problems, testing::SizeIs(1)) << name;
    EXPECT_THAT(found.problems[0], HasSubstr("torchrun says rank 5 of 8, and Slurm step says rank "));
    EXPECT_THAT(rank_environment_table(found), HasSubstr(name + "=" + value));
    EXPECT_THAT(rank_environment_table(found), HasSubstr("RANK=5"));
  }
  const Resolution chosen = resolve_rank_environment(kTorchrun + with(kSlurm, "SLURM_PROCID", "4"), {"--environment", "Slurm step"});
  ASSERT_TRUE(chosen.chosen);
  EXPECT_EQ(chosen.chosen->rank, 4);
}

TEST(RankEnvironment, OfALauncherInsideAnothersTaskIsNoContradiction) {
  const Environment node_task = {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"},
                                 {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "1"}};
  for (const Environment& inner : {kTorchrun, kOpenMpi, kMpich}) {
    const Resolution both = resolve_rank_environment(inner + node_task, {});
    ASSERT_TRUE(both.chosen) << testing::PrintToString(both.problems);
  }
  EXPECT_EQ(resolve_rank_environment(kTorchrun + node_task, {}).chosen->rank, 5);
  EXPECT_FALSE(resolve_rank_environment(kTorchrun + with(node_task, "SLURM_PROCID", "0"), {}).chosen);
}

TEST(RankEnvironment, OfABatchScriptIsNoRank) {
  const Environment script = {{"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}};
  for (const Environment& environment : {script, with(script, "SLURM_STEP_ID", "4294967291")}) {
    const Resolution found = resolve_rank_environment(environment, {});
    EXPECT_FALSE(found.chosen);
    EXPECT_THAT(found.problems, IsEmpty());
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr("inside Slurm job 17, and in no step")));
    EXPECT_EQ(batch_job(environment), "17");
  }
  EXPECT_EQ(batch_job(kSlurm), "");
}

TEST(RankEnvironment, ThatIsHalfIsNamedWithWhatLacks) {
  const std::vector<std::tuple<Environment, std::string, std::string>> table = {
      {kTorchrun, "LOCAL_RANK", "torchrun"},         {kTorchrun, "MASTER_PORT", "torchrun"}, {kTorchrun, "WORLD_SIZE", "torchrun"},
      {kOpenMpi, "OMPI_COMM_WORLD_SIZE", "Open MPI"}, {kMpich, "PMI_SIZE", "PMI"},           {kMpich, "PMI_RANK", "PMI"},
      {kKubernetes, "LOCKSTEP_WORLD_SIZE", "Kubernetes"}, {kOwn, "LOCKSTEP_RANK_ID", "lockstep"}};
  for (const auto& [whole, lacking, name] : table) {
    const Resolution found = resolve_rank_environment(without(whole, lacking), {});
    EXPECT_FALSE(found.chosen) << lacking;
    EXPECT_THAT(found.problems, Contains(testing::AllOf(HasSubstr(name + " is half a rank environment"), HasSubstr("missing: " + lacking))));
  }
  // Beside a whole one it is worth a note.
  const Resolution beside = resolve_rank_environment(kSlurm + without(kTorchrun, "LOCAL_RANK"), {});
  EXPECT_EQ(beside.chosen->name, "Slurm step");
  EXPECT_THAT(beside.notes, ElementsAre(HasSubstr("torchrun is half a rank environment")));
}

TEST(RankEnvironment, RefusesNumbersThatAreNone) {
  const auto problem = [](const Environment& environment) {
    const Resolution found = resolve_rank_environment(environment, {});
    EXPECT_FALSE(found.chosen);
    return found.problems.empty() ? std::string() : found.problems.front();
  };
  EXPECT_THAT(problem(with(kTorchrun, "RANK", "five")), HasSubstr("RANK=five is no whole number"));
  EXPECT_THAT(problem(with(kMpich, "PMI_RANK", "-1")), HasSubstr("PMI_RANK=-1 is no whole number"));
  EXPECT_THAT(problem(with(kMpich, "PMI_RANK", "8")), HasSubstr("rank 8 of a world of 8: the last one is 7"));
  EXPECT_THAT(problem(with(kMpich, "PMI_SIZE", "0")), HasSubstr("a world of 0 ranks"));
  EXPECT_THAT(problem(with(kOpenMpi, "PMIX_RANK", "2")), HasSubstr("PMIX_RANK=2 is another rank"));
  EXPECT_THAT(problem(with(kSlurm, "SLURM_LOCALID", "4")), HasSubstr("local rank 4 of 4"));
}

TEST(RankEnvironment, RefusesUnknownAndUnfinishedOptions) {
  EXPECT_THAT(resolve_rank_environment(kTorchrun, {"--environment", "torchrum"}).problems,
              Contains(HasSubstr("did you mean 'torchrun'?")));
  EXPECT_THAT(resolve_rank_environment({}, {"--rank"}).problems, ElementsAre("--rank needs a value"));
  EXPECT_THAT(resolve_rank_environment({}, {"--world", "8"}).problems, ElementsAre("--world and --rendezvous go with --rank"));
  EXPECT_THAT(resolve_rank_environment({}, {"--rank", "1"}).problems, Contains(HasSubstr("missing: LOCKSTEP_WORLD_SIZE")));
  EXPECT_THAT(resolve_rank_environment(kMpich, {"--environment", "torchrun"}).problems, ElementsAre(HasSubstr("nothing of it is set")));
}

TEST(RankEnvironment, CountsPodsOfAJobSet) {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "1"}, {"LOCKSTEP_WORLD_SIZE", "8"}, {"LOCKSTEP_JOB_INDEX", "2"},
                           {"LOCKSTEP_JOB_COMPLETIONS", "2"}};
  EXPECT_EQ(resolve_rank_environment(pod, {}).chosen->rank, 5);
}

TEST(RankEnvironment, ReadsSlurmsLists) {
  EXPECT_EQ(first_host("n[07-12,20],m3"), "n07");
  EXPECT_EQ(first_host("m3,n[1-4]"), "m3");
  EXPECT_EQ(first_host("solo"), "solo");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(tasks_of_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_of_node("2(x3),1", 3), 1);
  EXPECT_EQ(tasks_of_node("2(x3),1", 4), -1);
  EXPECT_EQ(tasks_of_node("what", 0), -1);
}

TEST(RankEnvironment, GivesEachLocalRankADevice) {
  EXPECT_EQ(device_of(3, std::nullopt, 4), 3);
  EXPECT_EQ(device_of(5, std::nullopt, 4), 1) << "more ranks than devices share them";
  EXPECT_EQ(device_of(1, "2,3", 4), 1);
  EXPECT_EQ(device_of(3, "2", 4), 0) << "the launcher gave the rank one of its own";
  EXPECT_EQ(device_of(0, "", 4), -1);
  EXPECT_EQ(device_of(0, "-1", 4), -1);
  EXPECT_EQ(device_of(0, std::nullopt, 0), -1);
}

}  // namespace
}  // namespace lockstep
