// What lockstep and the ranks of a command tell each other: where the probe is, heartbeats from Python, and what ranks leave.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "harness/base/errors.h"
#include "harness/run/launchers/command/launcher.h"
#include "harness/run/probe.h"
#include "harness/run/process_state.h"
#include "harness/run/watch.h"
#include "tests/support/temp_folder.h"

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
  ASSERT_EQ(python("b = heartbeat.open('" + folder / "heartbeat" + "', 1, 3); b.step(17, 'all_reduce grad'); b.show(0.25)"), 0);
  EXPECT_EQ(seen.step(1), 17);
  EXPECT_EQ(seen.operation(1), "all_reduce grad");
  EXPECT_EQ(seen.shown(1), 0.25);
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

}  // namespace
}  // namespace lockstep
