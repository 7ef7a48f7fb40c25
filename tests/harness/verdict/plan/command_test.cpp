// A matrix whose runs are a command: keys that users name, what is refused, which run reads which, and what decides that a run is the same.

#include <gmock/gmock.h>

#include <algorithm>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kCommand =
    "# Is it so?\nname: tiny\ntrainer: command\ncommand: torchrun --nproc-per-node {ranks} train.py --batch {rows} --seed {seed} --lr {rate} ${HOME}\n"
    "args: {rate: 0.1}\nsteps: 30\nreference: {layout: 1x24}\n";

TEST(CommandMatrix, TakesAxesOfVariablesAndArguments) {
  const Matrix matrix = parse(kCommand + "axes: {layout: [3x8], env.FSDP: [0, true], args.rate: [0.1, 0.2]}\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("3x8 env.FSDP=0 args.rate=0.1", "3x8 env.FSDP=0 args.rate=0.2", "3x8 env.FSDP=true args.rate=0.1",
                                            "3x8 env.FSDP=true args.rate=0.2"));
  const RunConfig& last = matrix.cells.back().config;
  const CommandLine line = spec_of(last).command(last, "/out/runs/x");
  EXPECT_THAT(line.shell, HasSubstr("--nproc-per-node 3 train.py --batch 8 --seed 0 --lr 0.2 ${HOME}"));
  EXPECT_THAT(line.variables, ElementsAre(std::pair("FSDP", "true")));
  EXPECT_TRUE(line.starts_ranks);
  EXPECT_FALSE(spec_of(last).command(parse(kCommand + "axes: {layout: [3x8]}\n", set({"command=train.py --lr {rate}"})).cells.front().config, "").starts_ranks);
}

TEST(CommandMatrix, PutsTheRunsFolderInAsOneWordAndArgumentsAsTheyAre) {
  const auto line = [](const std::string& command) {
    const Matrix matrix = parse("name: tiny\ntrainer: command\ncommand: " + command + "\nargs: {more: \"--a 1 --b\"}\nmetrics_from: \"{out}/m.csv\"\nreference: {layout: 1x24}\naxes: {layout: [3x8]}\n");
    return spec_of(matrix.cells[0].config).command(matrix.cells[0].config, "/o/a $(b)'c");
  };
  EXPECT_EQ(line("train.py {more} --out {out}/x").shell, R"(train.py --a 1 --b --out '/o/a $(b)'\''c'/x)");
  EXPECT_EQ(line("train.py {more} --out \"{out}/x\"").shell, R"(train.py --a 1 --b --out "/o/a \$(b)'c/x")");
  EXPECT_EQ(line("train.py {more}").metrics_from.substr(line("train.py {more}").metrics_from.find("/o/")), "/o/a $(b)'c/m.csv");
}

TEST(CommandMatrix, HasRealRanksAndNoRunsThatOnlyOurTrainersHave) {
  const Plan plan = make_plan(parse(kCommand + "axes: {layout: [3x8]}\n"), "/nowhere", {});
  ASSERT_EQ(plan.runs.size(), 2U);
  EXPECT_EQ(plan.runs[1].config.backend, Backend::gloo);
  EXPECT_THAT(plan.runs[1].needs, IsEmpty());
}

TEST(CommandMatrix, RunsThatReplayWaitForTheirReferenceOfTheSameSeed) {
  const Plan plan = make_plan(parse(kCommand + "replay: true\nseeds: 0..1\nquestion: mechanism\naxes: {layout: [3x8]}\n"), "/nowhere", {});
  ASSERT_EQ(plan.runs.size(), 4U);
  for (const std::size_t seed : {0U, 1U}) {
    EXPECT_THAT(plan.runs[2 + seed].needs, ElementsAre(plan.runs[seed].id));
    const RunConfig& config = plan.runs[2 + seed].config;
    EXPECT_EQ(spec_of(config).command(config, "").against, plan.runs[seed].id);
    EXPECT_THAT(plan.runs[seed].config.snapshot_steps, ElementsAre(0, 1, 2, 5, 10, 20));
  }
}

TEST(CommandMatrix, RefusesAnUnknownPlaceholderByPlaceWithTheNearest) {
  EXPECT_THAT(problems_of(kCommand, set({"command=train.py --x {rnks} --lr {rate}"})), Contains(HasSubstr("unknown placeholder {rnks}; did you mean {ranks}?")));
  EXPECT_THAT(problems_of(kCommand + "env.LOCKSTEP_TRACE: x\n"), Contains(HasSubstr("m.yaml:8:1: cell '1x24': env.LOCKSTEP_TRACE is set by lockstep itself")));
}

TEST(CommandMatrix, RefusesWhatDescribesTrainingThatLockstepDoesItself) {
  for (const char* key : {"lr: 0.1", "optimizer: sgd", "checkpoint.every: 5", "mutant.name: grad_scale", "accumulation: 2", "trace: off"})
    EXPECT_THAT(problems_of(kCommand + "axes: {layout: [3x8]}\n" + key + "\n"), Not(IsEmpty())) << key;
  EXPECT_THAT(problems_of(kCommand + "axes: {layout: [3x8]}\nloss: hard\n"), ElementsAre(HasSubstr("loss is a key of trainer energy; this matrix trains command")));
  EXPECT_THAT(problems_of("name: x\nreference: {layout: 1x24}\nenv: {A: 1}\n"), Contains(HasSubstr("env.A is a key of trainer command; this matrix trains energy")));
  EXPECT_THAT(problems_of(kCommand + "axes: {layout: [3x8]}\nenv: {\"1A\": 1}\n"), Not(IsEmpty()));
}

const std::string kDetection = kCommand + "question: detection\naxes: {layout: [3x8], env.A: [\"\", x], env.B: [\"\", y]}\n";

TEST(CommandDetection, PlantsWhatItsSwitchesAreSaidToAndTakesTheRestForClean) {
  const Matrix matrix = parse(kDetection +
                              "seeds: 7..8\ndetection:\n  faults:\n    - {when: {env.A: x}, cause: [loss-times-world, unexplained], step: 3}\n"
                              "    - {when: {env.B: y}, cause: rank-died, phase: failed, rank: 1, step: 2}\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("3x8 #7", "3x8 #8", "3x8 env.B=y #7", "3x8 env.B=y #8", "3x8 env.A=x #7", "3x8 env.A=x #8",
                                            "3x8 env.A=x env.B=y #7", "3x8 env.A=x env.B=y #8"));
  EXPECT_THAT(matrix.cells[1].expected, ElementsAre(VerdictKind::identical, VerdictKind::within_envelope, VerdictKind::inconclusive));
  EXPECT_THAT(matrix.cells[3].expected, ElementsAre(VerdictKind::failed));
  EXPECT_THAT(matrix.cells[4].expected, ElementsAre(VerdictKind::divergent));
  EXPECT_THAT(matrix.cells[6].expected, ElementsAre(VerdictKind::failed)) << "of two the one that shows first";
  EXPECT_EQ(matrix.cells[1].config.seed, 8);
  EXPECT_EQ(make_plan(matrix, "/nowhere", {}).runs.size(), 10U);
  EXPECT_THAT(plan_text(make_plan(matrix, "/nowhere", {})), HasSubstr("8 trials, 6 with a planted fault and 2 clean"));
}

TEST(CommandDetection, RefusesFaultsThatSayNothingByPlace) {
  const auto problems = [](const std::string& faults) { return problems_of(kDetection + "detection:\n  faults:\n" + faults); };
  EXPECT_THAT(problems("    - {when: {env.A: x}, caus: unexplained}\n"),
              ElementsAre(HasSubstr("m.yaml:12:7: a fault needs cause"), HasSubstr("m.yaml:12:26: unknown key 'caus'; did you mean cause?")));
  EXPECT_THAT(problems("    - {cause: unexplained}\n"), ElementsAre(HasSubstr("m.yaml:12:7: a fault needs when")));
  EXPECT_THAT(problems("    - {when: {env.A: z}, cause: unexplained}\n"), ElementsAre(HasSubstr("m.yaml:12:7: this fault matches no cell")));
  EXPECT_THAT(problems("    - {when: {env.A: x}, cause: unexplained, step: 30}\n"), ElementsAre(HasSubstr("step 30 of this fault is never reached in 30 steps")));
  EXPECT_THAT(problems("    - {when: {env.A: x}, cause: unexplained, rank: 1}\n"), ElementsAre(HasSubstr("it needs phase: failed")));
  EXPECT_THAT(problems("    - {when: {env.A: x}, cause: unexplained, step: never}\n"), ElementsAre(HasSubstr("m.yaml:12:52: step must be a whole number")));
  EXPECT_THAT(problems("    - {when: {env.A: x}, cause: unexplained}\n    - {when: {env.B: y}, cause: unexplained}\n"),
              ElementsAre(HasSubstr("m.yaml:13:7: cell '3x8 env.A=x env.B=y' has two faults that must show first at step 0")));
  EXPECT_THAT(problems("    - {when: {env.A: x}, cause: unexplained}\nenv.A: x\n"), ElementsAre(HasSubstr("has env.A=x too, so nothing is planted")));
  EXPECT_THAT(problems_of(kDetection), ElementsAre(HasSubstr("needs detection.faults: what each of its switches plants")));
  EXPECT_THAT(problems_of(kDetection + "detection: {faults: [], clean: 3, mutants: all, seeds: 1}\nexpect: [{when: {}, verdict: divergent}]\n"),
              ElementsAre(HasSubstr("detection.faults must be a list of maps"), HasSubstr("detection.clean draws trials"),
                          HasSubstr("detection.mutants are faults of lockstep's own trainers"), HasSubstr("detection.seeds are of drawn trials"),
                          HasSubstr("expect is not allowed in a detection matrix")));
}

TEST(CommandDetection, IsNotAskedOfOtherTrainersOrByOtherQuestions) {
  const std::string faults = "detection: {faults: [{when: {layout: 3x8}, cause: unexplained}]}\n";
  EXPECT_THAT(problems_of("name: x\nquestion: detection\n" + faults), Contains(HasSubstr("detection.faults are planted by switches of a command")));
  EXPECT_THAT(problems_of(kCommand + "axes: {layout: [3x8]}\n" + faults), Contains(HasSubstr("the question is mechanism")));
}

TEST(CommandMatrix, IsTheSameWhereverItsFilesAre) {
  const Matrix here = parse(kCommand + "folder: /here\naxes: {layout: [3x8]}\n"), there = parse(kCommand + "folder: /there\naxes: {layout: [3x8]}\n");
  EXPECT_EQ(config_hash(here.cells[0].config), config_hash(there.cells[0].config));
  // A variable that another matrix names is no part of this one.
  const std::string before = canonical_json(here.cells[0].config);
  parse(kCommand + "axes: {layout: [3x8], env.SEEN_ELSEWHERE: [1, 2]}\n");
  EXPECT_EQ(canonical_json(here.cells[0].config), before);
  EXPECT_EQ(config_hash(run_config_from_json(before, "run.json")), config_hash(here.cells[0].config));
}

TEST(CommandSources, AreThoseBesideTheScriptWhateverElseIsThere) {
  const TempFolder folder;
  for (const char* name : {"code/train.py", "code/model/net.py", "code/notes.txt", "code/.git/config.py", "code/env/pyvenv.cfg", "code/env/lib.py", "data.bin", "other.py"}) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    write_text(folder / name, "1");
  }
  const auto hash = [&](const std::string& more = "") {
    const Matrix matrix = parse("name: x\ntrainer: command\ncommand: python code/train.py\nreference: {layout: 1x6}\naxes: {layout: [3x2]}\nfolder: " + folder.path() + "\n" + more);
    const RunConfig& config = matrix.cells[0].config;
    return spec_of(config).inspect_data(config).hash + " " + spec_of(config).data_words(config);
  };
  const std::string first = hash();
  EXPECT_THAT(first, HasSubstr("2 source files"));
  for (const char* name : {"code/notes.txt", "code/.git/config.py", "code/env/lib.py", "other.py"}) write_text(folder / name, "2");
  EXPECT_EQ(hash(), first);
  const std::string with_data = hash("files: \"*.bin\"\n");
  write_text(folder / "data.bin", "2");
  EXPECT_NE(hash("files: \"*.bin\"\n"), with_data);
  EXPECT_EQ(hash(), first);
  write_text(folder / "code/model/net.py", "2");
  EXPECT_NE(hash(), first);
  EXPECT_THROW(hash("files: none.txt\n"), ConfigError);
}

}  // namespace
}  // namespace lockstep
