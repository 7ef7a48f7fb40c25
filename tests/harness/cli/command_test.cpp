// `trainer: command`: the built program trains what a command starts, names what goes wrong with its ranks, and reuses what has not changed.

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"

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

}  // namespace
}  // namespace lockstep
