#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <set>

#include "harness/base/json.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/checks.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/plan_history.h"
#include "harness/plan/matrix/read_matrix.h"
#include "scenarios/energy/spec.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST(Cells, AreTheProductOfAxesInTheOrderWritten) {
  const Matrix matrix = parse(kHead + "axes: {layout: [8x3, 3x8], negatives: [local, global]}\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("8x3 local", "8x3 global", "3x8 local", "3x8 global"));
  EXPECT_EQ(matrix.cells[2].config.layout, (Layout{3, 8}));
  EXPECT_EQ(energy(matrix.cells[2].config).negatives, Negatives::local);
  EXPECT_THAT(matrix.cells[2].settings, ElementsAre(Pair("layout", "3x8"), Pair("negatives", "local")));
}

TEST(Cells, WithoutAxesAreOneCell) {
  EXPECT_THAT(names_of(parse(kHead + "layout: 8x3\n")), ElementsAre("8x3"));
}

TEST(Cells, LeaveDefaultsOutOfTheirNames) {
  const Matrix matrix =
      parse(kHead + "axes: {lr_scale: [1, 0.125], layout: [8x3], rank_seed: [keyed, same]}\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("8x3", "8x3 rank_seed=same", "8x3 lr_scale=0.125",
                                            "8x3 lr_scale=0.125 rank_seed=same"));
}

TEST(Cells, NameADefaultThatIsNotTheMatrixsBaseValue) {
  EXPECT_THAT(names_of(parse(kHead + "layout: 8x3\nlr_scale: 0.5\naxes: {lr_scale: [1, 0.5]}\n")),
              ElementsAre("8x3 lr_scale=1", "8x3 lr_scale=0.5"));
}

TEST(Cells, NameNegativesThatAreNotTheDefault) {
  EXPECT_THAT(names_of(parse(kHead + "axes: {layout: [8x3]}\nnegatives: local\n")), ElementsAre("8x3 local"));
}

TEST(Cells, HaveUniqueNamesEvenIfDefaultsWouldHideTheDifference) {
  // Base lr 0.01; one included cell sets the struct's default 0.001 and is named; the others are not.
  const Matrix matrix =
      parse(kHead + "layout: 8x3\nlr: 0.01\ninclude: [{lr: 0.001}, {layout: 8x3}, {lr: 0.02}]\n");
  const std::vector<std::string> names = names_of(matrix);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 3u);
  EXPECT_THAT(names, ElementsAre("8x3 lr=0.001", "8x3", "8x3 lr=0.02"));
}

TEST(Cells, WithOneNameAndTwoConfigsAreToldApartByTheirHash) {
  // A file's name that reads like another setting.
  const Matrix matrix = parse(kHead +
                              "layout: 8x3\ndata: {source: ts_files, train_file: a, test_file: b}\ninclude:\n"
                              "  - {data.train_file: c, data.stride: 3}\n"
                              "  - {data.train_file: c data.stride=3}\n");
  const std::vector<std::string> names = names_of(matrix);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0], "8x3 data.train_file=c data.stride=3");
  EXPECT_EQ(names[1], names[0] + " #" + config_hash(matrix.cells[1].config).substr(0, 8));
}

TEST(Cells, MayHaveAReferenceOfTheirOwn) {
  const Matrix matrix = parse(
      "name: m\nsteps: 100\nallow_unequal_batch: true\nreference: {same_as: cell, layout: 1x24, lr_rule: "
      "none}\n"
      "question: mechanism\naxes: {layout: [8x3]}\n"
      "include: [{lr_rule: sqrt, reference: {layout: 1x3, steps: 800}}, {reference: {layout: 1x3, steps: "
      "800}}]\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("8x3", "8x3 lr_rule=sqrt against 1x3", "8x3 against 1x3"));
  EXPECT_EQ(matrix.cells[0].reference.layout, (Layout{1, 24}));
  EXPECT_EQ(matrix.cells[1].reference.layout, (Layout{1, 3}));
  EXPECT_EQ(matrix.cells[1].reference.steps, 800);
  EXPECT_EQ(matrix.cells[1].reference.lr_rule, LrRule::none);
}

TEST(Cells, OfAProductMayBeTheirOwnReferenceInAnOutcome) {
  const std::string text =
      "name: m\nreference: {same_as: cell, layout: 1x24, lr_scale: 1}\naxes: {layout: [1x24, 8x3]}\n"
      "include: [{layout: 8x3, lr_scale: 0.125}]\n";
  const Matrix matrix = parse(text + "seeds: 0..3\nquestion: outcome\npower_controls: [{lr_scale: 0.125}]\n");
  EXPECT_TRUE(matrix.cells[0].anchor);
  EXPECT_EQ(matrix.cells[0].reference_name, "1x24");
  EXPECT_FALSE(matrix.cells[1].anchor);
}

TEST(Cells, OfNoiseAreTheFirstReferenceButForWhatTheyName) {
  const std::string head =
      "name: m\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\ninclude: [{lr_scale: 0.125}]\nseeds: 0..3\n"
      "power_controls: [{lr_scale: 0.125}]\n";
  const Matrix matrix = parse(head + "noise: [row_order, epsilon]\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("8x3", "8x3 lr_scale=0.125", "A/A 1x24 perturb=row_order",
                                            "A/A 1x24 perturb=epsilon"));
  EXPECT_TRUE(matrix.cells[2].noise);
  EXPECT_TRUE(matrix.cells[2].expected.empty());
  EXPECT_EQ(matrix.cells[2].config.layout, (Layout{1, 24}));
  EXPECT_EQ(matrix.cells[2].config.perturb, Perturbation::row_order);
  EXPECT_THAT(problems_of(head + "noise: [none]\n"),
              ElementsAre(HasSubstr("an A/A pair must differ in something")));
}

TEST(Cells, ThatNoiseOfNamesGetPairsOfTheirOwn) {
  const std::string head =
      "name: m\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n"
      "include: [{lr_scale: 8, seeds: [0, 1, 2]}, {lr_scale: 0.125}]\nseeds: 0..3\npower_controls: [{lr_scale: "
      "0.125}]\n";
  const Matrix matrix = parse(head + "noise: [epsilon]\nnoise_of: [{lr_scale: 8}]\n");
  ASSERT_THAT(names_of(matrix), ElementsAre("8x3", "8x3 lr_scale=8", "8x3 lr_scale=0.125", "A/A 1x24 perturb=epsilon",
                                            "A/A 8x3 lr_scale=8 perturb=epsilon"));
  const Cell& pair = matrix.cells[4];
  EXPECT_TRUE(pair.noise);
  EXPECT_EQ(pair.reference_name, "8x3 lr_scale=8");
  EXPECT_EQ(pair.reference.lr_scale, 8);
  EXPECT_EQ(pair.reference.perturb, Perturbation::none);
  EXPECT_EQ(pair.config.layout, (Layout{8, 3}));
  EXPECT_EQ(pair.config.perturb, Perturbation::epsilon);
  EXPECT_THAT(pair.seeds, ElementsAre(0, 1, 2));
  // The cell's own runs are the pair's references: each is planned once.
  const Plan plan = make_plan(matrix, "", {});
  const auto trained = [&](double scale, Perturbation perturb) {
    return std::ranges::count_if(plan.runs, [&](const PlannedRun& run) {
      return (run.role == RunRole::cell || run.role == RunRole::reference) && run.config.lr_scale == scale &&
             run.config.perturb == perturb;
    });
  };
  EXPECT_EQ(trained(8, Perturbation::none), 3);
  EXPECT_EQ(trained(8, Perturbation::epsilon), 3);
  EXPECT_THAT(problems_of(head + "noise: [epsilon]\nnoise_of: [{lr_scale: 3}]\n"),
              ElementsAre(HasSubstr("this rule of A/A pairs matches no cell")));
  EXPECT_THAT(problems_of(head + "noise_of: [{lr_scale: 8}]\n"),
              ElementsAre(HasSubstr("noise_of sets which cells get A/A pairs, and noise what differs in them: it "
                                    "is missing")));
}

TEST(Cells, WhoseReferenceHasNoControlAreNamed) {
  const std::string head =
      "name: m\nreference: {same_as: cell, layout: 1x24, lr_scale: 1}\nseeds: 0..3\nquestion: outcome\n"
      "axes: {layout: [8x3], negatives: [global, layer]}\npower_controls: [{lr_scale: 0.125}]\n";
  const std::string global = "{negatives: global, lr_scale: 0.125}", layer = "{negatives: layer, lr_scale: 0.125}";
  EXPECT_THAT(references_without_control(parse(head + "include: [" + global + "]\n")), ElementsAre("1x24 layer"));
  EXPECT_THAT(references_without_control(parse(head + "include: [" + global + ", " + layer + "]\n")), IsEmpty());
  // What decides nothing of learning makes no other question.
  const std::string both = head + "include: [" + global + ", " + layer;
  EXPECT_THAT(references_without_control(parse(both + ", {bucket_cap_bytes: 4096}]\n")), IsEmpty());
}

TEST(Cells, ExcludedByValueOrListAreLeftOut) {
  const Matrix matrix =
      parse(kHead +
            "layout: 8x3\naxes: {negatives: [local, global], lr_rule: [none, linear, sqrt]}\n"
            "exclude: [{negatives: local, lr_rule: [linear, sqrt]}]\n");
  EXPECT_THAT(names_of(matrix),
              ElementsAre("8x3 local", "8x3 global", "8x3 global lr_rule=linear", "8x3 global lr_rule=sqrt"));
}

TEST(Cells, IncludedTakeTheFirstValueOfAxesTheyDoNotName) {
  const Matrix matrix =
      parse(kHead + "axes: {layout: [8x3, 3x8], negatives: [local]}\ninclude: [{lr_scale: 0.5}]\n");
  EXPECT_THAT(names_of(matrix), ElementsAre("8x3 local", "3x8 local", "8x3 local lr_scale=0.5"));
  EXPECT_THAT(matrix.cells.back().settings,
              ElementsAre(Pair("layout", "8x3"), Pair("negatives", "local"), Pair("lr_scale", "0.5")));
}

TEST(Cells, HaveAReferenceOfBaseValuesAndItsOwnKeys) {
  const Matrix matrix = parse(
      "name: x\nsteps: 30\ndropout: 0\nreference: {layout: 1x24, negatives: global}\n"
      "axes: {layout: [8x3], lr_scale: [0.5], negatives: [local]}\n");
  const Cell& cell = matrix.cells.at(0);
  EXPECT_EQ(cell.reference_name, "1x24 global");
  EXPECT_EQ(cell.reference.layout, (Layout{1, 24}));
  EXPECT_EQ(energy(cell.reference).negatives, Negatives::global);
  EXPECT_EQ(cell.reference.lr_scale, 1.0);
  EXPECT_EQ(energy(cell.reference).dropout, 0.0);
  EXPECT_EQ(cell.reference.steps, 30);
  EXPECT_FALSE(cell.paired);
}

TEST(Cells, HaveTheirOwnReferenceIfItIsTheSameAsTheCell) {
  const Matrix matrix = parse(
      "name: x\nranks: real\nreference: {same_as: cell, ranks: emulated}\n"
      "axes: {layout: [3x8, 8x3], lr_scale: [1, 0.5]}\n");
  for (const Cell& cell : matrix.cells) {
    EXPECT_TRUE(cell.paired);
    EXPECT_EQ(cell.config.backend, Backend::gloo);
    EXPECT_EQ(cell.reference.backend, Backend::emulated);
    EXPECT_EQ(cell.reference.layout, cell.config.layout);
    EXPECT_EQ(cell.reference.lr_scale, cell.config.lr_scale);
    EXPECT_EQ(cell.reference_name, cell.name + " ranks=emulated");
  }
}

TEST(Cells, ShareAReferenceThatDiffersFromThemByLayoutAlone) {
  const Matrix matrix = parse(
      "name: x\nreference: {same_as: cell, layout: 1x24}\n"
      "axes: {layout: [3x8, 8x3], optimizer: [sgd, adam]}\n");
  std::set<std::string> references;
  for (const Cell& cell : matrix.cells) references.insert(cell.reference_name);
  EXPECT_THAT(references, ElementsAre("1x24", "1x24 optimizer=sgd"));
}

TEST(Cells, BearThePlantedFaultAndReferencesDoNot) {
  const std::string text = "name: x\nmutant: {name: grad_scale, factor: 8}\nlayout: 8x3\n";
  const Cell plain = parse(text + "reference: {layout: 1x24}\n").cells.at(0);
  EXPECT_EQ(plain.config.mutant.name, "grad_scale");
  EXPECT_EQ(plain.config.mutant.factor, 8.0);
  EXPECT_EQ(plain.reference.mutant, MutantConfig{});
  const Cell paired = parse(text + "reference: {same_as: cell, layout: 1x24}\n").cells.at(0);
  EXPECT_EQ(paired.reference.mutant, MutantConfig{});
  const Cell both =
      parse(text + "reference: {layout: 1x24, mutant: {name: grad_scale, factor: 8}}\n").cells.at(0);
  EXPECT_EQ(both.reference.mutant, both.config.mutant);
}

TEST(Cells, OfOneProcessAreNeverReal) {
  const Cell cell =
      parse("name: x\nranks: real\nreference: {layout: 1x24}\naxes: {lr: [2]}\nlayout: 1x24\n").cells.at(0);
  EXPECT_EQ(cell.config.backend, Backend::emulated);
  EXPECT_EQ(cell.reference.backend, Backend::emulated);
}

TEST(Cells, TakeTheFirstExpectationThatMatches) {
  const Matrix matrix = parse(kHead +
                              "axes: {layout: [8x3, 3x8, 2x12]}\n"
                              "expect:\n"
                              "  - {when: {layout: 8x3}, verdict: divergent}\n"
                              "  - {when: {layout: [8x3, 3x8]}, verdict: [identical, within_envelope]}\n");
  EXPECT_THAT(matrix.cells[0].expected, ElementsAre(VerdictKind::divergent));
  EXPECT_THAT(matrix.cells[1].expected, ElementsAre(VerdictKind::identical, VerdictKind::within_envelope));
  EXPECT_THAT(matrix.cells[2].expected, IsEmpty());
}

TEST(Cells, ThatArePowerControlsExpectDivergence) {
  const Matrix matrix = parse(kHead +
                              "seeds: 0..3\nlayout: 8x3\naxes: {lr_scale: [1, 0.125]}\n"
                              "power_controls: [{lr_scale: 0.125}]\n");
  EXPECT_FALSE(matrix.cells[0].power_control);
  EXPECT_TRUE(matrix.cells[1].power_control);
  EXPECT_THAT(matrix.cells[1].expected, ElementsAre(VerdictKind::divergent));
}

TEST(Matrix, AsksForTheOutcomeIfThereAreSeveralSeeds) {
  EXPECT_EQ(parse(kHead + "layout: 8x3\n").question, "mechanism");
  EXPECT_EQ(
      parse(kHead + "seeds: 0..3\nlayout: 8x3\naxes: {lr_scale: [0.1]}\npower_controls: [{lr_scale: 0.1}]\n")
          .question,
      "outcome");
  EXPECT_EQ(parse(kHead + "layout: 8x3\nseeds: 0..3\nquestion: mechanism\n").question, "mechanism");
}

TEST(Matrix, TakesItsQuestionFromTheFirstLine) {
  const Matrix matrix = parse(kHead + "layout: 8x3\n");
  EXPECT_EQ(matrix.question_text, "Is it so?");
  EXPECT_EQ(matrix.file, "m.yaml");
  EXPECT_EQ(parse("name: x\nlayout: 8x3\nreference: {layout: 1x24}\n").question_text, "");
}

TEST(Matrix, ClipsForcedStepsToTheRunsLength) {
  EXPECT_THAT(parse(kHead + "layout: 8x3\n").forced_steps,
              ElementsAre(0, 1, 2, 5, 10, 20, 50, 100, 200, 500));
  EXPECT_THAT(parse(kHead + "layout: 8x3\nsteps: 20\n").forced_steps, ElementsAre(0, 1, 2, 5, 10));
  EXPECT_THAT(parse(kHead + "layout: 8x3\nforced_steps: [19, 3, 20]\n", set({"steps=20"})).forced_steps,
              ElementsAre(3, 19))
      << "who shortens a run on the command line need not name its steps anew";
  EXPECT_THAT(parse(kHead + "layout: 8x3\nforced_steps: []\n").forced_steps, IsEmpty());
}

TEST(Matrix, ReadsItsScalars) {
  const Matrix matrix = parse(kHead +
                              "layout: 8x3\nquestion: mechanism\nranks: auto\ncertify_steps: 7\n"
                              "primary: {metric: accuracy_256, margin: 0.5, alpha: 0.1}\n"
                              "band: {floor: 2}\n");
  EXPECT_EQ(matrix.name, "tiny");
  EXPECT_EQ(matrix.ranks, RanksPolicy::automatic);
  EXPECT_EQ(matrix.certify_steps, 7);
  EXPECT_EQ(matrix.primary.metric, "accuracy_256");
  EXPECT_EQ(matrix.primary.margin, 0.5);
  EXPECT_EQ(matrix.primary.alpha, 0.1);
  EXPECT_EQ(matrix.band.floor, 2);
}

TEST(Matrix, TakesRelativeDataFilesFromTheConfigsFolder) {
  const std::string text =
      "name: x\nlayout: 8x3\nreference: {layout: 1x24}\n"
      "data: {source: ts_files, train_file: ../a.ts, test_file: /abs/b.ts}\n";
  const Matrix matrix = parse_matrix(text, "dir/sub/m.yaml", {});
  EXPECT_EQ(matrix.cells[0].config.data.train_file, "dir/a.ts");
  EXPECT_EQ(matrix.cells[0].config.data.test_file, "/abs/b.ts");
  EXPECT_EQ(matrix.cells[0].reference.data.train_file, "dir/a.ts");
  const Matrix overridden = parse_matrix(text, "dir/sub/m.yaml", set({"data.train_file=here.ts"}));
  EXPECT_EQ(overridden.cells[0].config.data.train_file, "here.ts");
}

// `seeds: auto`, as a config asks for it.

using testing::Contains;

const std::string kAuto =
    "name: x\nsteps: 100\nquestion: outcome\nseeds: auto\nreference: {layout: 1x24}\n"
    "axes: {layout: [8x3], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

TEST(SeedsAuto, BeginsWithTheFirstLook) {
  const Matrix matrix = parse(kAuto + "seeds_auto: {first: 4, step: 3, most: 12}\n");
  EXPECT_TRUE(matrix.seeds_auto.on);
  EXPECT_THAT(matrix.seeds, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(analysis_sizes(matrix.seeds_auto), ElementsAre(4, 7, 10, 12));
}

TEST(SeedsAuto, IsAnOutcomesUnlessSaidOtherwise) {
  EXPECT_EQ(
      parse("name: x\nseeds: auto\nreference: {layout: 1x24}\naxes: {layout: [8x3], lr_scale: [1, 0.125]}\n"
            "power_controls: [{lr_scale: 0.125}]\n")
          .question,
      "outcome");
}

TEST(SeedsAuto, GivesWayToSeedsOfTheCommandLine) {
  Overrides overrides;
  overrides.seeds = "3..5";
  const Matrix matrix = parse(kAuto, overrides);
  EXPECT_FALSE(matrix.seeds_auto.on);
  EXPECT_THAT(matrix.seeds, ElementsAre(3, 4, 5));
}

TEST(SeedsAuto, RefusesLooksThatCannotBe) {
  EXPECT_THAT(problems_of(kAuto + "seeds_auto: {first: 50, most: 40}\n"),
              Contains(HasSubstr("m.yaml:8:14: the first interim analysis has 50 seeds, more than the last with 40")));
  EXPECT_THAT(problems_of(kAuto + "seeds_auto: {step: 1, most: 500}\n"),
              Contains(HasSubstr("more than 100 interim analyses")));
}

TEST(SeedsAuto, AReferenceRunsWhatItsNeediestCellRuns) {
  Matrix matrix = parse(kAuto + "seeds_auto: {first: 2, step: 2, most: 6}\n");
  ASSERT_EQ(matrix.cells.size(), 2u);
  set_analysis(matrix, {2, 6});
  EXPECT_THAT(matrix.seeds, ElementsAre(0, 1, 2, 3, 4, 5));
  const Plan plan = make_plan(matrix, "", {});
  std::map<std::string, std::set<int64_t>> seeds;
  for (const PlannedRun& run : plan.runs) {
    if (run.role == RunRole::cell || run.role == RunRole::reference) seeds[run.cell].insert(run.config.seed);
  }
  EXPECT_EQ(seeds[matrix.cells[0].name].size(), 2u);
  EXPECT_EQ(seeds[matrix.cells[1].name].size(), 6u);
  EXPECT_EQ(seeds[matrix.cells[0].reference_name].size(), 6u);
}

TEST(SeedsAuto, EarlierLooksRunsAreThoseOfLaterOnes) {
  Matrix matrix = parse(kAuto);
  const Plan first = make_plan(matrix, "", {});
  set_analysis(matrix, {10, 10});
  const Plan second = make_plan(matrix, "", {});
  std::set<std::string> hashes;
  for (const PlannedRun& run : second.runs) hashes.insert(run.hash);
  for (const PlannedRun& run : first.runs) EXPECT_TRUE(hashes.contains(run.hash)) << run.id;
}

TEST(SeedsAuto, ThePlanTellsTheFirstLookAndTheMost) {
  const std::string text = plan_text(make_plan(parse(kAuto), "", {}), 2);
  EXPECT_THAT(text, HasSubstr("paired, 5 to 40 seeds, 5 at a time, until decided"));
  EXPECT_THAT(text,
              HasSubstr("first interim analysis: 5 seeds; with all 40, if no cell is decided before: 105 more runs"));
  EXPECT_THAT(plan_json(make_plan(parse(kAuto), "", {}), 2), HasSubstr("\"seeds_auto\""));
}

Plan plan_of_layouts(const std::string& reference, const std::string& cell) {
  const std::string text = "name: m\ntrainer: energy\ndata: {source: synthetic, series: 900}\nsteps: 3\nseeds: 0\nquestion: mechanism\n"
                           "ranks: emulated\nforced_steps: [1]\ncertify_steps: 0\nreference: {layout: " +
                           reference + "}\naxes:\n  layout: [" + cell + "]\n";
  return make_plan(parse_matrix(text, "m.yaml", {}), "", {});
}

double most_of(const Plan& plan) {
  double most = 0;
  for (const PlannedRun& run : plan.runs) most = std::max(most, modelled_memory_bytes(run.config));
  return most;
}

TEST(PlannedMemory, OfManyRowsIsThatOfTheirScoresAndAPart) {
  const double few = most_of(plan_of_layouts("1x24", "8x3")), many = most_of(plan_of_layouts("1x1536", "512x3"));
  EXPECT_GT(few, 1e8);
  EXPECT_LT(few, 3e8);
  EXPECT_GT(many, few);
  EXPECT_LT(many, 8e9) << "not that of all pairs' activations, 22 GB in float64 with their gradients";
}

TEST(PlannedMemory, ThatTheMachineLacksIsRefusedByName) {
  const Plan plan = plan_of_layouts("1x1536", "512x3");
  EXPECT_THAT(lacking_memory(plan, 64e9), IsEmpty());
  EXPECT_THAT(lacking_memory(plan, 0), IsEmpty()) << "a machine of which nothing is known";
  const double most = most_of(plan);
  const std::vector<std::string> lacking = lacking_memory(plan, 0.99 * most);
  ASSERT_EQ(lacking.size(), 1U);
  EXPECT_THAT(lacking.front(), testing::AllOf(HasSubstr("needs about"), HasSubstr("this machine has")));
}

TEST(PlannedMemory, StandsInThePlan) {
  const Plan plan = plan_of_layouts("1x24", "8x3");
  EXPECT_THAT(plan_text(plan, 2), testing::AllOf(HasSubstr("MEMORY"), HasSubstr(" GB")));
  EXPECT_THAT(plan_json(plan, 2), HasSubstr("\"memory_bytes\""));
}

TEST(PlannedMemory, OfTheMachineIsKnown) { EXPECT_GT(machine_memory_bytes(), 1e8); }

const std::string kTimed = kHead +
                           "data: {source: synthetic}\nsteps: 50\nschedule: warmup\nwarmup_steps: 10\n"
                           "lr: 0.002\naxes: {layout: [8x3]}\n"
                           "timing: {layouts: [1x24, 8x3], steps: 40, repeats: 3}\n";

std::vector<PlannedRun> timed_runs(const Plan& plan) {
  std::vector<PlannedRun> runs;
  for (const PlannedRun& run : plan.runs) {
    if (run.role == RunRole::timing) runs.push_back(run);
  }
  return runs;
}

TEST(Timing, PlansEachLayoutSoOftenOnRealRanksWithoutATrace) {
  const std::vector<PlannedRun> runs = timed_runs(make_plan(parse(kTimed), "", {}));
  ASSERT_EQ(runs.size(), 6U);
  std::set<std::string> ids;
  std::map<std::string, int> names;
  for (const PlannedRun& run : runs) {
    EXPECT_TRUE(ids.insert(run.id).second) << run.id;
    ++names[run.cell];
    EXPECT_TRUE(run.exclusive);
    EXPECT_FALSE(run.reused);
    EXPECT_EQ(run.config.trace, TraceLevel::off);
    EXPECT_EQ(run.config.steps, 40);
    EXPECT_TRUE(run.config.eval_every.is_never());
    EXPECT_EQ(run.config.lr, 0.002) << "the matrix's base";
    EXPECT_EQ(run.config.warmup_steps, 0);
    EXPECT_EQ(run.config.backend, run.config.layout.world_size == 1 ? Backend::emulated : Backend::gloo);
    EXPECT_EQ(run.hash, config_hash(run.config));
    EXPECT_TRUE(run.needs.empty());
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"timing 1x24", 3}, {"timing 8x3", 3}}));
}

TEST(Timing, PlansNothingThatWasNotAskedFor) {
  EXPECT_THAT(timed_runs(make_plan(parse(kHead + "layout: 8x3\n"), "", {})), IsEmpty());
  EXPECT_THAT(timed_runs(make_plan(parse(kTimed, only("8x3")), "", {})), IsEmpty())
      << "a cell that is run again times nothing";
}

TEST(Timing, IsNeverReused) {
  const TempFolder folder;
  const BuildIdentity identity{"b", "t", "i", "d"};
  Plan plan = make_plan(parse(kTimed), folder.path(), identity);
  for (const PlannedRun& run : plan.runs) {
    const std::string dir = folder / ("runs/" + run.id);
    std::filesystem::create_directories(dir);
    write_text(dir + "/run.json", "{}");
    nlohmann::json done{{"config_hash", run.hash},
                        {"build", "b"},
                        {"libtorch", "t"},
                        {"isa", "i"},
                        {"data", "d"},
                        {"seconds", 2.0},
                        {"files", nlohmann::json::parse(evidence_json(dir))}};
    seal(done);
    write_text(dir + "/done", done.dump());
  }
  plan = make_plan(parse(kTimed), folder.path(), identity);
  for (const PlannedRun& run : plan.runs) {
    EXPECT_EQ(run.reused, run.role != RunRole::timing) << run.id;
    EXPECT_EQ(run.estimate_s, 2.0);
    if (run.role == RunRole::timing) {
      EXPECT_THAT(run.why, HasSubstr("never reused"));
    }
  }
  EXPECT_THAT(plan_text(plan, 2), HasSubstr("timing 8x3"));
}

TEST(Timing, TakesAllCoresInTheEstimate) {
  Plan plan;
  PlannedRun run;
  run.estimate_s = 10;
  plan.runs = {run, run};
  EXPECT_EQ(estimate_total_s(plan, 4), 10);
  plan.runs[0].exclusive = plan.runs[1].exclusive = true;
  EXPECT_EQ(estimate_total_s(plan, 4), 20);
}

TEST(TraceOff, IsComparedByItsResultsBetweenEqualLayoutsAlone) {
  const std::string paired =
      "# Is it so?\nname: x\nquestion: mechanism\nreference: {same_as: cell, trace: hash}\ncertify_steps: 0\n"
      "trace: off\nlayout: 3x8\n";
  EXPECT_THAT(problems_of(paired), IsEmpty());
  EXPECT_THAT(problems_of("# Is it so?\nname: x\nquestion: mechanism\nreference: {layout: 1x24}\n"
                          "certify_steps: 0\nforced_steps: []\ntrace: off\nlayout: 3x8\n"),
              ElementsAre(HasSubstr("trace: off keeps nothing to compare between two layouts")));
}

/// Keys and messages of what is wrong, one a line.
std::string wrong_with(const RunConfig& config, std::string_view question = "mechanism") {
  std::string text;
  const QuestionPlan& asks = question_named(question);
  for (const auto& [key, message] : training_problems(config, asks)) text += key + ": " + message + "\n";
  for (const auto& [key, message] : spec_of(config).problems(config, {asks.against_plain(), false})) {
    text += key + ": " + message + "\n";
  }
  return text;
}

bool names(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

TEST(TrainingChecks, SayNothingOfAPlainRun) { EXPECT_EQ(wrong_with({}), ""); }

TEST(TrainingChecks, RefuseAdamSqrtWhereItHasNoMeaning) {
  RunConfig config;
  config.layout = {8, 3};
  config.lr_rule = LrRule::adam_sqrt;
  EXPECT_EQ(wrong_with(config), "");
  config.optimizer = OptimizerKind::sgd;
  EXPECT_TRUE(names(wrong_with(config), "lr_rule: lr_rule adam_sqrt scales Adam's betas"))
      << wrong_with(config);
  config.optimizer = OptimizerKind::adamw;
  config.layout = {10, 3};
  EXPECT_TRUE(names(wrong_with(config), "beta1 0.9 and beta2 0.999 must exceed 0.9")) << wrong_with(config);
  config.beta1 = 0.95;
  EXPECT_EQ(wrong_with(config), "");
}

TEST(TrainingChecks, RefuseCheckpointsOfFaultsAndByMetricsThatDecideNothing) {
  RunConfig config;
  config.checkpoint.every = 10;
  EXPECT_EQ(wrong_with(config), "");
  config.checkpoint.best = "accuracy_24";
  EXPECT_EQ(wrong_with(config), "");
  config.checkpoint.best = "gradient_norm";
  EXPECT_TRUE(names(wrong_with(config), "checkpoint.best gradient_norm is no metric of evaluations")) << wrong_with(config);
  config.checkpoint.best.clear();
  config.mutant.name = "flip_bit";
  EXPECT_TRUE(names(wrong_with(config), "a cell with a mutant cannot have checkpoint.every")) << wrong_with(config);
}

TEST(TrainingChecks, RefuseASharedUpdateWhereNothingCanBeShared) {
  RunConfig config;
  config.layout = {8, 3};
  config.update = UpdatePartition::sharded;
  EXPECT_EQ(wrong_with(config), "");
  config.checkpoint.every = 10;
  EXPECT_TRUE(names(wrong_with(config), "update: checkpoints are made of a whole optimizer state")) << wrong_with(config);
  config.checkpoint.every = 0;
  config.arithmetic = Arithmetic::exact;
  EXPECT_TRUE(names(wrong_with(config), "update: exact arithmetic sums every gradient on every rank")) << wrong_with(config);
}

TEST(TrainingChecks, RefuseBfloat16InACertificate) {
  RunConfig config;
  config.precision = Precision::bfloat16;
  EXPECT_EQ(wrong_with(config), "");
  EXPECT_TRUE(names(wrong_with(config, "certificate"), "precision: a certificate"));
  config.oracle_world = 3;
  EXPECT_TRUE(names(wrong_with(config), "precision: a certificate"));
}

TEST(TrainingChecks, RefusePerturbationsThatChangeMoreThanTheySay) {
  RunConfig config;
  config.perturb = Perturbation::row_order;
  EXPECT_EQ(wrong_with(config), "");
  EXPECT_TRUE(names(wrong_with(config, "certificate"), "perturb: a certificate"));
  RunConfig by_rank = config;
  by_rank.rank_seed = RankSeed::plus_rank;
  EXPECT_TRUE(names(wrong_with(by_rank), "rank_seed keyed"));
  RunConfig as_written = config;
  energy(as_written).layer.as_written = true;
  EXPECT_EQ(wrong_with(as_written), "") << "no negatives are made";
  energy(as_written).negatives = Negatives::layer;
  EXPECT_TRUE(names(wrong_with(as_written), "layer.as_written"));
}

TEST(TrainingChecks, RefusePerturbationsThatChangeNothing) {
  RunConfig config;
  config.perturb = Perturbation::row_order;
  config.layout = {24, 1};
  EXPECT_TRUE(names(wrong_with(config), "no other order"));
  config.layout = {12, 2};
  EXPECT_EQ(wrong_with(config), "");
  config.accumulation = 2;
  EXPECT_TRUE(names(wrong_with(config), "no other order"));
  config = {};
  config.perturb = Perturbation::random_draws;
  energy(config).dropout = energy(config).context_noise = 0;
  EXPECT_TRUE(names(wrong_with(config), "nothing is drawn"));
  energy(config).negatives = Negatives::layer;
  EXPECT_EQ(wrong_with(config), "");
}

TEST(TrainingChecks, StandInTheMatrixWithTheirPlace) {
  const std::vector<std::string> problems =
      problems_of(kHead + "axes:\n  layout: [8x3]\noptimizer: sgd\nlr_rule: adam_sqrt\n");
  ASSERT_FALSE(problems.empty());
  EXPECT_TRUE(names(problems.front(), "m.yaml:7:1:")) << problems.front();
  EXPECT_TRUE(names(problems.front(), "adam_sqrt")) << problems.front();
}

}  // namespace
}  // namespace lockstep
