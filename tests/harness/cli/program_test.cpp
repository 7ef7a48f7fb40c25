#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "tests/support/program.h"
#include "tests/support/said.h"
#include "tests/support/suite_config.h"

// The built program, as a user meets it: exit codes, what goes where, and Ctrl-C. Its ranks only pretend.

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kMatrix = R"(# Is this program fit to be used?
name: tiny
trainer: energy
data: {source: synthetic}
steps: 6
seeds: 0
question: mechanism
ranks: real
certify_steps: 0
forced_steps: []
eval_every: 0
timeout_s: 0.2
reference: {layout: 1x6}
axes: {layout: [2x3, 3x2]}
)";

class LockstepProgram : public testing::Test {
 protected:
  LockstepProgram() { write_text(folder_ / "tiny.yaml", kMatrix); }
  std::unique_ptr<Program> start(std::vector<std::string> words, const std::string& ranks = "",
                                 const std::string& rank_program = LOCKSTEP_BINARY_DIR "/bin/fake_rank") {
    if (words.empty() || !words[0].starts_with("/")) words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    std::vector<std::pair<std::string, std::string>> environment = {
        {"LOCKSTEP_RANK", rank_program},
        {"LOCKSTEP_DATA", folder_ / "no data"},
        {"GITHUB_STEP_SUMMARY", folder_ / "step_summary.md"},
        {"FAKE_RANKS", ranks}};
    return std::make_unique<Program>(words, folder_.path(), environment);
  }
  ProgramEnd run(const std::vector<std::string>& words, const std::string& ranks = "") {
    return start(words, ranks)->end();
  }
  /// A script of bash, to which "$0" is lockstep.
  ProgramEnd shell(const std::string& script) {
    return start({"/bin/bash", "-c", script, LOCKSTEP_BINARY_DIR "/bin/lockstep"})->end();
  }
  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }
  void fifo(const std::string& name) { ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0); }
  void change_matrix(const std::string& from, const std::string& to) {
    std::string text = kMatrix;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    write_text(folder_ / "tiny.yaml", text.replace(at, from.size(), to));
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  const TempFolder folder_;
};

/// Code and standard error of what is refused, and that nothing is printed.
std::string text_of(const ProgramEnd& end) {
  EXPECT_EQ(end.out, "");
  return std::to_string(end.code) + ": " + end.err;
}

TEST_F(LockstepProgram, RefusesAWrongConfigByPlaceAndAllMistakesAtOnce) {
  support::Said said(folder_.path());
  write_text(folder_ / "bad.ts",
             "@problemName x\n@timeStamps false\n@univariate false\n@dimensions 2\n"
             "@classLabel true a\n@data\n1,2:3,x:a\n");
  const std::pair<const char*, const char*> rows[] = {
      {"steps: 6", "stepz: 6"},
      {"steps: 6", "steps: 6\nsteps: 7"},
      {"steps: 6", "steps: -6"},
      {"layout: 1x6", "layout: 1x7"},
      {"steps: 6", "stepz: 6\nsedes: 3"},
      {"source: synthetic", "source: basic_motions"},
      {"source: synthetic", "source: ts_files, train_file: bad.ts, test_file: bad.ts"},
  };
  for (const auto& [from, to] : rows) {
    change_matrix(from, to);
    said(replaced(to, "\n", "\\n"), text_of(run({"run", "tiny.yaml"})));
  }
  EXPECT_FALSE(exists("out"));
}

TEST_F(LockstepProgram, EndsWithSixWhereNothingIsSelected) {
  for (const char* command : {"run", "plan"}) {
    const ProgramEnd end = run({command, "tiny.yaml", "--only", "layout==5x5"});
    EXPECT_EQ(end.code, 6);
    EXPECT_THAT(end.err, HasSubstr("2x3"));
  }
}

TEST_F(LockstepProgram, RefusesWhatIsNoCommand) {
  support::Said said(folder_.path());
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"rum", "tiny.yaml"},
                                                {"list", "mutant"},
                                                {"run", "tiny.yaml", "--sed", "k=1"},
                                                {"run", "tin"},
                                                {"run", "none.yaml"},
                                                {"explain", "gather-withot"},
                                                {"report", "."},
                                                {"compare", "a", "b"},
                                                {"doctor", "--nodes"}})
    said(fmt::format("{}", fmt::join(words, " ")), text_of(run(words)));
  EXPECT_EQ(run({"help", "run"}).out, run({"run", "--help"}).out);
}

TEST_F(LockstepProgram, PlansWithoutStartingOrWriting) {
  const ProgramEnd plan = run({"plan", "tiny.yaml", "--json"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_TRUE(nlohmann::json::accept(plan.out));
  const ProgramEnd dry = run({"run", "tiny.yaml", "--dry-run"});
  EXPECT_EQ(dry.code, 0);
  EXPECT_THAT(dry.out, HasSubstr("2x3"));
  EXPECT_FALSE(exists("out"));
}

TEST_F(LockstepProgram, NamesARankThatDiesAndEndsWithThree) {
  const ProgramEnd end = run({"run", "tiny.yaml", "--only", "layout==3x2"}, "1:die 2:wait");
  EXPECT_EQ(end.code, 3) << end.err;
  EXPECT_THAT(end.err, HasSubstr("killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(end.err, HasSubstr("first: rank 1, after 3 steps, in train"));
  EXPECT_THAT(end.err, HasSubstr("again: lockstep run tiny.yaml --only "));
  EXPECT_THAT(end.out, HasSubstr("report: out/tiny/report.html"));
  EXPECT_TRUE(exists("out/tiny/report.html") && exists("out/tiny/junit.xml") &&
              exists("out/tiny/summary.md"));
  EXPECT_TRUE(exists("step_summary.md"));
}

TEST_F(LockstepProgram, NamesARankThatHangsAndEndsWithFour) {
  const ProgramEnd end = run({"run", "tiny.yaml", "--only", "layout==3x2"}, "1:wait 2:hang");
  EXPECT_EQ(end.code, 4) << end.err;
  EXPECT_THAT(end.err, HasSubstr("hung: no progress for"));
  EXPECT_THAT(end.err, HasSubstr("first: rank 2, after 3 steps, in train"));
}

TEST_F(LockstepProgram, WritesResultsAloneToStandardOutput) {
  const ProgramEnd end = run({"run", "tiny.yaml", "--json"}, "all:throw");
  EXPECT_TRUE(nlohmann::json::accept(end.out)) << end.out;
  EXPECT_THAT(end.err, HasSubstr("no such tensor: head.weight"));
  EXPECT_THAT(end.err, Not(HasSubstr("\x1b"))) << "no terminal, no colour";
  const ProgramEnd report = run({"report", "out/tiny", "--format", "json"});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_EQ(report.out, end.out);
  EXPECT_THAT(run({"report", "out/tiny", "--format", "html,md"}).out,
              HasSubstr("out/tiny/report.html\nout/tiny/summary.md\n"));
}

TEST_F(LockstepProgram, LeavesWhatIsFinishedOnCtrlCAndResumes) {
  const auto program = start({"run", "tiny.yaml", "--jobs", "1"}, "2:wait");
  ASSERT_TRUE(program->wait_for("started   3x2"));
  program->send(SIGINT);
  const ProgramEnd end = program->end();
  EXPECT_EQ(end.code, 130) << end.err;
  EXPECT_THAT(end.err, HasSubstr("stopped   3x2"));
  EXPECT_THAT(end.err, HasSubstr("run again to resume"));
  EXPECT_EQ(end.out, "");

  const ProgramEnd resumed = run({"run", "tiny.yaml", "--jobs", "1"});
  EXPECT_THAT(resumed.err, HasSubstr("finished  3x2"));
  const ProgramEnd again = run({"run", "tiny.yaml", "--jobs", "1"});
  EXPECT_THAT(again.err, HasSubstr(" 0 to do"));
  EXPECT_THAT(again.err, Not(HasSubstr("started")));
  const ProgramEnd fresh = run({"run", "tiny.yaml", "--jobs", "1", "--fresh"});
  EXPECT_THAT(fresh.err, HasSubstr("finished  3x2"));
  EXPECT_THAT(fresh.err, HasSubstr(" 0 reused"));
}

/// Ids that a run's standard error says so of: "finished  ID  1.2 s".
std::vector<std::string> ids_after(const std::string& err, const std::string& word) {
  std::vector<std::string> ids;
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, id;
    if (words >> first >> id && first == word) ids.push_back(id);
  }
  return ids;
}

TEST_F(LockstepProgram, SaysThatItsFolderWasRemoved) {
  const auto program = start({"run", "tiny.yaml", "--jobs", "1"}, "2:wait");
  ASSERT_TRUE(program->wait_for("started   3x2"));
  std::filesystem::remove_all(folder_ / "out");
  const ProgramEnd end = program->end();
  EXPECT_EQ(end.code, 7) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr("is gone: somebody removed it"), Not(HasSubstr("FAILED")), Not(HasSubstr("internal error"))));
  EXPECT_FALSE(exists("out"));
}

TEST_F(LockstepProgram, RefusesToRunInADeletedFolder) {
  const auto in_deleted = [this](const std::string& command) {
    return shell("mkdir gone && cd gone && rmdir ../gone && exec \"$0\" " + command);
  };
  const ProgramEnd end = in_deleted("run " + (folder_ / "tiny.yaml") + " --out " + (folder_ / "o"));
  EXPECT_EQ(end.code, 7);
  EXPECT_THAT(end.err, HasSubstr("the current folder has been deleted: cd to a folder that exists"));
  EXPECT_EQ(in_deleted("explain").code, 0);
  EXPECT_EQ(in_deleted("list losses").code, 0);
}

TEST_F(LockstepProgram, NamesAFileThatCannotBeLookedAt) {
  std::filesystem::create_symlink("loop", folder_ / "loop");
  const ProgramEnd end = run({"compare", "loop", "loop", "--rule", "tost"});
  EXPECT_EQ(end.code, 7);
  EXPECT_THAT(end.err, AllOf(HasSubstr("loop"), HasSubstr("Too many levels of symbolic links"), Not(HasSubstr("internal error"))));
}

TEST_F(LockstepProgram, ChecksTheNodesOfAJob) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const auto start_node = [this](int rank, Variables more) {
    more.insert(more.end(), {{"LOCKSTEP_WORLD_SIZE", "2"}, {"LOCKSTEP_RANK_ID", std::to_string(rank)}, {"LOCKSTEP_HOST", "n" + std::to_string(rank)},
                             {"LOCKSTEP_RANK", LOCKSTEP_BINARY_DIR "/bin/fake_rank"}});
    return std::make_unique<Program>(std::vector<std::string>{LOCKSTEP_BINARY_DIR "/bin/lockstep", "doctor", "--nodes", "--out", folder_.path()}, folder_.path(), more);
  };
  const auto checked = [&](const Variables& of_the_other) {
    const auto first = start_node(0, {}), other = start_node(1, of_the_other);
    const ProgramEnd quiet = other->end();
    EXPECT_EQ(quiet.out + quiet.err, "") << "rank 0 says it";
    return first->end().out;
  };
  EXPECT_THAT(checked({}), AllOf(HasSubstr("2 processes on 2 nodes: n0, n1"), HasSubstr("a lock (flock) of n0 keeps out all others"),
                                          HasSubstr("2 connections in both directions"), HasSubstr("those of all nodes agree"),
                                          HasSubstr("all-reduce"), HasSubstr("rank 1 on n1: ")))
      << "ranks that do not sum";
  EXPECT_THAT(checked({{"LOCKSTEP_ADDRESS", "240.0.0.1"}, {"GLOO_NOTHING", "1"}}),
              AllOf(HasSubstr("n0 cannot reach n1 (240.0.0.1:"), HasSubstr("not fit to run"), HasSubstr("GLOO_NOTHING differs: none on n0, 1 on n1"),
                             testing::Not(HasSubstr("all-reduce"))));
}

TEST_F(LockstepProgram, ReadsWithoutProcAndRefusesToRun) {
  const auto without_proc = [this](const std::string& command) {
    const std::string script = "umount -l /proc || exit 77; exec " LOCKSTEP_BINARY_DIR "/bin/lockstep " + command;
    return run({"/usr/bin/unshare", "-m", "/bin/sh", "-c", script});
  };
  const ProgramEnd version = without_proc("--version");
  if (version.code == 77 || version.code == 1) GTEST_SKIP() << "no mount namespace may be made here: " << version.err;
  for (const char* command : {"--version", "list", "explain", "schema", "plan tiny.yaml"}) {
    const ProgramEnd end = without_proc(command);
    EXPECT_EQ(end.code, 0) << command << ": " << end.err << " signal " << end.signal;
  }
  const ProgramEnd run = without_proc("run tiny.yaml");
  EXPECT_EQ(run.code, 7);
  EXPECT_THAT(run.err, HasSubstr("/proc is not mounted"));
}

TEST_F(LockstepProgram, SaysHowARunInTheForegroundStands) {
  const auto program = start({"run", "tiny.yaml", "--jobs", "1"}, "2:wait");
  ASSERT_TRUE(program->wait_for("started   3x2"));
  EXPECT_THAT(run({"status", "out/tiny"}).out, HasSubstr("in the foreground; "));
  const int code = program->end().code;
  EXPECT_EQ(run({"wait", "out/tiny"}).code, code);
  EXPECT_THAT(run({"status", "out/tiny"}).out, HasSubstr("; exit status " + std::to_string(code)));
}

TEST_F(LockstepProgram, GoesOnWhereItWasKilled) {
  const auto program = start({"run", "tiny.yaml", "--jobs", "1"}, "2:wait");
  ASSERT_TRUE(program->wait_for("started   3x2"));
  program->send(SIGKILL);
  const ProgramEnd end = program->end();
  EXPECT_EQ(end.signal, SIGKILL);
  const std::vector<std::string> finished = ids_after(end.err, "finished");
  const ProgramEnd resumed = run({"run", "tiny.yaml", "--jobs", "1"});
  EXPECT_THAT(resumed.err, HasSubstr(std::to_string(finished.size()) + " reused"));
  EXPECT_THAT(ids_after(resumed.err, "started"), testing::SizeIs(3 - finished.size()));
  for (const std::string& id : finished) EXPECT_THAT(ids_after(resumed.err, "started"), Not(Contains(id)));
}

TEST_F(LockstepProgram, SaysThatTheMarginWasChangedAfterTheRuns) {
  std::string text = kMatrix;
  for (const auto& [from, to] : {std::pair("mechanism", "outcome"), std::pair("[2x3, 3x2]", "[2x3], lr_scale: [1, 0.125]")})
    text.replace(text.find(from), std::string(from).size(), to);
  write_text(folder_ / "tiny.yaml", text + "power_controls: [{lr_scale: 0.125}]\n");
  run({"run", "tiny.yaml"});
  const std::string before = "declared before anything ran",
                    after = "changed after the runs (margin was 0.03 when they were planned)";
  EXPECT_THAT(read_text(folder_ / "out/tiny/report.html"), HasSubstr(before));
  const ProgramEnd changed = run({"run", "tiny.yaml", "--set", "primary.margin=0.5"});
  EXPECT_THAT(changed.err, HasSubstr(" 0 to do, 3 reused"));
  EXPECT_THAT(changed.out, HasSubstr(after));
  EXPECT_THAT(run({"report", "out/tiny", "--format", "html"}).out, AllOf(HasSubstr(after), Not(HasSubstr(before))));
}

TEST_F(LockstepProgram, KeepsWhatIsFinishedWhenTheDiskIsFull) {
  // Only the run of three ranks has a rank 2.
  const ProgramEnd end = run({"run", "tiny.yaml", "--jobs", "1"}, "2:full");
  EXPECT_EQ(end.code, 7) << end.err;
  EXPECT_THAT(end.err, HasSubstr("free some space and run again to resume"));
  const std::vector<std::string> finished = ids_after(end.err, "finished");
  const ProgramEnd resumed = run({"run", "tiny.yaml", "--jobs", "1"});
  EXPECT_THAT(resumed.err, HasSubstr(std::to_string(finished.size()) + " reused"));
  for (const std::string& id : finished) EXPECT_THAT(ids_after(resumed.err, "started"), Not(Contains(id)));
}

TEST_F(LockstepProgram, SaysWhichReportHadNoRoomAndWritesItLater) {
  // Files of at most 16 KB, as on a disk that is all but full: runs fit, the report does not.
  const ProgramEnd end = shell("trap '' XFSZ; ulimit -f 16; exec \"$0\" run tiny.yaml");
  EXPECT_EQ(end.code, 7) << end.err;
  EXPECT_THAT(end.err, HasSubstr("out/tiny/report.html"));
  EXPECT_FALSE(exists("out/tiny/report.html")) << "whole or not at all";
  const ProgramEnd resumed = run({"run", "tiny.yaml"});
  EXPECT_THAT(resumed.err, HasSubstr(" 0 to do, 3 reused"));
  EXPECT_TRUE(exists("out/tiny/report.html"));
}

class JudgedProgram : public LockstepProgram {
 protected:
  JudgedProgram() { run({"run", "tiny.yaml"}); }
  bool stands(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"run", "tiny.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramEnd end = run(words);
    out_ = end.out;
    return end.err.find("nothing has changed since these results were judged") != std::string::npos;
  }
  std::string a_file(const std::string& name) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "out/tiny/runs")) {
      if (entry.path().filename() == name) return entry.path().string();
    }
    return {};
  }
  std::string a_result() const { return a_file("rank-0.result.json"); }
  std::string a_trace() const { return a_file("rank-0.trace"); }
  std::string out_;
};

TEST_F(JudgedProgram, JudgesNothingTwice) {
  const std::string report = read_text(folder_ / "out/tiny/report.html");
  EXPECT_TRUE(stands());
  EXPECT_EQ(read_text(folder_ / "out/tiny/report.html"), report);
  EXPECT_THAT(out_, HasSubstr("report: out/tiny/report.html"));
  EXPECT_TRUE(stands({"--json"}));
  EXPECT_EQ(out_, read_text(folder_ / "out/tiny/results.json"));
}

TEST_F(JudgedProgram, NoticesReportsThatWereTouched) {
  write_text(folder_ / "out/tiny/report.html", "");
  EXPECT_FALSE(stands()) << "and from here on the reports say that all runs were reused";
  for (const std::string name : {"results.json", "report.html", "summary.md", "junit.xml"}) {
    const std::string path = folder_ / ("out/tiny/" + name), before = read_text(path);
    write_text(path, before + " ");
    EXPECT_FALSE(stands()) << name;
    EXPECT_TRUE(read_text(path) == before) << name << " is written again";
    std::filesystem::remove(path);
    EXPECT_FALSE(stands()) << name;
    EXPECT_TRUE(stands()) << name;
  }
}

TEST_F(JudgedProgram, NoticesEvidenceThatChanged) {
  const std::string path = a_result(), before = read_text(path);
  write_text(path, before);
  EXPECT_TRUE(stands()) << "the same bytes, written later";
  std::string other = before;
  other[other.find("\"rank\"")] = '\'';  // of the same size, and no JSON
  write_text(path, other);
  EXPECT_FALSE(stands());
  EXPECT_TRUE(stands());
  write_text(path.substr(0, path.rfind('/')) + "/rank-7.trace", "not there when it was judged");
  EXPECT_FALSE(stands());
  std::filesystem::remove(path);
  EXPECT_THAT(run({"plan", "tiny.yaml"}).out, HasSubstr("its rank-0.result.json is missing"));
}

// The judge of two layouts reads few bytes of most traces; those that it does not read are looked at all the
// same.
TEST_F(JudgedProgram, TrainsAgainWhatWasDamagedAndSaysWhere) {
  const std::string path = a_trace(), before = read_text(path);
  std::string damaged = before;
  damaged[before.size() / 2] ^= 1;
  write_text(path, damaged);
  const ProgramEnd plan = run({"plan", "tiny.yaml"});
  EXPECT_THAT(plan.out,
              HasSubstr("rank-0.trace is damaged between bytes 0 and " + std::to_string(before.size())));
  const ProgramEnd end = run({"run", "tiny.yaml"});
  EXPECT_THAT(end.err, HasSubstr("not reused: "));
  EXPECT_THAT(end.err, HasSubstr("its rank-0.trace is damaged between bytes 0 and "));
  EXPECT_THAT(end.err, HasSubstr("; it runs again\n"));
  EXPECT_NE(end.code, 7) << end.err;
  EXPECT_EQ(read_text(path), before);
  EXPECT_TRUE(stands());
}

TEST_F(JudgedProgram, TrainsAgainWhatAnEarlierVersionLeft) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "out/tiny/runs")) {
    if (entry.path().filename() != "done") continue;
    auto done = nlohmann::json::parse(read_text(entry.path()));
    done.erase("checksum");
    write_text(entry.path(), done.dump());
  }
  EXPECT_THAT(run({"plan", "tiny.yaml"}).out,
              HasSubstr("its done file has no checksum: an earlier lockstep or another program wrote it"));
  EXPECT_THAT(run({"run", "tiny.yaml"}).err, HasSubstr(" 0 reused"));
  EXPECT_TRUE(stands());
}

TEST_F(JudgedProgram, RefusesResultsThatWereChanged) {
  const std::string path = folder_ / "out/tiny/results.json";
  auto results = nlohmann::ordered_json::parse(read_text(path));
  write_text(path, results.dump(4));
  EXPECT_EQ(run({"report", "out/tiny"}).code, 0) << "laid out anew, of the same content";
  results["summary"]["exit_code"] = 9;
  write_text(path, results.dump());
  const ProgramEnd end = run({"report", "out/tiny"});
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("results.json: is damaged: its checksum is "));
  EXPECT_THAT(end.err, HasSubstr("`lockstep run` with its config writes it anew"));
}

// What is edited while the matrix runs counts from the next run on, and not as what was judged.
TEST_F(LockstepProgram, JudgesByTheConfigThatItReadAtItsStart) {
  const std::string with = "timeout_s: 0.2\nexpect: [{when: {}, verdict: failed}]";
  run({"run", "tiny.yaml"});
  const auto edited = start({"run", "tiny.yaml", "--fresh", "--jobs", "1"});
  ASSERT_TRUE(edited->wait_for("started   "));
  change_matrix("timeout_s: 0.2", with);
  edited->end();
  const ProgramEnd again = run({"run", "tiny.yaml"});
  EXPECT_THAT(again.err, HasSubstr(" 0 to do"));
  EXPECT_THAT(again.err, Not(HasSubstr("nothing has changed"))) << "another expectation than was judged";
  EXPECT_THAT(run({"run", "tiny.yaml"}).err, HasSubstr("nothing has changed"));
}

TEST_F(LockstepProgram, TakesAConfigFromAPipe) {
  const auto piped = [this](const std::string& expect, const std::string& more) {
    write("piped.yaml", kMatrix + expect);
    return shell("cat piped.yaml | \"$0\" run /dev/stdin " + more);
  };
  EXPECT_THAT(piped("", "").err, HasSubstr(" 3 to do"));
  EXPECT_THAT(piped("", "").err, HasSubstr("nothing has changed"));
  EXPECT_THAT(piped("expect: [{when: {}, verdict: failed}]\n", "").err,
              Not(HasSubstr("nothing has changed")));
  const ProgramEnd none = piped("", "--only layout==5x5");
  EXPECT_EQ(none.code, 6);
  EXPECT_THAT(none.err, HasSubstr("its cells are:\n  2x3")) << "read once, though it is needed twice";
  const ProgramEnd direct = run({"plan", "tiny.yaml"});
  for (const char* way : {"\"$0\" plan <(cat tiny.yaml)", "\"$0\" plan /dev/stdin < tiny.yaml"}) EXPECT_EQ(shell(way).out, direct.out) << way;
  EXPECT_THAT(shell("\"$0\" run <(cat tiny.yaml) --out o").err, HasSubstr("finished"));
}

TEST_F(LockstepProgram, PrintsNothingIntoItsFilesWhereItsStreamsAreClosed) {
  for (const std::string closed : {"2>&-", ">&-", "<&- >&- 2>&-"}) {
    const ProgramEnd end = shell("exec \"$0\" run tiny.yaml --fresh " + closed);
    EXPECT_GE(end.code, 0) << closed;
    EXPECT_TRUE(exists("out/tiny/report.html")) << closed;
    EXPECT_EQ(read_text(folder_ / "out/tiny/.lock"), "") << closed;
    std::filesystem::remove(folder_ / "out/tiny/report.html");
  }
}

TEST_F(JudgedProgram, NoticesAnotherQuestion) {
  change_matrix("timeout_s: 0.2", "timeout_s: 0.2\nexpect: [{when: {}, verdict: failed}]");
  EXPECT_FALSE(stands());
  EXPECT_TRUE(stands());
  EXPECT_FALSE(stands({"--only", "layout==3x2"}));
}

TEST_F(JudgedProgram, NoticesAnotherProgram) {
  std::filesystem::copy_file(LOCKSTEP_BINARY_DIR "/bin/fake_rank", folder_ / "fake_rank");
  { std::ofstream(folder_ / "fake_rank", std::ios::app) << "another build"; }
  const ProgramEnd end = start({"run", "tiny.yaml"}, "", folder_ / "fake_rank")->end();
  EXPECT_THAT(end.err, HasSubstr(" 0 reused"));
  EXPECT_THAT(end.err, Not(HasSubstr("nothing has changed")));
}

TEST_F(LockstepProgram, EndsWithSevenWhereNoRankCanBeStarted) {
  const ProgramEnd end = start({"run", "tiny.yaml"}, "", "/nowhere/lockstep-rank")->end();
  EXPECT_EQ(end.code, 7);
  EXPECT_THAT(end.err, HasSubstr("/nowhere/lockstep-rank"));
}

TEST_F(LockstepProgram, JudgesLogProbabilitiesOfAForeignTrainer) {
  std::string lines;
  for (int i = 0; i < 9; ++i)
    lines +=
        fmt::format("{{\"acted\": -{0}.5, \"recomputed\": -{0}.25, \"recomputed_back_1\": -{0}.5, \"t\": {0}}}\n", i);
  write_text(folder_ / "a.jsonl", lines);
  const ProgramEnd stale = run({"check", "--acted", "a.jsonl", "--md", "a.md", "--html", "a.html", "--json=a.json"});
  EXPECT_EQ(stale.code, 1) << stale.err;
  EXPECT_THAT(stale.out, AllOf(HasSubstr("different from step 0: stale-rollout-policy"),
                               HasSubstr("at the weights of update −1")));
  EXPECT_THAT(read_text(folder_ / "a.md"), HasSubstr("stale-rollout-policy"));
  EXPECT_THAT(read_text(folder_ / "a.html"), HasSubstr("stale-rollout-policy"));
  EXPECT_EQ(nlohmann::json::parse(read_text(folder_ / "a.json"))["verdict"], "different");
  write_text(folder_ / "same.jsonl", "{\"acted\": -1, \"recomputed\": -1}\n");
  EXPECT_EQ(run({"check", "--acted", "same.jsonl"}).code, 0);
  write_text(folder_ / "none.jsonl", "\n");
  EXPECT_EQ(run({"check", "--acted", "none.jsonl"}).code, 5);
  EXPECT_EQ(run({"check", "--acted", "nowhere.jsonl"}).code, 2);
  EXPECT_EQ(run({"check", "--acted", "same.jsonl", "--", "python3", "train.py"}).code, 2);
}

TEST_F(LockstepProgram, GivesBothSchemas) {
  EXPECT_TRUE(nlohmann::json::accept(run({"schema"}).out));
  EXPECT_TRUE(nlohmann::json::accept(run({"schema", "results"}).out));
}

// Input that is not what it should be: found at once, named, and with the right exit code.

std::string ts_text(int series, int steps) {
  std::string text = "@classLabel false\n@data\n";
  for (int s = 0; s < series; ++s) {
    for (int t = 0; t < steps; ++t) text += (t > 0 ? "," : "") + std::to_string((s * 7 + t) % 11);
    text += "\n";
  }
  return text;
}

std::string nested_objects() {
  std::string text, end;
  for (int i = 0; i < 100000; ++i) text += "{\"config\":", end += "}";
  return text + "1" + end;
}

TEST_F(LockstepProgram, FilesThatAreNoneOrNestedTooDeepAreNamedAndNotWaitedFor) {
  support::Said said(folder_.path());
  fifo("data.ts");
  write("good.ts", ts_text(8, 60));
  write("files.yaml",
        replaced(kMatrix, "{source: synthetic}", "{source: ts_files, train_file: good.ts, test_file: data.ts}"));
  for (const char* name : {"results", "a", "b", "deep", "deeper"}) std::filesystem::create_directories(folder_ / name);
  fifo("results/results.json");
  for (const char* name : {"a", "b"}) fifo(std::string(name) + "/rank-0.trace");
  for (const char* name : {"deep", "deeper"}) {
    write(std::string(name) + "/run.json", nested_objects());
    write(std::string(name) + "/results.json", nested_objects());
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"plan", "files.yaml"},
                                                {"plan", "."},
                                                {"plan", "/dev/zero"},
                                                {"report", "results"},
                                                {"compare", "a", "b"},
                                                {"compare", "deep", "deeper"},
                                                {"report", "deep"}})
    said(words[0] + " " + words[1], text_of(run(words)));
  for (const char* name : {"a", "b"}) fifo(std::string(name) + "/run.json");
  said("compare a b", text_of(run({"compare", "a", "b"})));
}

TEST_F(LockstepProgram, ALateRunWhoseFilesAreNestedIsDoneAnew) {
  ASSERT_EQ(run({"run", "tiny.yaml", "--out", "o"}).code, run({"run", "tiny.yaml", "--out", "o"}).code);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "o")) {
    const std::string name = entry.path().filename();
    if (name == "run.json" || name == "done" || name.ends_with(".result.json") || name == "judged.json") {
      write_text(entry.path().string(), nested_objects());
    }
  }
  const ProgramEnd end = run({"run", "tiny.yaml", "--out", "o"});
  EXPECT_EQ(end.signal, 0);
  EXPECT_THAT(end.err, HasSubstr("0 reused"));
  write("o/matrix.json", nested_objects());
  expect_usage_error(run({"run", "tiny.yaml", "--out", "o"}), HasSubstr("o/matrix.json: is malformed"));
}

TEST_F(LockstepProgram, TooFewPairsOfAFileAreFoundBeforeAnythingRuns) {
  support::Said said(folder_.path());
  write("few.ts", ts_text(5, 28));  // 3 pairs each, one series held back
  write("many.ts", ts_text(20, 60));
  for (const char* more : {"holdout_series: 4", "holdout_series: 2", "holdout_series: 4, drop_last: false"}) {
    write("files.yaml",
          replaced(kMatrix, "{source: synthetic}",
                   fmt::format("{{source: ts_files, train_file: few.ts, test_file: many.ts, {}}}", more)));
    const ProgramEnd end = run({"plan", "files.yaml"});
    said(more, std::to_string(end.code) + ": " + end.err);
  }
  write("outcome.yaml",
        "name: o\nquestion: outcome\nseeds: 0..2\nsteps: 30\n"
        "data: {source: ts_files, train_file: many.ts, test_file: few.ts}\nreference: {layout: 1x6}\n"
        "axes: {layout: [2x3], lr: [0.001, 0.1]}\npower_controls: [{lr: 0.1}]\n");
  for (const char* metric : {"accuracy_24", "accuracy_3", "acuracy_3"}) {
    const ProgramEnd end = run({"plan", "outcome.yaml", "--set", std::string("primary.metric=") + metric});
    said(metric, std::to_string(end.code) + ": " + end.err);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}
TEST_F(LockstepProgram, NothingForeignReachesTheTerminalAsItIs) {
  const std::string hostile = "\x1b]0;title\x07\x1b[2J\xe2\x80\xae\xc2\x9b\xff";
  write("hostile" + hostile + ".yaml", "# question " + std::string("\x1b[31m\xe2\x80\xae") + "?\n" + kMatrix);
  const auto expect_clean = [](const ProgramEnd& end) {
    for (const std::string& text : {end.out, end.err}) {
      EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xe2\x80\xae")),
                              Not(HasSubstr("\xc2\x9b")), Not(HasSubstr("\xff"))));
    }
  };
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", "hostile" + hostile + ".yaml"},
        {"plan", "tiny.yaml", "--out", hostile},
        {"run", "tiny.yaml", "--out", "o" + hostile},
        {"run", "tiny.yaml", "--out", "j" + hostile, "--json"},
        {"plan", "none" + hostile},
        {"plan", "tiny.yaml", "--set", hostile + "=1"},
        {"plan", "tiny.yaml", "--set", "steps=" + hostile},
        {"plan", "tiny.yaml", "--only", hostile},
        {hostile},
        {"explain", hostile},
        {"list", hostile},
        {"compare", hostile, "b"},
        {"report", hostile}}) {
    expect_clean(run(words));
  }
  write("hostile.ts", "@dimensions " + hostile + "\n@data\n" + hostile + "\n");
  expect_clean(run({"plan", "tiny.yaml", "--set", "data.source=ts_files", "--set",
                    "data.train_file=hostile.ts", "--set", "data.test_file=hostile.ts"}));
}

TEST_F(LockstepProgram, ConfigsOfTheRepositoryPlan) {
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    // Their data may not be here: generated ones have as many pairs. Suites and trainers of somebody else's have no data of ours.
    std::vector<std::string> words{"plan", entry.path().string()};
    const bool of_a_command = read_file(entry.path().string()).text.find("\ntrainer: command") != std::string::npos;
    if (!of_a_command && !support::is_suite_config(entry.path())) words.insert(words.end(), {"--set", "data.source=synthetic"});
    const ProgramEnd end = run(words);
    EXPECT_EQ(end.code, 0) << entry.path() << end.err;
  }
}

}  // namespace
}  // namespace lockstep
