#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/plan/matrix/checks.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/command/launcher.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/launcher.h"
#include "harness/run/launchers/slurm/agents.h"
#include "harness/run/libraries.h"
#include "harness/run/probe.h"
#include "harness/run/process_state.h"
#include "harness/run/split.h"
#include "harness/run/watch.h"
#include "tests/support/temp_folder.h"

// What lockstep and the ranks of a command tell each other: where the probe is, heartbeats from Python, and what ranks leave.

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Probe, IsLookedForBesideTheProgramOrWhereTheUserSays) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "usr/lib/python3.11");
  EXPECT_THAT(probe_places(folder / "usr/bin/lockstep", ""),
              ElementsAre(folder / "usr/share/lockstep/probe", folder / "usr/lib/python3.11/site-packages", folder / "usr/lib/python3.11/dist-packages",
                          std::filesystem::path(folder.path()).parent_path().string() + "/probe/python"));
  EXPECT_THAT(probe_places("/usr/bin/lockstep", "/mine"), ElementsAre("/mine"));
}

TEST(Probe, ReportsMayLackWhatTheyDoNotKnow) {
  const TempFolder folder;
  EXPECT_FALSE(read_probe_report(folder.path(), 0).there);
  write_text(folder / "rank-0.probe.json", R"({"tier": "lines", "samples": true, "metrics": ["accuracy", 3], "seconds": "x"})");
  const ProbeReport report = read_probe_report(folder.path(), 0);
  EXPECT_TRUE(report.there && report.samples && !report.loss);
  EXPECT_THAT(report.metrics, ElementsAre("accuracy"));
  EXPECT_EQ(judged_with(report), "free runs, rows by their ids");
  EXPECT_EQ(not_seen(report), "the loss, losses of rows");
  write_text(folder / "rank-1.probe.json", "{");
  EXPECT_THAT(read_probe_report(folder.path(), 1).problem, HasSubstr("not JSON"));
}

TEST(Probe, SaysWhatEndedARunAndWhatWasNotRecorded) {
  const TempFolder folder;
  EXPECT_EQ(read_run_account(folder.path()).ended + read_run_account(folder.path()).unrecorded, "");
  const std::string lost = R"("ended": {"after": 5, "error": "RuntimeError: Gloo", "of_others": true, "at": 1})";
  const std::string entry = R"_({"what": "a second optimizer (SGD)", "steps": 5, "done": true})_";
  const auto first = [&](const std::string& unrecorded, const std::string& tier) {
    write_text(folder / "rank-0.probe.json", R"({"tier": ")" + tier + R"(", "steps": 5, "world_size": 3, "unrecorded": [)" + unrecorded + "], " + lost + "}");
    return read_run_account(folder.path());
  };
  EXPECT_EQ(first("", "zero").ended, "ended after 5 steps: rank 0, RuntimeError: Gloo, as an end of another rank looks from there; without a word left rank 1, 2");
  write_text(folder / "rank-1.probe.json", R"({"ended": {"after": 4, "error": "ValueError: x", "where": "train.py:7", "at": 2}})");
  EXPECT_EQ(first("", "zero").ended, "ended after 4 steps: rank 1, ValueError: x (train.py:7)");
  EXPECT_EQ(first(entry, "zero").unrecorded, "a second optimizer (SGD) took 5 steps that are not recorded");
  EXPECT_TRUE(first(entry, "zero").leaves_open);
  EXPECT_FALSE(first(entry, "lines").leaves_open);
  EXPECT_FALSE(first(R"({"what": "another", "steps": 4})", "zero").leaves_open);
  EXPECT_EQ(first(R"({"what": "another", "steps": 1})", "zero").unrecorded, "another took at least 1 step that is not recorded");
  EXPECT_EQ(first(R"({"steps": -3}, {"steps": 1e300}, 7, {"steps": "x"})", "zero").unrecorded, "");
  EXPECT_THAT(first(entry + "," + entry + "," + entry + "," + entry + "," + entry, "zero").unrecorded, testing::EndsWith("recorded, and 2 others 10 steps"));
}

/// Plain Python, without PyTorch: `script` with the probe's folder first.
std::string python_command(const std::string& script) {
  return "env PYTHONPATH=" LOCKSTEP_SOURCE_DIR "/probe/python LOCKSTEP_ENV='MISTAKE' MISTAKE=sum python3 -c \"import sys, types; "
                              "package = types.ModuleType('lockstep_probe'); package.__path__ = ['" LOCKSTEP_SOURCE_DIR "/probe/python/lockstep_probe']; "
                              "sys.modules['lockstep_probe'] = package; from lockstep_probe import heartbeat; " + script + "\"";
}

int python(const std::string& script) {
  const int status = std::system(python_command(script).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(PythonHeartbeat, IsReadAsThatOfARankOfOurs) {
  const TempFolder folder;
  const HeartbeatFile seen = HeartbeatFile::create(folder / "heartbeat", 3);
  ASSERT_EQ(python("b = heartbeat.open('" + folder / "heartbeat" + "', 1, 3); b.step(17, 'all_reduce grad')"), 0);
  EXPECT_EQ(seen.step(1), 17);
  EXPECT_EQ(seen.operation(1), "all_reduce grad");
  EXPECT_GT(seen.process(1).pid, 0);
  EXPECT_EQ(seen.process(1).space, process_space());
  EXPECT_TRUE(is_gone(seen_from_here(seen.process(1))));
  EXPECT_EQ(seen.changes(1) % 2, 0U);
  EXPECT_EQ(seen.process(0).pid, 0);
  EXPECT_EQ(seen.step(2), -1);
  EXPECT_THAT(read_text(folder / "rank-1.hello.json"), testing::AllOf(HasSubstr("\"world_size\": 3"), HasSubstr("\"MISTAKE\": \"sum\"")));
}

TEST(PythonHeartbeat, GoesOnWhereItsFileIsCutShortOrItsDescriptorBecomesAnotherFile) {
  const TempFolder folder;
  const HeartbeatFile seen = HeartbeatFile::create(folder / "heartbeat", 2);
  const std::string open = "import os; b = heartbeat.open('" + folder / "heartbeat" + "', 1, 2); ";
  ASSERT_EQ(python(open + "os.truncate('" + folder / "heartbeat" + "', 0); b.step(18, 'forward')"), 0);
  EXPECT_EQ(seen.step(1), 18);
  EXPECT_GT(seen.process(1).pid, 0);
  write_text(folder / "own", "the trainer's");
  ASSERT_EQ(python(open + "n = b._file.fileno(); f = os.open('" + folder / "own" + "', os.O_RDWR); os.dup2(f, n); b.step(19, 'forward')"), 0);
  EXPECT_EQ(read_text(folder / "own"), "the trainer's");
}

TEST(ProcessId, OfAnotherNamespaceHostOrTimeIsNoProcessHere) {
  const ProcessId self = process_here(::getpid());
  EXPECT_EQ(seen_from_here(self), self);
  EXPECT_FALSE(is_gone(self));
  EXPECT_TRUE(is_gone({self.pid, self.space, self.started + 1})) << "another process had the number";
  EXPECT_EQ(seen_from_here({self.pid, self.space + 1, self.started}).pid, -1);
  EXPECT_EQ(seen_from_here({self.pid, 0, self.started}).pid, -1) << "nobody said which namespace";
  EXPECT_FALSE(is_gone(seen_from_here({self.pid, 0, 0}))) << "nothing is known of it";
}

TEST(ProcessId, InANamespaceBelowIsThatOfItsNumberHere) {
  if (std::system("unshare --pid --fork true 2> /dev/null") != 0) GTEST_SKIP() << "this user may make no PID namespace";
  const TempFolder folder;
  const HeartbeatFile seen = HeartbeatFile::create(folder / "heartbeat", 1);
  std::FILE* inside = ::popen(("unshare --pid --fork " + python_command("heartbeat.open('" + folder / "heartbeat" + "', 0, 1); sys.stdin.read()")).c_str(), "w");
  while (seen.changes(0) == 0 || seen.changes(0) % 2 != 0) std::this_thread::yield();
  const ProcessId said = seen.process(0), here = seen_from_here(said);
  EXPECT_LT(said.pid, 10);
  EXPECT_GT(here.pid, 10);
  EXPECT_THAT(first_line("/proc/" + std::to_string(here.pid) + "/cmdline"), HasSubstr("heartbeat.open"));
  ::pclose(inside);
  EXPECT_TRUE(is_gone(here));
}

TEST(PythonHeartbeat, SaysWhatNobodyCaughtAndNeverFailsItself) {
  const TempFolder folder;
  const HeartbeatFile seen = HeartbeatFile::create(folder / "heartbeat", 1);
  EXPECT_EQ(python("heartbeat.open('" + folder / "heartbeat" + "', 0, 1); raise ValueError('no such file')") , 1);
  EXPECT_EQ(thrown_error({folder.path(), "", 0, 1, ""}), "ValueError: no such file");
  EXPECT_EQ(python("heartbeat.open('" + folder / "heartbeat" + "', 5, 6).step(1, 'x'); heartbeat.open('', 0, 1).step(1, 'x'); heartbeat.open('/nowhere/x', 0, 1).close()"), 0);
}

TEST(PythonStacks, AreReadOfTheFirstThread) {
  const char* const said =
      "Thread 0x00007f01 (most recent call first):\n  File \"/usr/lib/python3/threading.py\", line 300 in wait\n\n"
      "Current thread 0x00007f02 (most recent call first):\n  File \"/x/distributed_c10d.py\", line 12 in all_reduce\n  File \"/x/train.py\", line 7 in <module>\n";
  EXPECT_THAT(read_stacks("faulthandler", 71, said, true).frames, ElementsAre("all_reduce (distributed_c10d.py:12)", "<module> (train.py:7)"));
}

TEST(MetricsInLog, AreReadFromTables) {
  const TempFolder folder;
  write_text(folder / "m.csv", "epoch,step,loss,\"acc, top\"\n0,1,2.5,\n0,2,nan,0.25\n1,4,1.5,0.5\n");
  const auto found = metrics_in_log(folder / "m.csv");
  EXPECT_THAT(found.at("acc, top").steps, ElementsAre(2, 4));
  EXPECT_THAT(found.at("acc, top").values, ElementsAre(0.25, 0.5));
  EXPECT_EQ(found.at("loss").steps.size(), 3U);
}

TEST(MetricsInLog, AreReadFromLinesOfJson) {
  const TempFolder folder;
  write_text(folder / "m.jsonl", "{\"step\": 1, \"val\": 2, \"name\": \"x\"}\n\n{\"note\": 1}\n{\"step\": 5, \"val\": 2.5}\n{\"step\": 5, \"val\": 3}\n");
  const auto found = metrics_in_log(folder / "m.jsonl");
  EXPECT_THAT(found.at("val").steps, ElementsAre(1, 5));
  EXPECT_THAT(found.at("val").values, ElementsAre(2, 3));
  EXPECT_EQ(found.size(), 1U);
}

TEST(MetricsInLog, AreReadFromEventsOfTensorBoard) {
  const TempFolder folder;
  const std::string hex =
      "1800000000000000000000000900000000000000001a0d627261696e2e4576656e743a320000000019000000000000000000000009000000000000000010052a0c0a0a0a03766161"
      "150000003f00000000";
  const std::string later = "1a000000000000000000000009000000000000000010ac022a0c0a0a0a03766161150000403f00000000";
  std::string bytes;
  for (const std::string& part : {hex, later})
    for (std::size_t i = 0; i + 1 < part.size(); i += 2) bytes.push_back(static_cast<char>(std::stoi(part.substr(i, 2), nullptr, 16)));
  std::filesystem::create_directories(folder / "logs/v0");
  write_text(folder / "logs/v0/events.out.tfevents.1.host", bytes + "cut short");
  const auto found = metrics_in_log(folder / "logs");
  EXPECT_THAT(found.at("vaa").steps, ElementsAre(5, 300));
  EXPECT_THAT(found.at("vaa").values, ElementsAre(0.5, 0.75));
}

TEST(MetricsInLog, SayWhatIsWrongWithThem) {
  const TempFolder folder;
  const auto problem = [&](const std::string& name) -> std::string {
    try {
      metrics_in_log(folder / name);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  write_text(folder / "a.csv", "time,loss\n1,2\n");
  write_text(folder / "b.jsonl", "{\"step\": 1}\nnot json\n");
  write_text(folder / "c.jsonl", "{\"step\": 1}\n");
  EXPECT_THAT(problem("a.csv"), HasSubstr("names no column step"));
  EXPECT_THAT(problem("b.jsonl"), HasSubstr("line 2 is no JSON object"));
  EXPECT_THAT(problem("c.jsonl"), HasSubstr("holds no number by step"));
  EXPECT_THAT(problem("none.csv"), HasSubstr("No such file"));
}

TEST(ExitCodes, AreReadOfEachRankThatTorchrunNames) {
  const TempFolder folder;
  write_text(folder / "log",
             "[1]:\n  time      : x\n  rank      : 2 (local_rank: 2)\n  exitcode  : -15 (pid: 17) (SIGTERM)\nRoot Cause (first observed failure):\n[0]:\n"
             "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 16)\n");
  EXPECT_THAT(exit_codes_in(folder / "log"), ElementsAre(Pair(1, -9), Pair(2, -15)));
  EXPECT_TRUE(exit_codes_in(folder / "none").empty());
}

// Who starts the ranks, for how many there is room, and a run that is queued once more.

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

const HostIdentity kThis{"vm", "10.0.0.1", "boot pid:[1] net:[2]"};

TEST(Host, IsOneByItsBootAndNamespacesWhateverItsName) {
  EXPECT_TRUE(same_host(kThis, kThis));
  EXPECT_TRUE(same_host(kThis, {"vm.example", "10.0.0.1", kThis.machine}));
  EXPECT_TRUE(same_host(kThis, {"vm", "192.168.0.1", kThis.machine})) << "of two interfaces";
}

TEST(Host, IsAnotherWhereOnlyTheNameIsTheSame) {
  EXPECT_FALSE(same_host(kThis, {"vm", "10.0.0.1", "other pid:[1] net:[2]"})) << "two hosts of one name";
  EXPECT_FALSE(same_host(kThis, {"vm", "10.0.0.1", "boot pid:[7] net:[8]"})) << "two containers of one name";
  EXPECT_FALSE(same_host(kThis, {"vm2", "10.0.0.2", kThis.machine})) << "two machines begun from one image of memory";
}

TEST(Host, IsToldByItsNameWhereTheKernelSaysNothing) {
  EXPECT_TRUE(same_host({"vm", "10.0.0.1", ""}, {"vm", "10.0.0.2", ""}));
  EXPECT_FALSE(same_host({"vm", "10.0.0.1", ""}, {"vm2", "10.0.0.1", ""}));
  EXPECT_FALSE(same_host(kThis, {"vm", "10.0.0.1", ""}));
}

TEST(Host, IsSeveralBySaying) {
  const HostIdentity here = this_host();
  EXPECT_TRUE(same_host(here, this_host()));
  ::setenv("LOCKSTEP_HOST", "b", 1);
  const HostIdentity named = this_host();
  ::unsetenv("LOCKSTEP_HOST");
  EXPECT_EQ(named.host, "b");
  EXPECT_FALSE(same_host(here, named));
}

/// This process's host as a container's process would see it, which the kernel gives namespaces of its own.
TEST(Host, IsAnotherInAContainerOfTheSameName) {
  const HostIdentity outside = this_host();
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    const HostIdentity inside = this_host();
    ::_exit(inside.host == outside.host && !same_host(inside, outside) && same_host(inside, this_host()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the kernel gives this user no namespaces (kernel.unprivileged_userns_clone)";
  EXPECT_EQ(status, 0);
}

TEST(Identity, ChangesWithTheRankProgram) {
  const TempFolder folder;
  write_text(folder / "rank", std::string(1000000, 'a'));
  const BuildIdentity one = current_identity(folder / "rank", "d");
  EXPECT_EQ(one.build.size(), 16U);
  EXPECT_EQ(one.build, current_identity(folder / "rank", "e").build);
  write_text(folder / "rank", std::string(999999, 'a') + 'b');
  EXPECT_NE(one.build, current_identity(folder / "rank", "d").build);
  EXPECT_EQ(one.data, "d");
}

TEST(Identity, ReadsTheVersionBesideTheRankProgram) {
  const TempFolder folder;
  EXPECT_EQ(libtorch_version(folder / "rank"), "");
  write_text(folder / "rank.version", "2.13.0\n");
  EXPECT_EQ(libtorch_version(folder / "rank"), "2.13.0");
  EXPECT_EQ(commit_of_rank_program(folder / "rank"), "unknown commit");
  write_text(folder / "rank.version", "2.13.0\ncommit 0123456789ab+changes\n");
  EXPECT_EQ(libtorch_version(folder / "rank"), "2.13.0");
  EXPECT_EQ(commit_of_rank_program(folder / "rank"), "commit 0123456789ab+changes");
}

TEST(Identity, ReadsTheVersionOfAnInstalledRankProgramInItsPrefix) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "share/lockstep");
  write_text(folder / "share/lockstep/rank.version", "2.13.0\ncommit 0123456789ab\n");
  EXPECT_EQ(libtorch_version(folder / "bin/rank"), "2.13.0");
  EXPECT_EQ(commit_of_rank_program(folder / "bin/rank"), "commit 0123456789ab");
}

TEST(Identity, WorksWithoutARankProgram) {
  const BuildIdentity identity = current_identity("/nowhere/lockstep-rank", "d");
  EXPECT_FALSE(identity.build.empty());
  EXPECT_EQ(identity.libtorch, "");
  EXPECT_FALSE(identity.isa.empty());
}

TEST(Identity, KnowsTheVariablesThatChooseInstructions) {
  const std::string plain = instruction_sets();
  ASSERT_EQ(::setenv("ATEN_CPU_CAPABILITY", "default", 1), 0);
  EXPECT_EQ(instruction_sets(), plain + " ATEN_CPU_CAPABILITY=default");
  ::unsetenv("ATEN_CPU_CAPABILITY");
}

TEST(RankProgramPath, IsBesideThisProgramUnlessNamed) {
  ::unsetenv("LOCKSTEP_RANK");
  EXPECT_EQ(rank_program_path(), std::string(LOCKSTEP_BINARY_DIR) + "/bin/lockstep-rank");
  ASSERT_EQ(::setenv("LOCKSTEP_RANK", "/elsewhere/rank", 1), 0);
  EXPECT_EQ(rank_program_path(), "/elsewhere/rank");
  ::unsetenv("LOCKSTEP_RANK");
}

using testing::AllOf;
using testing::IsEmpty;
using testing::StartsWith;

constexpr const char* kWhole = LOCKSTEP_BINARY_DIR "/bin/fake_rank";

/// Its libtorch_planted.so lies where the loader does not look by itself.
constexpr const char* kLacking = LOCKSTEP_BINARY_DIR "/bin/lacking_library";

class Libraries : public testing::Test {
 protected:
  void name_libtorch(const std::string& folder) { ::setenv("LOCKSTEP_LIBTORCH", folder.c_str(), 1); }
  Libraries() { ::unsetenv("LOCKSTEP_LIBTORCH"); }
  ~Libraries() override { ::unsetenv("LOCKSTEP_LIBTORCH"); }
};

TEST_F(Libraries, OfAProgramThatStartsAreAllThere) {
  EXPECT_THAT(missing_libraries(kWhole), IsEmpty());
  EXPECT_EQ(library_problem(kWhole), "");
  EXPECT_THAT(missing_libraries("/nowhere/lockstep-rank"), IsEmpty()) << "that is another check's matter";
}

TEST_F(Libraries, ThatTheLoaderDoesNotFindAreNamedWithWhatToDo) {
  EXPECT_THAT(missing_libraries(kLacking), ElementsAre("libtorch_planted.so"));
  EXPECT_THAT(library_problem(kLacking),
              AllOf(StartsWith(std::string(kLacking) + ": LibTorch 2.13 not found (libtorch_planted.so)"),
                    HasSubstr("pip install torch==2.13.0"), HasSubstr("set LOCKSTEP_LIBTORCH to the folder"),
                    HasSubstr("ln -s FOLDER " LOCKSTEP_BINARY_DIR "/lib/lockstep/libtorch")));
  try {
    const LocalLauncher parent(kLacking);
    FAIL() << "started";
  } catch (const MachineError& error) {
    EXPECT_EQ(error.what(), library_problem(kLacking));
  }
}

TEST_F(Libraries, AreFoundInTheNamedFolder) {
  name_libtorch(LOCKSTEP_BINARY_DIR "/planted");
  EXPECT_EQ(library_problem(kLacking), "");
  name_libtorch("/nowhere");
  EXPECT_THAT(library_problem(kLacking), HasSubstr("LOCKSTEP_LIBTORCH=/nowhere does not hold it"));
}

TEST_F(Libraries, OfTheNamedFolderComeBeforeOthers) {
  name_libtorch("/torch/lib");
  ASSERT_EQ(::setenv("LD_LIBRARY_PATH", "/others", 1), 0);
  EXPECT_THAT(rank_environment(), Contains("LD_LIBRARY_PATH=/torch/lib:/others"));
  EXPECT_THAT(rank_environment(), testing::Not(Contains("LD_LIBRARY_PATH=/others")));
  ::unsetenv("LD_LIBRARY_PATH");
  EXPECT_THAT(rank_environment(), Contains("LD_LIBRARY_PATH=/torch/lib"));
}

TEST_F(Libraries, OfLibTorchAreKnownByTheirFolder) {
  EXPECT_EQ(libtorch_folder(kWhole), "") << "it needs none";
  EXPECT_EQ(libtorch_folder(kLacking), "");
  name_libtorch(LOCKSTEP_BINARY_DIR "/planted");
  EXPECT_EQ(libtorch_folder(kLacking), LOCKSTEP_BINARY_DIR "/planted");
}

TEST(LibtorchFlavour, IsThatOfTheBuild) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "lib");
  EXPECT_EQ(libtorch_flavour(folder / "lib"), "CPU build");
  write_text(folder / "version.py", "from typing import Optional\n__all__ = ['__version__']\n__version__ = '2.13.0+cpu'\ndebug = False\n");
  EXPECT_EQ(libtorch_flavour(folder / "lib"), "CPU build 2.13.0+cpu");
  write_text(folder / "build-version", "2.13.0+cu130\n");
  write_text(folder / "lib/libtorch_cuda.so", "");
  EXPECT_EQ(libtorch_flavour(folder / "lib"), "CUDA build 2.13.0+cu130");
}

TEST(Starter, TakesNothingButWordsOfAShell) {
  EXPECT_THAT(plain_words("torchrun --nproc-per-node 3 'my train.py' \"a b\" c\\ d"), ElementsAre("torchrun", "--nproc-per-node", "3", "my train.py", "a b", "c d"));
  EXPECT_THAT(plain_words("a ''"), ElementsAre("a", ""));
  for (const char* shell : {"a; b", "a | b", "a && b", "a > b", "$A b", "a *.py", "a 'b", "(a)", "a `b`", "~/a", "{1,2}"})
    EXPECT_THAT(plain_words(shell), testing::IsEmpty()) << shell;
}

TEST(Starter, TakesAssignmentsInFrontOfACommand) {
  std::vector<std::string> words = {"env", "A=1", "B=x=y", "python", "C=2"};
  EXPECT_THAT(take_assignments(words), ElementsAre("A=1", "B=x=y"));
  EXPECT_THAT(words, ElementsAre("python", "C=2"));
  words = {"./a=b/run"};
  EXPECT_THAT(take_assignments(words), testing::IsEmpty());
}

TEST(Starter, FindsThePythonOfAScript) {
  const TempFolder folder;
  const std::string python = folder / "python3.11";
  write_text(python, "");
  write_text(folder / "torchrun", "#!" + python + "\nimport sys\n");
  write_text(folder / "long", "#!/bin/sh\n'''exec' \"" + python + "\" \"$0\" \"$@\"\n");
  write_text(folder / "shell", "#!/bin/bash\n");
  for (const auto& program : std::filesystem::directory_iterator(folder.path()))
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  EXPECT_EQ(python_of({folder / "torchrun", "train.py"}), python);
  EXPECT_EQ(python_of({folder / "long"}), python);
  EXPECT_EQ(python_of({python, "-m", "x"}), python);
  EXPECT_EQ(python_of({folder / "shell"}), "");
  write_text(folder / "train.py", "");
  EXPECT_EQ(script_of({"torchrun", "train.py", "--batch", "3"}, folder.path()), folder / "train.py");
  EXPECT_EQ(script_of({"torchrun", "-m", "package"}, folder.path()), "");
}

}  // namespace
}  // namespace lockstep
