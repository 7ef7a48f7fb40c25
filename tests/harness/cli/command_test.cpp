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
  const TemporaryFolder folder_;
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
  write_config("watch: {step_s: 1}\naxes: {layout: [3x2], env.FAULT: [kill@3, exit@3, throw@3, hang@3]}\n");
  const ProgramEnd end = run({"run", "c.yaml"});
  EXPECT_EQ(end.code, 3) << end.err;
  for (const char* says : {"died (rank 2, after 3 steps, forward): killed by signal 9 (SIGKILL)", "died (rank 2, after 3 steps, forward): exited with status 3",
                           "threw (rank 2, after 3 steps, forward): ValueError: no such file", "hung (rank 2, after 3 steps, forward): no progress for"}) {
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

TEST_P(CommandTrainer, RefusesWhatItCannotDoByPlaceAndSuggestsWhatWasMeant) {
  write_config("axes: {layout: [3x2]}\nlr: 0.1\n", " --x {row} {lr}");
  expect_usage_error(run({"plan", "c.yaml"}), AllOf(HasSubstr("c.yaml:4:1: cell '3x2': unknown placeholder {row}; did you mean {rows}?"),
                                                    HasSubstr("c.yaml:10:1: cell '3x2': lr is a setting of lockstep's own trainers")));
  write_config("axes: {layout: [3x2]}\nargs.rate: 1\nranks: emulated\nquestion: detection\n");
  expect_usage_error(run({"plan", "c.yaml"}), AllOf(HasSubstr("ranks must be real"), HasSubstr("plant your own mistakes through axes")));
  write_config("axes: {layout: [3x2]}\nargs.rate: 1\n");
  expect_usage_error(run({"plan", "c.yaml"}), HasSubstr("args.rate has no effect: the command has no placeholder {rate}"));
}

}  // namespace
}  // namespace lockstep
