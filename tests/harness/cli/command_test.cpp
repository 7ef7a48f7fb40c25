#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "harness/base/files.h"
#include "tests/support/program.h"

// `trainer: command`: the built program trains what a command starts, names what goes wrong with its ranks, and reuses what has not changed.

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kTrainer = LOCKSTEP_BINARY_DIR "/bin/fake_trainer";

/// The command starts its ranks itself, or lockstep starts one for each rank.
constexpr const char* kOwnRanks = " --ranks {ranks}";

class CommandTrainer : public testing::TestWithParam<const char*> {
 protected:
  CommandTrainer() {
    std::filesystem::create_directories(folder_ / "probe/lockstep_probe/startup");
    write_text(folder_ / "probe/lockstep_probe/startup/sitecustomize.py", "");
    std::filesystem::create_directories(folder_ / "code");
    write_text(folder_ / "code/train.py", "# the trainer's source\n");
  }
  void write_config(const std::string& more, const std::string& arguments = "") {
    write_text(folder_ / "c.yaml", "# Does it train the same?\nname: c\ntrainer: command\ncommand: " + std::string(kTrainer) +
                                       " --batch {rows} --seed {seed} --steps {steps}" + arguments + GetParam() +
                                       "\nfolder: code\nsteps: 6\ntimeout_s: 60\nreference: {layout: 1x6}\n" + more);
  }
  ProgramEnd run(std::vector<std::string> words) {
    words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return Program(words, folder_.path(), {{"LOCKSTEP_PROBE", folder_ / "probe"}, {"SHARED", folder_.path()}}).end();
  }
  nlohmann::json results() const { return nlohmann::json::parse(read_text(folder_ / "out/c/results.json")); }
  std::string sentence() const { return results()["summary"]["sentence"].get<std::string>(); }
  const TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, CommandTrainer, testing::Values("", kOwnRanks),
                         [](const auto& each) { return std::string(*each.param == '\0' ? "StartedByLockstep" : "StartedByTheCommand"); });

TEST_P(CommandTrainer, FindsAMistakeOfTheUsersAndNamesItAndNothingWithoutIt) {
  write_config("axes: {layout: [3x2], env.FAULT: [\"\", scale]}\nexpect:\n  - {when: {env.FAULT: scale}, verdict: divergent}\n"
               "  - {when: {}, verdict: [identical, within_envelope, inconclusive]}\n");
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  const nlohmann::json verdicts = results()["verdicts"];
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[1]["verdict"], "divergent");
  EXPECT_EQ(verdicts[1]["first_divergence"]["step"], 0);
  EXPECT_EQ(verdicts[1]["cause"]["code"], "loss-times-world");
}

TEST_P(CommandTrainer, NamesTheRankThatFailedTheStepAndWhatItDid) {
  write_config("watch: {step_s: 1}\naxes: {layout: [3x2], env.FAULT: [kill@3, exit@3, throw@3, hang@3, leave@3, stuck@3]}\n");
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 3) << end.err;
  for (const char* says : {"died (rank 2, after 3 steps, forward): killed by signal 9 (SIGKILL)", "died (rank 2, after 3 steps, forward): exited with status 3",
                           "threw (rank 2, after 3 steps, forward): ValueError: no such file", "threw (rank 2, after 3 steps, forward): ValueError: it stays",
                           "died (rank 2, after 3 steps, forward): left with status 0 after 3 steps, while rank", "hung (rank 2, after 3 steps, forward): no progress for"}) {
    EXPECT_THAT(end.err, HasSubstr(says));
  }
}

TEST_P(CommandTrainer, RefusesRanksThatAreNotOfItsLayoutAndRunsOfWhichNothingWasRecorded) {
  write_config("axes: {layout: [3x2], env.FAULT: [world, silent, cut]}\n");
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 3) << end.err;
  EXPECT_THAT(end.err, HasSubstr("says that it is one of 4 ranks, and the layout has 3"));
  EXPECT_THAT(end.err, HasSubstr("the probe recorded nothing of rank"));
  EXPECT_THAT(end.err, HasSubstr("its trace has no end mark, though the command ended well"));
}

TEST_P(CommandTrainer, LeavesNoProcessBehindWhereLockstepIsKilled) {
  write_config("axes: {layout: [3x2], env.FAULT: [hang@3]}\n");
  Program program({LOCKSTEP_BINARY_DIR "/bin/lockstep", "run", "c.yaml"}, folder_.path(), {{"LOCKSTEP_PROBE", folder_ / "probe"}, {"SHARED", folder_.path()}});
  ASSERT_TRUE(program.wait_for("started   3x2"));
  program.send(SIGKILL);
  EXPECT_EQ(program.end().signal, SIGKILL);
  // Each has the folder in its environment; the test's own end is the deadline.
  const auto any_left = [&] {
    return std::system(("grep -lsz 'SHARED=" + folder_.path() + "' /proc/[0-9]*/environ > " + (folder_ / "left")).c_str()) == 0;
  };
  while (any_left()) {
  }
}

TEST_P(CommandTrainer, ReusesARunUntilASourceOrTheCommandChanges) {
  write_config("axes: {layout: [3x2]}\nexpect: [{when: {}, verdict: [identical, within_envelope, inconclusive]}]\n");
  ASSERT_EQ(run({"run", "c.yaml"}).code, 0);
  EXPECT_THAT(run({"plan", "c.yaml"}).out, AllOf(HasSubstr("0 to run, 2 reused"), HasSubstr("1 source file")));
  write_text(folder_ / "code/notes.txt", "of no account\n");
  EXPECT_THAT(run({"plan", "c.yaml"}).out, HasSubstr("0 to run, 2 reused"));
  write_text(folder_ / "code/train.py", "# changed\n");
  EXPECT_THAT(run({"plan", "c.yaml"}).out, AllOf(HasSubstr("2 to run, 0 reused"), HasSubstr("changed")));
  ASSERT_EQ(run({"run", "c.yaml"}).code, 0);
  write_config("axes: {layout: [3x2]}\nenv.OTHER: 1\n");
  EXPECT_THAT(run({"plan", "c.yaml"}).out, HasSubstr("2 to run, 0 reused"));
}

TEST_P(CommandTrainer, JudgesTheOutcomeByTheMetricsOfTraces) {
  write_config("question: outcome\nseeds: 0..2\nprimary: {metric: error, margin: 0.01}\naxes: {layout: [3x2]}\n"
               "include: [{layout: 3x2, env.FAULT: scale}]\npower_controls: [{env.FAULT: scale}]\n"
               "expect: [{when: {env.FAULT: \"\"}, verdict: equivalent}]\n");
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
}

/// A detection matrix over the fake trainer's switch.
std::string detection_of(const std::string& values, const std::string& faults) {
  return "question: detection\naxes: {layout: [3x2], env.FAULT: [\"\", " + values + "]}\ndetection:\n  faults:\n" + faults;
}

TEST_P(CommandTrainer, CountsAPlantedFaultThatIsFoundAtItsStepUnderItsNameAndIsSilentOnTheCleanCell) {
  write_config(detection_of("scale", "    - {when: {env.FAULT: scale}, cause: loss-times-world, phase: loss}\n"));
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(sentence(), HasSubstr("1 of 1 planted faults were caught, 1 of them at the exact step and place, 1 named rightly and 0 wrongly; 0 false alarms on 1 clean pair."));
  const nlohmann::json detection = results()["detection"], row = detection["mutants"][0];
  EXPECT_EQ(row["mutant"], "env.FAULT=scale");
  EXPECT_EQ(row["exact_step"], 1);
  EXPECT_EQ(row["right_cause"], 1);
  EXPECT_EQ(detection["clean"], 1);
  EXPECT_EQ(detection["false_alarms"], 0);
  EXPECT_THAT(read_text(folder_ / "out/c/report.html"), HasSubstr("env.FAULT=scale"));
}

TEST_P(CommandTrainer, CountsAFaultThatDoesNothingAsMissed) {
  write_config(detection_of("scale, nothing", "    - {when: {env.FAULT: scale}, cause: loss-times-world}\n"
                                              "    - {when: {env.FAULT: nothing}, cause: gradient-times-world}\n"));
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 1) << end.out << end.err;
  EXPECT_THAT(end.out, HasSubstr("caught 1 of 2, where 95 % are required"));
  const nlohmann::json misses = results()["detection"]["misses"];
  ASSERT_EQ(misses.size(), 1U);
  EXPECT_EQ(misses[0]["wrong"], "missed");
  EXPECT_EQ(misses[0]["planted"], "env.FAULT=nothing: step 0, gradient-times-world");
}

TEST_P(CommandTrainer, TellsAnotherStepAWrongNameAndAnAlarmOnACleanCell) {
  write_config(detection_of("scale", "    - {when: {env.FAULT: scale}, cause: gradient-times-world, step: 2}\n"));
  EXPECT_EQ(run({"run", "c.yaml"}).code, 1);
  nlohmann::json row = results()["detection"]["mutants"][0];
  EXPECT_EQ(row["caught"], 1);
  EXPECT_EQ(row["exact_step"], 0);
  EXPECT_EQ(row["wrong_cause"], 1);
  // What the user takes for clean is not: the same runs, of which the other value is said to be the fault.
  write_config(detection_of("scale", "    - {when: {env.FAULT: \"\"}, cause: unexplained}\n"));
  EXPECT_EQ(run({"run", "c.yaml"}).code, 2) << "the reference has it too";
  write_config(detection_of("scale, nothing", "    - {when: {env.FAULT: nothing}, cause: unexplained}\n"));
  const ProgramEnd alarm = run({"run", "c.yaml"});
  EXPECT_EQ(alarm.code, 1);
  EXPECT_EQ(results()["detection"]["misses"][0]["wrong"], "false alarm");
}

TEST_P(CommandTrainer, FindsFaultsThatEndTheRunByTheWatchOfRanksAndTheirCheckBeforeTraining) {
  const std::string failed = ", phase: failed, ";
  write_config("watch: {step_s: 1}\n" +
               detection_of("hang@3, kill@2, throw@4, world", "    - {when: {env.FAULT: hang@3}, cause: rank-hung" + failed + "step: 3, rank: 2}\n"
                                                              "    - {when: {env.FAULT: kill@2}, cause: rank-died" + failed + "step: 2, rank: 2}\n"
                                                              "    - {when: {env.FAULT: throw@4}, cause: rank-threw" + failed + "step: 4, rank: 2}\n"
                                                              "    - {when: {env.FAULT: world}, cause: rank-threw" + failed + "step: 0}\n"));
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(sentence(), HasSubstr("4 of 4 planted faults were caught, 4 of them at the exact step and place, 4 named rightly and 0 wrongly"));
  EXPECT_THAT(run({"status", "out/c"}).out, HasSubstr("exit status 0"));
}

TEST_P(CommandTrainer, TriesEachSeedOfADetectionMatrix) {
  write_config("seeds: 3..4\n" + detection_of("scale", "    - {when: {env.FAULT: scale}, cause: loss-times-world}\n"));
  EXPECT_THAT(run({"plan", "c.yaml"}).out, HasSubstr("4 trials, 2 with a planted fault and 2 clean"));
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_THAT(sentence(), HasSubstr("2 of 2 planted faults were caught, 2 of them at the exact step, 2 named rightly"));
}

TEST_P(CommandTrainer, RefusesWhatItCannotDoByPlaceAndSuggestsWhatWasMeant) {
  write_config("axes: {layout: [3x2]}\nlr: 0.1\n", " --x {row} {lr}");
  expect_usage_error(run({"plan", "c.yaml"}), AllOf(HasSubstr("c.yaml:4:1: cell '3x2': unknown placeholder {row}; did you mean {rows}?"),
                                                    HasSubstr("c.yaml:10:1: cell '3x2': lr is a setting of lockstep's own trainers")));
  write_config("axes: {layout: [3x2]}\nargs.rate: 1\nranks: emulated\nquestion: certificate\n");
  expect_usage_error(run({"plan", "c.yaml"}), AllOf(HasSubstr("ranks must be real"), HasSubstr("of a command ask mechanism, outcome or detection")));
  write_config(detection_of("scale", "    - {when: {env.FAULT: scale}, cause: loss-time-world, phase: los}\n"));
  expect_usage_error(run({"plan", "c.yaml"}), AllOf(HasSubstr("c.yaml:13:41: there is no cause 'loss-time-world'; `lockstep explain` lists all; did you mean loss-times-world?"),
                                                    HasSubstr("c.yaml:13:65: there is no phase 'los'"), HasSubstr("did you mean loss?")));
  write_config("axes: {layout: [3x2]}\nargs.rate: 1\n");
  expect_usage_error(run({"plan", "c.yaml"}), HasSubstr("args.rate has no effect: the command has no placeholder {rate}"));
}

// `lockstep trace`: runs a command with the probe switched on, and says what was recorded.

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
  EXPECT_THAT(end.out, Not(HasSubstr("LOCKSTEP_LED_BY")));
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
  EXPECT_THAT(trace({"--led-by", "none"}, {"/bin/true"}).err, HasSubstr("--led-by none: has no rank-0.trace"));
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

// `lockstep run` of a config that names a suite, as a user meets it.

constexpr const char* kHead = R"(# Does it survive?
name: tried
suite: program
program:
  setup: "printf 'step 1\n' > {out}/state"
  resume: "cp {out}/state {resume}"
  failures: [kill, disk_full]
)";

constexpr const char* kGood = "  save: \"t={out}/.state.new; printf 'step 2\\\\n' > $t && sync $t && mv $t {out}/state && sync {out}\"\n";

constexpr const char* kInPlace = "  save: \"printf 'step 2\\\\n' > {out}/state\"\n";

class SuiteProgram : public testing::Test {
 protected:
  void write(const std::string& save) { write_text(folder_ / "tried.yaml", kHead + save); }
  ProgramEnd run(std::vector<std::string> words) {
    words.insert(words.begin(), LOCKSTEP_BINARY_DIR "/bin/lockstep");
    return Program(words, folder_.path(), {{"LOCKSTEP_RANK", LOCKSTEP_BINARY_DIR "/bin/fake_rank"}}).end();
  }
  const TempFolder folder_;
};

TEST_F(SuiteProgram, EndsWith0WhereNothingIsFound) {
  write(kGood);
  const ProgramEnd end = run({"run", "tried.yaml"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("No fault found"));
  for (const char* file : {"results.json", "report.html", "summary.md", "junit.xml", "operations.jsonl", "matrix.json"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / ("out/tried/" + std::string(file)))) << file;
  EXPECT_EQ(run({"report", "out/tried"}).out.substr(0, 5), end.out.substr(0, 5));
}

TEST_F(SuiteProgram, EndsWith1AndAScriptThatFindsTheFaultAgain) {
  write(kInPlace);
  const ProgramEnd end = run({"run", "tried.yaml", "--json"});
  EXPECT_EQ(end.code, 1) << end.err;
  const nlohmann::json suite = nlohmann::json::parse(end.out).at("laboratory");
  EXPECT_GT(suite.at("faults"), 0);
  const std::string replay = suite.at("findings").at(0).at("replay");
  ASSERT_THAT(replay, HasSubstr("sh "));
  const std::string script = replay.substr(3);
  const ProgramEnd again = Program({"/bin/sh", script}, folder_.path(), {}).end();
  EXPECT_EQ(again.code, 1) << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 trial (1 case), 1 wrong"));
}

TEST_F(SuiteProgram, SaysWhatItWouldDoAndWhatIsWrong) {
  write(kGood);
  const ProgramEnd plan = run({"plan", "tried.yaml"});
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.out, HasSubstr("suite program"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_EQ(run({"run", "tried.yaml", "--only", "kill@9:9"}).code, 6);
  EXPECT_EQ(run({"run", "tried.yaml", "--seeds", "0..3"}).code, 2);
  const ProgramEnd wrong = run({"run", "tried.yaml", "--set", "program.points=-1"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--set program.points=-1"));
  write("  save: true\n");
  EXPECT_THAT(run({"run", "tried.yaml"}).err, HasSubstr("tried.yaml:8:3: program.save lacks the placeholder {out}"));
}

TEST_F(SuiteProgram, RunsWithoutAnybodyWaitingAndRefusesWhatHasNoUse) {
  write_text(folder_ / "tried.yaml", "name: tried\nsuite: saver\nsaver: {search: kill, world_sizes: [1], points: 1, "
                                     "process_points: 1, planted: false}\n");
  const ProgramEnd begun = run({"run", "tried.yaml", "--detach"});
  EXPECT_EQ(begun.code, 0) << begun.err;
  EXPECT_THAT(begun.out, HasSubstr("lockstep wait "));
  EXPECT_EQ(run({"wait", "out/tried"}).code, 0);
  EXPECT_THAT(run({"status", "out/tried"}).out, HasSubstr("trials have run; exit status 0"));
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--launcher", "torchrun"}, {"--part", "0.1"}, {"--seeds", "0..2"}}) {
    std::vector<std::string> all{"run", "tried.yaml"};
    all.insert(all.end(), words.begin(), words.end());
    const ProgramEnd refused = run(all);
    EXPECT_EQ(refused.code, 2) << words[0];
    EXPECT_THAT(refused.err, HasSubstr(words[0]));
  }
}

}  // namespace
}  // namespace lockstep
