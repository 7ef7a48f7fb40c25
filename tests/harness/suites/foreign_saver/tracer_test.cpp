#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/program.h"
#include "harness/suites/foreign_saver/tracer.h"
#include "tests/support/said.h"
#include "tests/support/suite_run.h"
#include "tests/support/temp_folder.h"

// What the tracer sees of programs, and what it does to them.

namespace lockstep::program {
namespace {

const std::string kSaver = PROGRAM_SAVER;
const std::string kStaticSaver = PROGRAM_SAVER_STATIC;

class SavingFolder {
 public:
  SavingFolder() { std::filesystem::create_directories(out()); }
  std::string out() const { return root_ + "/out"; }
  std::string log() const { return root_ + "/printed.log"; }
  std::string root() const { return root_; }
  std::string text(const std::string& name) const { return read_text(out() + "/" + name); }
  TraceOptions options() const {
    TraceOptions options;
    options.watched = out();
    options.deadline_s = 20;
    return options;
  }
  TracedRun traced(const std::string& command, const Intervention& intervention = {}) const {
    Tracer tracer(log());
    TraceOptions wanted = options();
    wanted.intervention = intervention;
    wanted.whole = true;
    return tracer.run(command, wanted);
  }
  /// The saver writes step 2.
  std::string save(const std::string& way, const std::string& saver = kSaver) const {
    return saver + " " + way + " save " + out() + " 2";
  }
  TracedRun saved(const std::string& way, const Intervention& intervention = {}) const {
    return traced("exec " + save(way), intervention);
  }

 private:
  TempFolder folder_;
  std::string root_ = std::filesystem::canonical(folder_.path()).string();
};

class Traced : public testing::Test, protected SavingFolder {};

/// "openat state", "write state": calls with their names, in their order.
std::vector<std::string> calls_of(const TracedRun& run) {
  std::vector<std::string> calls;
  for (const Operation& operation : run.operations)
    calls.push_back(operation.call + " " + operation.path + (operation.to.empty() ? "" : ">" + operation.to));
  return calls;
}

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Where ptrace is refused, every test of this program says so.
class PtraceIsAllowed : public testing::Environment {
 public:
  void SetUp() override {
    if (const std::string problem = tracing_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }
};

const testing::Environment* const kPtrace = testing::AddGlobalTestEnvironment(new PtraceIsAllowed);

TEST_F(Traced, SeesStreamsVectorsMappingsThreadsForksAndPrograms) {
  const TracedRun run = saved("every_way");
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_THAT(calls_of(run),
              ElementsAre("openat stdio", "write stdio", "close stdio", "openat vectors", "pwritev vectors",
                          "ftruncate vectors", "mmap vectors", "msync vectors", "close vectors", "openat thread",
                          "write thread", "write thread", "write thread", "close thread", "openat child", "write child",
                          "write child", "write child", "close child", "openat executed", "close executed", "write executed",
                          "mkdir folder", "rmdir folder", "link stdio>linked", "symlink >symbolic", "unlink linked",
                          "rename thread>renamed"));
  EXPECT_THAT(run.notes, Contains(HasSubstr("mapped shared")));
  const Operation& vectors = run.operations[4];
  EXPECT_EQ(vectors.offset, 4);
  EXPECT_EQ(vectors.bytes, 6);
  EXPECT_EQ(vectors.data, "onetwo");
  EXPECT_EQ(vectors.result, 6);
}

TEST_F(Traced, NumbersOperationsByProcessThreadsIncluded) {
  const TracedRun run = saved("every_way");
  for (const Operation& operation : run.operations) {
    const std::string expected = operation.path == "child" ? "0.1" : operation.path == "executed" ? "0.2" : "0";
    EXPECT_EQ(operation.process, expected) << operation.path;
  }
  EXPECT_EQ(run.operations.back().number, static_cast<int64_t>(run.operations.size()));
  EXPECT_EQ(run.operations.back().index, 20) << "those of its children are their own";
}

TEST_F(Traced, SeesAStaticProgramAlike) {
  const SavingFolder other;
  EXPECT_EQ(calls_of(traced(save("every_way"))), calls_of(other.traced(other.save("every_way", kStaticSaver))));
}

TEST_F(Traced, SeesAShellsRedirections) {
  const TracedRun run = traced("cd " + out() + " && echo a > one && echo b >> one && mv one two");
  EXPECT_EQ(text("two"), "a\nb\n");
  // A shell opens a file, moves the descriptor to standard output and closes the first one.
  ASSERT_EQ(run.operations.size(), 7U) << testing::PrintToString(calls_of(run));
  EXPECT_EQ(run.operations[5].offset, 2) << "it was appended";
  EXPECT_EQ(run.operations[6].to, "two");
}

TEST_F(Traced, CountsNothingOutsideTheFolderAndNoReading) {
  write_text(out() + "/there", "x");
  const TracedRun run = traced("cat " + out() + "/there > " + root() + "/elsewhere");
  EXPECT_THAT(run.operations, IsEmpty());
  EXPECT_EQ(run.exit_status, 0);
}

TEST_F(Traced, KillsBeforeTheOperationTakesPlace) {
  const TracedRun run = saved("in_place", {InjectedFault::kill, "0", 2, 0, ""});
  EXPECT_TRUE(run.acted);
  EXPECT_EQ(run.exit_status, 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(out() + "/state"));
  EXPECT_EQ(text("state"), "");
}

TEST_F(Traced, FailsOneOperationWithAnError) {
  const TracedRun run = saved("in_place", {InjectedFault::fail, "0", 3, ENOSPC, ""});
  EXPECT_EQ(run.exit_status, 2) << "the saver says so";
  EXPECT_EQ(run.operations[2].result, -ENOSPC);
  EXPECT_EQ(text("state").size(), 701U);
}

TEST_F(Traced, ClosesTheFileWhoseCloseFails) {
  const TracedRun run = saved("in_place", {InjectedFault::fail, "0", 6, EIO, ""});
  EXPECT_EQ(run.operations.back().call, "close");
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_EQ(text("state").size(), 3 * 701U);
}

TEST_F(Traced, KeepsTheDiskFullFromAnOperationOn) {
  const std::string in_place = save("in_place");
  const TracedRun run = traced(in_place + "; " + in_place, {InjectedFault::fail_space, "0.1", 3, 0, ""});
  int refused = 0;
  for (const Operation& operation : run.operations) {
    if (operation.call == "write" && operation.number >= run.acted_at) {
      EXPECT_EQ(operation.result, -ENOSPC);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 2) << "the first save's second write, the second save's first";
  EXPECT_EQ(text("state").size(), 0U) << "the second save emptied what the first had begun";
}

TEST_F(Traced, WritesHalfAndTheSaverWritesTheRest) {
  const TracedRun run = saved("in_place", {InjectedFault::shorten, "0", 2, 0, ""});
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(run.operations[1].result, 350);
  EXPECT_EQ(text("state").size(), 3 * 701U);
  EXPECT_EQ(run.operations.size(), 7U) << "one write more than it planned";
}

TEST_F(Traced, HoldsAWriterUntilAnotherHasEnded) {
  const std::string at_step = kSaver + " in_place save " + out() + " ";
  const TracedRun run = traced(at_step + "2 & " + at_step + "3; wait", {InjectedFault::hold, "0.1", 3, 0, "0.2"});
  EXPECT_TRUE(run.acted);
  EXPECT_FALSE(run.stuck);
  int64_t rivals_last = 0;
  for (const Operation& operation : run.operations) {
    if (operation.process == "0.2") rivals_last = operation.number;
  }
  EXPECT_EQ(run.released_at, rivals_last + 1);
  std::string order;
  for (const Operation& operation : run.operations) order += operation.process.back();
  EXPECT_EQ(order.substr(0, 2) == "11" || order.substr(0, 3) == "121" || order.substr(0, 3) == "211", true) << order;
  EXPECT_EQ(text("state").find("step 3"), 0U) << "the rival emptied the file and wrote its first block last";
}

TEST_F(Traced, LetsAHeldWriterGoOnWhereItsRivalWaitsForIt) {
  const std::string at_step = kSaver + " in_place save " + out() + " ";
  const std::string fifo = root() + "/fifo";
  const TracedRun run = traced(
      "mkfifo " + fifo + "; { " + at_step + "2; echo > " + fifo + "; } & { read x < " + fifo + "; " + at_step + "3; }; wait",
      {InjectedFault::hold, "0.2.1", 1, 0, "0.3"});
  EXPECT_TRUE(run.acted) << testing::PrintToString(calls_of(run));
  EXPECT_TRUE(run.stuck);
  EXPECT_FALSE(run.hung);
}

TEST_F(Traced, EndsWhatDoesNotEndByItsDeadline) {
  Tracer tracer(log());
  TraceOptions impatient = options();
  impatient.deadline_s = 0.2;
  const TracedRun run = tracer.run("mkfifo " + root() + "/f; read x < " + root() + "/f", impatient);
  EXPECT_TRUE(run.hung);
}

TEST_F(Traced, RunsManyCommandsOfOneServer) {
  Tracer tracer(log());
  const std::string server = "printf 'ready\\n'; while read a b c d; do \"$a\" \"$b\" save \"$c\" \"$d\"; done";
  ASSERT_EQ(tracer.start_server(server, 20), "");
  for (int step = 1; step < 4; ++step) {
    const TracedRun run = tracer.run_line(kSaver + " in_place " + out() + " " + std::to_string(step), options());
    EXPECT_EQ(run.exit_status, 0);
    EXPECT_EQ(run.operations.size(), 6U);
    EXPECT_EQ(run.operations.front().process, "0");
    EXPECT_THAT(text("state"), HasSubstr("step " + std::to_string(step)));
  }
  EXPECT_TRUE(tracer.has_server());
}

TEST_F(Traced, SaysThatAServerEndedEarly) {
  Tracer tracer(log());
  EXPECT_THAT(tracer.start_server("echo no such thing >&2", 20), HasSubstr("ended before"));
  EXPECT_THAT(tracer.printed(), HasSubstr("no such thing"));
}

// The same operations in the same order as strace sees.

const char* const kCalls =
    "open,openat,creat,write,pwrite64,writev,pwritev,ftruncate,truncate,fsync,fdatasync,rename,renameat,renameat2,link,"
    "symlink,unlink,unlinkat,mkdir,rmdir,msync";

/// "write state" of each line of strace's that changes something below `out`.
std::vector<std::string> by_strace(const std::string& command, const SavingFolder& folder) {
  const std::string log = folder.root() + "/strace.log";
  const std::string line = "strace -f -y -s 0 -o " + log + " -e trace=" + kCalls + " " + command;
  EXPECT_EQ(std::system(line.c_str()), 0) << line;
  std::ifstream stream(log);
  std::vector<std::string> calls;
  const std::regex shape(R"(^\d+ +(\w+)\((.*))");
  for (std::string text; std::getline(stream, text);) {
    std::smatch parts;
    if (!std::regex_search(text, parts, shape)) continue;
    const std::string call = parts[1], rest = parts[2];
    const bool opens = call == "openat" || call == "open";
    if (opens && rest.find("O_WRONLY") == std::string::npos && rest.find("O_RDWR") == std::string::npos &&
        rest.find("O_CREAT") == std::string::npos)
      continue;
    const std::size_t at = rest.find(folder.out() + "/");
    if (at == std::string::npos) continue;
    const std::size_t begin = at + folder.out().size() + 1;
    calls.push_back(call + " " + rest.substr(begin, rest.find_first_of("\">", begin) - begin));
  }
  return calls;
}

std::vector<std::string> by_tracer(const std::string& command, const SavingFolder& folder) {
  std::vector<std::string> calls;
  for (const Operation& operation : folder.traced(command).operations) {
    // strace shows no file behind an address, and closes of files that were only read too.
    if (operation.call == "close" || operation.call == "mmap" || operation.call == "msync") continue;
    calls.push_back(operation.call + " " + (operation.path.empty() ? operation.to : operation.path));
  }
  return calls;
}

class Strace : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("strace -V > /dev/null 2>&1") != 0) GTEST_SKIP() << "strace is not installed";
    if (std::system("strace -o /dev/null true > /dev/null 2>&1") != 0) GTEST_SKIP() << "strace may not trace here";
  }
  static void expect_same(const std::string& command) {
    const SavingFolder a, b;
    const auto filled = [&](const SavingFolder& folder) {
      return std::regex_replace(command, std::regex("OUT"), folder.out());
    };
    const std::vector<std::string> ours = by_tracer(filled(a), a), theirs = by_strace(filled(b), b);
    EXPECT_EQ(ours, theirs);
    EXPECT_GE(ours.size(), 3U);
  }
};

TEST_F(Strace, AgreesOnAProgramThatWritesInEveryWay) { expect_same(kSaver + " every_way save OUT 2"); }

TEST_F(Strace, AgreesOnAStaticProgram) { expect_same(kStaticSaver + " every_way save OUT 2"); }

TEST_F(Strace, AgreesOnPythonsFiles) {
  if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not installed";
  expect_same(
      "python3 -B -c 'import os; f=open(\"OUT/a\",\"wb\"); f.write(b\"x\"*100000); f.flush(); os.fsync(f.fileno()); f.close(); "
      "os.replace(\"OUT/a\",\"OUT/b\"); open(\"OUT/c\",\"w\").write(\"c\"); os.remove(\"OUT/c\")'");
}

// The suite of programs as a whole: a correct saver is silent, each classic mistake is found, and a finding's trial
// finds it again.

std::string config_of(const std::string& save, const std::string& more = "") {
  return "name: tried\nlaboratory: program\nprogram:\n  setup: " + kSaver + " well save {out} 1\n  save: '" + save +
         "'\n  resume: " + kSaver + " well resume {out} {resume}\n  deadline_s: 20\n" + more +
         (more.find("power_loss") == std::string::npos ? "  power_loss: 20\n" : "");
}

SuiteResult run_config(const std::string& text, const std::string& only = "") {
  return support::run_tried(program_suite(), text, only);
}

std::set<std::string> faults_of(const SuiteResult& result, const std::string& failure) {
  std::set<std::string> outcomes;
  for (const SuiteCount& count : result.table) {
    if (count.failure == failure && count.verdict == CaseVerdict::fault) outcomes.insert(count.outcome);
  }
  return outcomes;
}

/// The first finding of a failure, and that its trial alone finds the same again.
void expect_replayed(const std::string& text, const SuiteResult& result, const std::string& failure) {
  for (const SuiteFinding& finding : result.findings) {
    if (finding.failure != failure) continue;
    const SuiteResult again = run_config(text, finding.trial);
    ASSERT_EQ(again.trials, 1);
    EXPECT_EQ(again.faults, 1) << finding.trial;
    EXPECT_EQ(again.table.front().outcome, finding.outcome);
    return;
  }
  FAIL() << "nothing was found of " << failure;
}

TEST(ProgramSuite, IsSilentOnACorrectSaver) {
  const SuiteResult result = run_config(config_of(kSaver + " well save {out} 2", "  power_loss: 100\n"));
  EXPECT_EQ(result.faults, 0) << (result.findings.empty() ? "" : result.findings.front().sentence);
  EXPECT_EQ(result.undecided, 0);
  EXPECT_EQ(result.trials, 53 + 99) << "failures and disks";
  EXPECT_THAT(result.facts, Contains(testing::Pair("power lost", "99 of 99 disks")));
  EXPECT_THAT(result.facts, Contains(testing::Pair("killed", "9 of 9 operations")));
}

/// The same saver twice at the same time.
std::string two_of(const std::string& way) {
  const std::string save = kSaver + " " + way + " save {out} 2 ";
  return save + "0 & a=$!; " + save + "1; s=$?; wait $a && exit $s";
}

struct Mistake {
  std::string name, save, more, failure;
  testing::Matcher<std::set<std::string>> outcomes;
  testing::Matcher<SuiteFinding> finding = testing::_;  ///< the first of that failure
};

class ClassicMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(ClassicMistakes, AreFoundAndByTheirTrialAloneAgain) {
  const Mistake& mistake = GetParam();
  const std::string text = config_of(mistake.save, mistake.more);
  const SuiteResult result = run_config(text);
  EXPECT_THAT(faults_of(result, mistake.failure), mistake.outcomes);
  const auto found = std::ranges::find(result.findings, mistake.failure, &SuiteFinding::failure);
  ASSERT_NE(found, result.findings.end());
  EXPECT_THAT(*found, mistake.finding);
  expect_replayed(text, result, mistake.failure);
}

const std::string kHeld = "held until another has run";
const std::string kThroughAFolder =
    "mkdir {out}/saving && echo two > {out}/saving/state && mv {out}/saving/state {out}/state && rmdir {out}/saving";

INSTANTIATE_TEST_SUITE_P(
    Savers, ClassicMistakes,
    testing::Values(
        Mistake{"overwrite_in_place", kSaver + " in_place save {out} 2", "", "killed", Contains("silent")},
        Mistake{"rename_before_the_data_is_written", kSaver + " renamed_early save {out} 2", "  failures: [kill]\n",
                "killed", Contains("silent")},
        Mistake{"deletion_before_the_rename", kSaver + " after_delete save {out} 2", "  failures: [kill, EIO]\n",
                "killed", ElementsAre("torn"), testing::Field(&SuiteFinding::sentence, HasSubstr("no checkpoint"))},
        Mistake{"errors_unchecked", kSaver + " unchecked save {out} 2", "  failures: [ENOSPC]\n", "fails with ENOSPC",
                ElementsAre("lost work", "silent")},
        Mistake{"shared_temporary_name", two_of("fixed_name"), "  failures: [hold]\n  writers: 2\n", kHeld,
                Contains("save failed"),
                testing::Field(&SuiteFinding::timeline, Contains(testing::Field(&TimelineStep::mark, "goes on")))},
        Mistake{"two_in_place", two_of("in_place"), "  failures: [hold]\n", kHeld, Contains("mixed")},
        Mistake{"killed_save_in_the_way", kThroughAFolder, "  failures: [kill_all]\n  power_loss: 0\n", "all killed",
                ElementsAre("save failed"),
                testing::Field(&SuiteFinding::sentence, HasSubstr("Then the same save ran again"))}),
    [](const auto& info) { return info.param.name; });

TEST(ProgramSuite, FindsWritersThatDisturbEachOtherByThemselves) {
  // Two appends to one name: whole only if the second one begins when the first has ended. The resumption refuses the other order of lines.
  const std::string save = "(echo a >> {out}/state; for i in 1 2 3; do sleep 0.05; done; echo b >> {out}/state) & "
                           "(sleep 0.1; echo c >> {out}/state); wait";
  const std::string text = "name: tried\nsuite: program\nprogram:\n  save: '" + save + "'\n  resume: 'case $(head -2 {out}/state | tail -1) in c) echo torn; exit 3;; esac; cp {out}/state {resume}'\n"
                           "  failures: [EDQUOT]\n  points: 1\n  power_loss: 0\n";
  const SuiteResult result = run_config(text);
  EXPECT_THAT(faults_of(result, "none"), Contains("lost work"));
  EXPECT_EQ(result.findings.front().trial, "none@0");
  EXPECT_THAT(result.findings.front().sentence, HasSubstr("Nothing fails, and 2 writers save together"));
}

TEST(ProgramSuite, IsSilentWhereTwoProcessesSaveWell) {
  const SuiteResult result = run_config(config_of(two_of("well"), "  failures: [hold]\n"));
  EXPECT_EQ(result.faults, 0) << (result.findings.empty() ? "" : result.findings.front().sentence);
  EXPECT_GT(result.trials, 10);
}

TEST(ProgramSuite, SaysWhatItCannotSee) {
  EXPECT_THAT(run_config(config_of(kSaver + " well save {out} 2", "  failures: [kill]\n")).notes,
              Contains(HasSubstr("power loss")));
}

void expect_config_error(const std::string& text, const std::string& says) {
  EXPECT_THAT(support::thrown_by([&] { run_config(text); }), HasSubstr(says));
}

TEST(ProgramSuite, RefusesAConfigWithThePlaceOfWhatIsWrong) {
  expect_config_error("name: x\nlaboratory: program\nprogram: {resume: r}\n", "tried.yaml:2:1: program.save is missing");
  expect_config_error(config_of("true"), "tried.yaml:5:3: program.save lacks the placeholder {out}");
  expect_config_error(config_of("true {out}", "  failures: [kil]\n"), "did you mean kill?");
  expect_config_error(config_of("true {out}", "  failure: [kill]\n"), "program.failure");
}

TEST(ProgramSuite, RefusesASaverThatFailsByItself) {
  expect_config_error(config_of("false {out}"), "ended with status 1 without a failure");
  expect_config_error(config_of("true {out}"), "wrote nothing below {out}");
  expect_config_error(config_of(kSaver + " well save {out} 2", "  writers: 2\n"), "2 writers expected, 1 seen");
}

TEST(ProgramSuite, FindsASaveThatChangesByItself) {
  const SuiteResult result = run_config(config_of("echo $$ > {out}/state"));
  EXPECT_EQ(result.trials, 1);
  EXPECT_THAT(faults_of(result, "none"), testing::ElementsAre("unsteady"));
}

TEST(ProgramSuite, CountsTheOperationsOfTheTrialsThatRan) {
  const SuiteResult result = run_config(config_of(kSaver + " well save {out} 2"), "EIO@0:3");
  EXPECT_THAT(result.facts, Contains(testing::Pair("fails with EIO", "1 of 9 operations")));
  EXPECT_THAT(result.facts, Contains(testing::Pair("killed", "0 of 9 operations")));
  EXPECT_THAT(result.facts, Contains(testing::Pair("power lost", "0 of 99 disks")));
}

TEST(ProgramSuite, FindsNoSpaceAtTheOpeningOfAFileThatStands) {
  const SuiteResult result = run_config(config_of("echo two > {out}/state || true"), "ENOSPC@0:1");
  EXPECT_THAT(faults_of(result, "fails with ENOSPC"), testing::ElementsAre("lost work"));
}

std::set<std::string> lost_by_power(const SuiteResult& result) {
  std::set<std::string> found;
  for (const SuiteCount& count : result.table) {
    if (count.failure.starts_with("power lost") && count.verdict != CaseVerdict::good) found.insert(count.outcome);
  }
  return found;
}

/// The words of the first disk that a power loss leaves wrong; its trial alone finds it again.
std::string replayed_power_loss(const std::string& way, const testing::Matcher<std::set<std::string>>& outcomes) {
  const std::string text = config_of(kSaver + " " + way + " save {out} 2", "  failures: [kill]\n");
  const SuiteResult result = run_config(text);
  EXPECT_THAT(lost_by_power(result), outcomes);
  const SuiteFinding& finding =
      *std::ranges::find_if(result.findings, [](const SuiteFinding& each) { return each.failure.starts_with("power lost"); });
  expect_replayed(text, result, finding.failure);
  return finding.sentence;
}

TEST(ProgramSuite, FindsARenameBeforeTheDataIsSynced) {
  EXPECT_THAT(replayed_power_loss("unsynced", Contains("silent")),
              testing::AllOf(HasSubstr("ordered journal"), HasSubstr("nothing orders the two; an fsync of .state.")));
}

TEST(ProgramSuite, FindsAFolderThatIsNeverSynced) {
  EXPECT_THAT(replayed_power_loss("no_folder_sync", ElementsAre("lost work")),
              HasSubstr("an fsync of the folder . before success is reported would"));
}

TEST(ProgramSuite, TakesASyncOfTheWholeFileSystemForOneOfEachFile) {
  const std::string save = "echo two > {out}/new && sync -f {out}/.. && mv {out}/new {out}/state && sync -f {out}/..";
  EXPECT_THAT(lost_by_power(run_config(config_of(save, "  failures: [kill_all]\n"))), testing::IsEmpty());
}

TEST(ProgramSuite, FollowsCopiesAndFilesWithoutAName) {
  const SuiteResult result = run_config(config_of(kSaver + " new_calls save {out} 2", "  failures: [kill]\n"));
  EXPECT_THAT(lost_by_power(result), testing::IsEmpty()) << result.findings.front().sentence;
  EXPECT_EQ(result.faults, 0);
  EXPECT_GT(result.trials, 15);
}

TEST(ProgramSuite, DoesNotJudgeAPowerLossWhereItDoesNotSeeWhatIsWritten) {
  const SuiteResult result = run_config(config_of(kSaver + " mapped save {out} 2", "  failures: [kill]\n"));
  EXPECT_THAT(lost_by_power(result), testing::ElementsAre("not judged"));
  EXPECT_THAT(result.findings.front().sentence, HasSubstr("mapped shared for writing"));
  const SuiteResult elsewhere = run_config(config_of("echo two > {out}/../new && mv {out}/../new {out}/state", "  failures: [kill]\n"));
  EXPECT_THAT(lost_by_power(elsewhere), testing::ElementsAre("not judged"));
}

TEST(ProgramSuite, RunsTheSaveAgainWhereItWritesItsFoldersPath) {
  // The pointer holds an absolute path: a disk that is put into another slot's folder would point to the wrong one.
  const std::string save = kSaver + " well save {out} 2 && echo {out}/state > {out}/at.new && sync {out}/at.new && mv {out}/at.new {out}/at && sync {out}";
  const std::string text = "name: tried\nlaboratory: program\nprogram:\n  setup: '" + kSaver + " well save {out} 1 && echo {out}/state > {out}/at'\n" +
                           "  save: '" + save + "'\n  resume: 'cp $(cat {out}/at) {resume}'\n  failures: [kill]\n";
  EXPECT_EQ(run_config(text).faults, 0);
}

TEST(ProgramSuite, TriesASaverOfPyTorchByTheServerOfThePackage) {
  const std::string python = LOCKSTEP_PYTHON;
  if (python.empty()) GTEST_SKIP() << "no Python that has this LibTorch's torch package: set LOCKSTEP_PYTHON";
  const std::string folder = LOCKSTEP_SOURCE_DIR "/configs/savers";
  const auto tried = [&](const std::string& saver) {
    return run_config("name: tried\nsuite: program\nprogram:\n  server: '" + python + " -B " + folder + "/serve.py " + saver +
                      "'\n  setup: setup {out}\n  save: save {out}\n  resume: resume {out} {resume}\n  failures: [kill]\n  power_loss: 12\n");
  };
  EXPECT_EQ(tried(folder + "/torch_save.py").faults, 0);
  const TempFolder own;
  const std::string in_place = own.path() + "/in_place.py";
  std::string text = read_file(folder + "/torch_save.py").text;
  const std::size_t at = text.find("    temporary ="), end = text.find("def load(");
  std::ofstream(in_place) << text.replace(at, end - at, "    torch.save(state, path)\n\n\n");
  EXPECT_THAT(faults_of(tried(in_place), "killed"), testing::ElementsAre("torn"));
}

TEST(ProgramSuite, IsAnotherOneWhenAScriptThatItNamesChanges) {
  const TempFolder folder;
  const std::string script = folder.path() + "/saver.sh";
  const auto identity = [&] { return support::read_tried(program_suite(), config_of("sh " + script + " {out}")).suite->identity(); };
  write_text(script, "one");
  const std::string before = identity();
  write_text(script, "two");
  EXPECT_NE(identity(), before);
}

TEST(FilledIn, KnowsTheFolderOfTheConfig) {
  EXPECT_EQ(filled_in("a {config}/b {out} {resume}", {"o", "r", "the folder"}, true), "a 'the folder'/b o r");
  EXPECT_EQ(filled_in("a \"{config}/b\" '{out}'", {"{resume}", "r", "the folder"}, true), "a \"the folder/b\" '{resume}'");
  EXPECT_EQ(filled_in("a {config}/b", {"o", "r", "the folder"}, false), "a the folder/b");
}

TEST(ProgramSuite, TakesTheUsersCheck) {
  const std::string text = "name: tried\nlaboratory: program\nprogram:\n  save: 'echo one > {out}/a && echo two > {out}/b'\n"
                           "  check: 'test -e {out}/b || ! test -e {out}/a'\n  failures: [kill]\n";
  const SuiteResult result = run_config(text);
  EXPECT_THAT(faults_of(result, "killed"), testing::ElementsAre("torn"));
}

}  // namespace
}  // namespace lockstep::program
