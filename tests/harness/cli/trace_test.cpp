// `lockstep trace`: runs a command with the probe switched on, and says what was recorded.

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TraceCommand : public testing::Test {
 protected:
  TraceCommand() {
    std::filesystem::create_directories(folder_ / "probe/lockstep_probe/startup");
    write_text(folder_ / "probe/lockstep_probe/startup/sitecustomize.py", "");
  }
  ProgramEnd trace(std::vector<std::string> options, std::vector<std::string> command, const std::string& fault = "", const std::string& probe = "") {
    options.insert(options.begin(), {LOCKSTEP_BINARY_DIR "/bin/lockstep", "trace", "--out", "a"});
    options.emplace_back("--");
    options.insert(options.end(), command.begin(), command.end());
    return Program(options, folder_.path(),
                   {{"LOCKSTEP_PROBE", probe.empty() ? folder_ / "probe" : probe}, {"SHARED", folder_.path()}, {"FAULT", fault}, {"PYTHONPATH", "before"}})
        .end();
  }
  ProgramEnd train(std::vector<std::string> options = {}, const std::string& fault = "") {
    return trace(std::move(options), {LOCKSTEP_BINARY_DIR "/bin/fake_trainer", "--ranks", "3"}, fault);
  }
  const TempFolder folder_;
};

TEST_F(TraceCommand, SaysWhatWasRecordedAndWhatToDoNext) {
  const ProgramEnd end = train();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("rank 2 of 3 trains"));
  EXPECT_THAT(end.err, AllOf(HasSubstr("recorded in a: 3 ranks, 6 steps, level full"), HasSubstr("tier zero (torch 0); can be judged: free runs, rows by their ids"),
                             HasSubstr("not seen: losses of rows"), HasSubstr("the probe took 0.5 of 1.5 s"), HasSubstr("next: lockstep compare REF a")));
}

TEST_F(TraceCommand, TellsTheCommandWhereTheProbeIsAndWhatItShallKeep) {
  const ProgramEnd end = trace({"--level", "stats", "--snapshots", "0,1,10", "--every", "2"}, {"/usr/bin/env"});
  for (const std::string& says : {"LOCKSTEP_TRACE=" + std::filesystem::canonical(folder_.path()).string() + "/a\n", std::string("LOCKSTEP_LEVEL=stats\n"),
                                  std::string("LOCKSTEP_SNAPSHOTS=0,1,10\n"), std::string("LOCKSTEP_EVERY=2\n"),
                                  "PYTHONPATH=" + folder_ / "probe/lockstep_probe/startup:" + folder_ / "probe:before\n"}) {
    EXPECT_THAT(end.out, HasSubstr(says));
  }
  EXPECT_THAT(end.out, Not(HasSubstr("LOCKSTEP_AGAINST")));
}

TEST_F(TraceCommand, EndsWithSevenAndReasonsWhereNothingWasRecorded) {
  const ProgramEnd end = trace({}, {"/bin/true"});
  EXPECT_EQ(end.code, 7);
  EXPECT_THAT(end.err, HasSubstr("the probe recorded nothing. Check, in this order"));
}

TEST_F(TraceCommand, EndsWithThreeWhereTheCommandFailedAndSaysHow) {
  const ProgramEnd exited = trace({}, {"/bin/sh", "-c", "exit 5"});
  EXPECT_EQ(exited.code, 3);
  EXPECT_THAT(exited.err, HasSubstr("the command ended with status 5, and recorded nothing"));
  const ProgramEnd killed = train({}, "kill@4");
  EXPECT_EQ(killed.code, 3);
  EXPECT_THAT(killed.err, AllOf(HasSubstr("rank 2: cut short after step 3"), HasSubstr("what was recorded up to there is readable")));
}

TEST_F(TraceCommand, BeginsWithTheEndOfTheRunAndSaysWhatIsNotRecorded) {
  const ProgramEnd nothing = trace({}, {"/bin/sh", "-c", R"(echo '{"ended": {"after": 0, "error": "KeyError: x"}}' > $LOCKSTEP_EMPTIED/rank-0.probe.json; exit 1)"});
  EXPECT_THAT(nothing.err, HasSubstr("\n  ended after 0 steps: rank 0, KeyError: x\n"));
  const std::string beside = R"_("$0" --ranks 1; sed -i 's/"notes"/"unrecorded": [{"what": "another process (eval.py)", "steps": 4, "done": true}], "notes"/' )_";
  const ProgramEnd end = trace({"--overwrite"}, {"/bin/sh", "-c", beside + "$LOCKSTEP_TRACE/rank-0.probe.json", LOCKSTEP_BINARY_DIR "/bin/fake_trainer"});
  EXPECT_THAT(end.err, testing::ContainsRegex("recorded in a: 1 rank, [^\n]*\n  not recorded: another process .eval.py. took 4 steps that are not recorded"));
  std::filesystem::create_directories(folder_ / "a/2");
  std::filesystem::copy_file(folder_ / "a/rank-0.trace", folder_ / "a/2/rank-0.trace");
  EXPECT_THAT(train({"--overwrite"}).err, Not(HasSubstr("further training")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/2/rank-0.trace"));
}

TEST_F(TraceCommand, KeepsTheTracesOfAnEarlierRunUnlessItIsToldOtherwise) {
  ASSERT_EQ(train().code, 0);
  write_text(folder_ / "a/mine.txt", "of the user's\n");
  const ProgramEnd refused = train();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--out a: holds 6 files of an earlier run, the first rank-0.probe.json; choose another folder, or --overwrite"));
  EXPECT_EQ(trace({"--overwrite"}, {"/bin/true"}).code, 7);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/rank-0.trace"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/mine.txt"));
}

TEST_F(TraceCommand, RefusesWhatItCannotUse) {
  EXPECT_THAT(trace({}, {"/bin/true"}, "", "/nowhere").err, AllOf(HasSubstr("lockstep_probe) is not found; tried /nowhere"), HasSubstr("LOCKSTEP_PROBE")));
  EXPECT_THAT(trace({}, {"no-such-program"}).err, HasSubstr("no-such-program: cannot be started: No such file or directory"));
  EXPECT_THAT(trace({"--against", "none"}, {"/bin/true"}).err, HasSubstr("--against none: has no rank-0.trace"));
  EXPECT_THAT(trace({"--snapshots", "0,x"}, {"/bin/true"}).err, HasSubstr("must be steps such as 0,1,10, or none or auto, not '0,x'"));
  EXPECT_EQ(trace({"--snapshots", "none"}, {"/bin/true"}).code, 7);
  EXPECT_EQ(trace({"--level", "some"}, {"/bin/true"}).code, 2);
}

TEST_F(TraceCommand, PassesSignalsOnAndEndsAsInterrupted) {
  Program program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "trace", "--out", "a", "--", "/bin/sh", "-c",
                   "trap 'echo told >&2; exit 4' TERM; echo there >&2; while :; do /bin/sleep 0.1; done"},
                  folder_.path(), {{"LOCKSTEP_PROBE", folder_ / "probe"}});
  ASSERT_TRUE(program.wait_for("there"));
  program.send(SIGTERM);
  const ProgramEnd end = program.end();
  EXPECT_EQ(end.code, 130);
  EXPECT_THAT(end.err, AllOf(HasSubstr("told"), HasSubstr("the command ended with status 4")));
}

}  // namespace
}  // namespace lockstep
