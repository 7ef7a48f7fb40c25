#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/checks.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/read_matrix.h"
#include "scenarios/energy/spec.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// kHead has three lines: what tests append begins at line 4.
const std::string kGood = kHead + "axes: {layout: [8x3, 3x8]}\n";

/// A row of refused.txt again, with the problems that there are now.
std::string judged_row(const std::string& base, const std::string& row) {
  const auto lines_of = [](const std::string& text) { return replaced(text, "\\n", "\n"); };
  std::string text = lines_of(base) + "\n";
  Overrides overrides;
  if (row.starts_with("--set ")) overrides.set = {row.substr(6)};
  else if (row.starts_with("--only ")) overrides.only = row.substr(7);
  else if (row.starts_with("--seeds ")) overrides.seeds = row.substr(8);
  else text = (base.empty() ? "" : text) + lines_of(row) + "\n";
  std::string judged = row;
  for (std::string problem : problems_of(text, overrides)) {
    if (problem.starts_with("m.yaml:")) problem.erase(0, 7);
    judged += (judged == row ? " => " : "\n  => ") + problem;
  }
  return judged == row ? row + " => fine" : judged;
}

TEST(MatrixReader, RefusesWhatTheTableSays) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/tests/harness/plan/matrix/refused.txt", table = read_text(path);
  std::istringstream lines(table);
  std::string base, now;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  => ")) continue;
    if (line.starts_with("== ")) base = line.substr(3);
    const bool row = !line.starts_with("#") && !line.starts_with("== ");
    now += (row ? judged_row(base, line.substr(0, line.rfind(" => "))) : line) + "\n";
  }
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN")) write_text(path, now);
  EXPECT_EQ(table, now);
}

TEST(MatrixReader, ReadsSeedsInEveryForm) {
  const auto seeds = [](const std::string& text) {
    return parse(kGood + "question: mechanism\nseeds: " + text + "\n").seeds;
  };
  EXPECT_THAT(seeds("2..4"), ElementsAre(2, 3, 4));
  EXPECT_THAT(seeds("[5, 1]"), ElementsAre(5, 1));
  EXPECT_THAT(seeds("7"), ElementsAre(7));
  EXPECT_THAT(seeds("0,3"), ElementsAre(0, 3));
  EXPECT_THAT(parse(kGood).seeds, ElementsAre(0));
}

TEST(MatrixChecks, RefuseFaultsOfAnotherTrainer) {
  RunConfig config;
  config.mutant.name = "temperature_detached";
  config.second_mutant.name = "sample_dropped";  // it fits every trainer
  EXPECT_THAT(fault_problems(config), IsEmpty());
  config.trainer = "regression";
  EXPECT_THAT(fault_problems(config),
              ElementsAre(testing::Pair(
                  "mutant.name",
                  "mutant.name temperature_detached is a fault of trainer energy, and trainer is regression: "
                  "set trainer to energy, or choose a mutant that `lockstep list mutants` shows without a "
                  "trainer, or with regression")));
}

TEST(MatrixReader, SaysAllProblemsAtOnceInTheOrderOfTheFile) {
  EXPECT_THAT(
      problems_of(
          "lr: fast\nname: x\nsedes: 1\nprimary: {alpha: 2}\nreference: {lyout: 1x24}\naxes: {layout: [9]}\n",
          set({"lrr=3", "steps"})),
      ElementsAre(StartsWith("m.yaml:1:5: lr must be"), StartsWith("m.yaml:3:1: unknown key 'sedes'"),
                  StartsWith("m.yaml:4:18: primary.alpha"), StartsWith("m.yaml:5:13: unknown key 'lyout'"),
                  StartsWith("m.yaml:6:17: layout must be"), StartsWith("--set lrr=3: unknown key 'lrr'"),
                  StartsWith("--set steps: --set takes key=value")));
}

TEST(MatrixReader, NamesAFileThatCannotBeRead) {
  try {
    read_matrix("/nonexistent/m.yaml", {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "/nonexistent/m.yaml: cannot be read: No such file or directory");
  }
  EXPECT_THROW(read_matrix("/tmp", {}), ConfigError);
}

using testing::SizeIs;

const std::string kGrid =
    kHead + "axes: {layout: [8x3, 3x8], negatives: [local, global], lr_scale: [1, 0.125]}\n";

TEST(Set, GivesABaseValueToCellsAndReferences) {
  const Matrix matrix = parse(kGrid, set({"steps=7", "data.stride=3", "optimizer=sgd"}));
  EXPECT_EQ(matrix.cells[0].config.steps, 7);
  EXPECT_EQ(matrix.cells[0].reference.steps, 7);
  EXPECT_EQ(energy(matrix.cells[0].config).data.stride, 3);
  EXPECT_EQ(matrix.cells[0].config.optimizer, OptimizerKind::sgd);
}

TEST(Set, OverridesTheFileAndOpensGroups) {
  const Matrix matrix =
      parse(kGrid + "lr: 0.5\ndata: {stride: 4}\n", set({"lr=0.25", "data={stride: 5, shuffle: false}"}));
  EXPECT_EQ(matrix.cells[0].config.lr, 0.25);
  EXPECT_EQ(energy(matrix.cells[0].config).data.stride, 5);
  EXPECT_FALSE(matrix.cells[0].config.data.shuffle);
}

TEST(Set, ReachesScalarsOfTheMatrixAndTheReference) {
  const Matrix matrix = parse(kGrid, set({"primary.margin=0.1", "certify_steps=3", "ranks=real", "seeds=4",
                                          "forced_steps=[0, 3]", "reference.layout=2x12"}));
  EXPECT_EQ(matrix.primary.margin, 0.1);
  EXPECT_EQ(matrix.certify_steps, 3);
  EXPECT_EQ(matrix.ranks, RanksPolicy::real);
  EXPECT_EQ(matrix.cells[0].config.backend, Backend::gloo);
  EXPECT_THAT(matrix.seeds, ElementsAre(4));
  EXPECT_EQ(matrix.cells[0].config.seed, 4);
  EXPECT_THAT(matrix.forced_steps, ElementsAre(0, 3));
  EXPECT_EQ(matrix.cells[0].reference.layout, (Layout{2, 12}));
}

TEST(Set, RefusesATransportThatNoRealRankWouldHave) {
  const std::string text = "name: x\nseeds: 0\nsteps: 9\nbackend: nccl\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n";
  EXPECT_EQ(parse(text).cells[0].config.transport, Transport::nccl);
  for (const std::vector<std::string>& without : {std::vector<std::string>{"ranks=emulated"}, {"certify_steps=0"}}) {
    EXPECT_THAT(problems_of(text, set(without)),
                testing::ElementsAre(testing::HasSubstr("4:1: backend nccl has no effect: no run of this matrix has real ranks")))
        << without[0];
  }
  EXPECT_EQ(parse(text, set({"ranks=real", "certify_steps=0"})).cells[0].config.backend, Backend::gloo);
}

TEST(Set, ReplacesAnAxis) {
  EXPECT_THAT(names_of(parse(kGrid, set({"layout=4x6", "lr_scale=1"}))),
              ElementsAre("4x6 local", "4x6 global"));
  EXPECT_THAT(names_of(parse(kGrid, set({"layout=[4x6, 2x12]", "lr_scale=1", "negatives=local"}))),
              ElementsAre("4x6 local", "2x12 local"));
}

TEST(Set, MayNarrowAnAxisThatRulesMention) {
  const std::string rules =
      "expect: [{when: {lr_scale: 0.125}, verdict: divergent}]\nexclude: [{layout: 3x8, lr_scale: 1}]\n";
  EXPECT_THAT(names_of(parse(kGrid + rules, set({"lr_scale=1"}))), ElementsAre("8x3 local", "8x3 global"));
  // Of a key that was not set, the rule is still held to match something.
}

TEST(Set, PlantsAFaultInCellsAlone) {
  const Matrix matrix = parse(kGrid, set({"mutant.name=flip_bit", "mutant.step=17", "mutant.rank=2"}));
  for (const Cell& cell : matrix.cells) {
    EXPECT_EQ(cell.config.mutant.name, "flip_bit");
    EXPECT_EQ(cell.config.mutant.step, 17);
    EXPECT_EQ(cell.config.mutant.rank, 2);
    EXPECT_EQ(cell.reference.mutant, MutantConfig{});
  }
  EXPECT_THAT(names_of(matrix), testing::ContainerEq(names_of(parse(kGrid))));
}

TEST(Set, TakesAKeyOnce) {
  EXPECT_THAT(problems_of(kGrid, set({"steps=3", "steps=4"})),
              ElementsAre("--set steps=4: steps is set twice"));
}

TEST(Seeds, OfTheCommandLineReplaceTheFiles) {
  Overrides overrides;
  overrides.seeds = "3..5";
  EXPECT_THAT(parse(kGrid + "question: mechanism\nseeds: 9\n", overrides).seeds, ElementsAre(3, 4, 5));
  overrides.seeds = "7,1";
  EXPECT_THAT(parse(kGrid + "question: mechanism\n", overrides).seeds, ElementsAre(7, 1));
}

TEST(Seeds, OfTheCommandLineDoNotChangeTheQuestion) {
  Overrides overrides;
  overrides.seeds = "3";
  EXPECT_EQ(parse(kGrid + "seeds: 0..9\npower_controls: [{lr_scale: 0.125}]\n", overrides).question,
            "outcome");
  overrides.seeds = "0..9";
  EXPECT_EQ(parse(kGrid, overrides).question, "mechanism");
}

std::vector<std::string> selected(const std::string& expression) {
  return names_of(parse(kGrid, only(expression)));
}

TEST(Only, ComparesByValue) {
  EXPECT_THAT(selected("lr_scale==0.1250 && layout==8x3"),
              ElementsAre("8x3 local lr_scale=0.125", "8x3 global lr_scale=0.125"));
  EXPECT_THAT(selected("negatives==local && lr_scale!=1"),
              ElementsAre("8x3 local lr_scale=0.125", "3x8 local lr_scale=0.125"));
  EXPECT_THAT(selected("negatives=local && lr_scale=1"), ElementsAre("8x3 local", "3x8 local"));
  EXPECT_THAT(selected("data.source==synthetic"), IsEmpty());
}

TEST(Only, BindsNotBeforeAndBeforeOr) {
  EXPECT_THAT(selected("layout==3x8 && negatives==local && lr_scale==1 || layout==8x3 && !(negatives==local "
                       "|| lr_scale==1)"),
              ElementsAre("8x3 global lr_scale=0.125", "3x8 local"));
  EXPECT_THAT(selected("!!(layout==8x3)&&!lr_scale=1 && !local"), ElementsAre("8x3 global lr_scale=0.125"));
}

TEST(Only, FindsPartsOfNamesAndValues) {
  EXPECT_THAT(selected("0.125 && 8x"), ElementsAre("8x3 local lr_scale=0.125", "8x3 global lr_scale=0.125"));
  EXPECT_THAT(selected("name~'x8 local'"), ElementsAre("3x8 local", "3x8 local lr_scale=0.125"));
  EXPECT_THAT(selected("layout~3x && negatives~loc"), ElementsAre("3x8 local", "3x8 local lr_scale=0.125"));
  EXPECT_THAT(selected("\"8x3 loc\" && lr_scale=1"), ElementsAre("8x3 local"));
}

TEST(Only, TakesTheExactNameOfACell) {
  EXPECT_THAT(selected("8x3 local"), ElementsAre("8x3 local"));
  EXPECT_THAT(selected("3x8 global lr_scale=0.125"), ElementsAre("3x8 global lr_scale=0.125"));
  EXPECT_THAT(selected("name=='8x3 local'"), ElementsAre("8x3 local"));
  EXPECT_THAT(selected("name!='8x3 local'"), SizeIs(7));
}

TEST(Only, MaySelectNothing) { EXPECT_THAT(selected("nothing_like_it"), IsEmpty()); }

TEST(Only, IsNotNestedTooDeep) {
  EXPECT_THAT(problems_of(kGrid, only(std::string(100000, '('))), ElementsAre(HasSubstr("nested more than 200 deep")));
}

TEST(Only, LeavesChecksOfOtherCellsOut) {
  // Rank 5 exists in 8x3 alone.
  Overrides overrides = set({"mutant.name=flip_bit", "mutant.rank=5"});
  EXPECT_THAT(problems_of(kGrid, overrides), SizeIs(1));
  overrides.only = "layout==8x3";
  EXPECT_THAT(problems_of(kGrid, overrides), IsEmpty());
}

TEST(Only, KeepsPowerControlsOnlyIfTheyAreSelected) {
  const std::string outcome = kGrid + "question: outcome\nseeds: 0..9\npower_controls: [{lr_scale: 0.125}]\n";
  EXPECT_THAT(parse(outcome, only("lr_scale==1")).cells, SizeIs(4));
  EXPECT_TRUE(parse(outcome, only("0.125")).cells.at(0).power_control);
}

// A matrix whose runs are a command: keys that users name, what is refused, which run reads which, and what decides that a run is the same.

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

TEST(CommandMatrix, RunsThatAreLedWaitForTheirReferenceOfTheSameSeed) {
  const Plan plan = make_plan(parse(kCommand + "led: true\nseeds: 0..1\nquestion: mechanism\naxes: {layout: [3x8]}\n"), "/nowhere", {});
  ASSERT_EQ(plan.runs.size(), 4U);
  for (const std::size_t seed : {0U, 1U}) {
    EXPECT_THAT(plan.runs[2 + seed].needs, ElementsAre(plan.runs[seed].id));
    const RunConfig& config = plan.runs[2 + seed].config;
    EXPECT_EQ(spec_of(config).command(config, "").led_by, plan.runs[seed].id);
    for (const std::size_t run : {seed, 2 + seed}) EXPECT_THAT(plan.runs[run].config.snapshot_steps, ElementsAre(0, 1, 2, 5, 10, 20));
  }
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
