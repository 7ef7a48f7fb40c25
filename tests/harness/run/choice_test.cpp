// Who starts the ranks, for how many there is room, and a run that is queued once more.

#include <gmock/gmock.h>

#include "harness/base/errors.h"
#include "harness/base/machine.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/slurm/agents.h"
#include "harness/run/split.h"
#include "harness/verdict/plan/launcher_choice.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string problem_of(const std::string& text) {
  std::string suggestion;
  const std::string problem = launcher_problem(text, suggestion);
  return suggestion.empty() ? problem : problem + " -> " + suggestion;
}

TEST(LauncherChoice, TakesEveryNameAndSuggestsTheNearest) {
  for (const char* good : {"local", "slurm", "slurm -N4 --time=10", "torchrun", "openmpi", "mpich", "srun --partition=debug",
                           "external:sh start.sh {ranks} {rank_program} run {run}"}) {
    EXPECT_EQ(problem_of(good), "") << good;
  }
  EXPECT_THAT(problem_of("torchrum"), HasSubstr("-> torchrun"));
  EXPECT_THAT(problem_of("mpirun"), HasSubstr("launcher 'mpirun' is unknown; known are local, slurm, torchrun, openmpi, mpich, srun, external:"));
  EXPECT_THAT(problem_of("local 4"), HasSubstr("local takes no options"));
  EXPECT_THAT(problem_of("external:mpirun {rank_program}"), HasSubstr("lacks {run}"));
  EXPECT_THAT(problem_of("external:mpirun run {run}"), HasSubstr("lacks {rank_program}"));
  EXPECT_THAT(problem_of("slurm '-N4"), HasSubstr("a quote is not closed"));
}

TEST(LauncherChoice, PutsTheUsersOptionsWhereTheyBelong) {
  const LauncherChoice mpich = launcher_choice("mpich -bind-to core");
  EXPECT_EQ(mpich.kind, LauncherChoice::Kind::external);
  EXPECT_THAT(mpich.words, ElementsAre("mpirun.mpich", "-np", "{ranks}", "-bind-to", "core", "{rank_program}", "run", "{run}", "--prepared"));
  const LauncherChoice own = launcher_choice("external:ssh 'a b' {rank_program} run {run}");
  EXPECT_THAT(own.words, ElementsAre("ssh", "a b", "{rank_program}", "run", "{run}"));
  EXPECT_THAT(launcher_choice("slurm -N4 --time=10").words, ElementsAre("-N4", "--time=10"));
  EXPECT_EQ(launcher_choice("local").kind, LauncherChoice::Kind::local);
}

TEST(LauncherChoice, NamesWhatToInstallWhereALauncherIsMissing) {
  LauncherChoice choice = launcher_choice("mpich");
  choice.words.front() = "no-such-mpirun";
  EXPECT_THAT([&] { launcher_maker(choice, "/bin/true", "/tmp"); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("there is no program no-such-mpirun; apt-get install mpich")));
  EXPECT_EQ(launcher_maker(launcher_choice("local"), "/bin/true", "/tmp"), nullptr);
}

TEST(Room, IsTheJobsBeforeTheMachines) {
  EXPECT_EQ(room_for_ranks({}, 6), 6);
  EXPECT_EQ(room_for_ranks({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "8"}}, 6), 8);
  EXPECT_EQ(room_for_ranks({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_CPUS_PER_NODE", "2(x3),4"}}, 6), 10);
  EXPECT_EQ(room_for_ranks({{"SLURM_NTASKS", "8"}}, 6), 6) << "in no job";
  EXPECT_EQ(room_for_ranks({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_CPUS_PER_NODE", "what"}}, 6), 6);
  EXPECT_EQ(room_for_ranks({{"LOCKSTEP_ROOM", "3"}, {"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "8"}}, 6), 3);
}

TEST(Agents, AreAsManyAsTheJobHasNodes) {
  EXPECT_EQ(nodes_of_job({}), 0);
  EXPECT_EQ(nodes_of_job({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "4"}}), 4);
  EXPECT_EQ(nodes_of_job({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}}), 0)
      << "a step's task is no batch script";
}

TEST(JobQueue, RunsAJobAgainThatWasLost) {
  JobQueue queue({{"a", {}, 1, 2}, {"b", {"a"}, 1, 1}}, 2);
  ASSERT_EQ(queue.next(), 0U);
  EXPECT_EQ(queue.next(), std::nullopt);
  queue.again(0);
  EXPECT_FALSE(queue.done());
  ASSERT_EQ(queue.next(), 0U) << "it waits once more, and what needs it still waits";
  queue.finished(0);
  ASSERT_EQ(queue.next(), 1U);
  queue.finished(1);
  EXPECT_TRUE(queue.done());
}

TEST(ExitFile, SaysHowARankEnded) {
  const TempFolder folder;
  EXPECT_FALSE(read_exit(folder.path(), 3));
  write_exit(folder.path(), {"s", 3, 0, 9, true, false, 12.5, "a"});
  const auto exit = read_exit(folder.path(), 3);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->signal, 9);
  EXPECT_TRUE(exit->told);
  EXPECT_EQ(read_stop(folder.path()).number, 0);
  write_stop(folder.path(), {2, 15});
  EXPECT_EQ(read_stop(folder.path()).number, 2);
  EXPECT_EQ(read_stop(folder.path()).signal, 15);
}

}  // namespace
}  // namespace lockstep
