#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/plan/read_matrix.h"
#include "scenarios/energy/config.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

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

TEST(Cells, ThatStandTwiceAreRefused) {
  EXPECT_THAT(problems_of(kHead + "axes: {layout: [8x3]}\ninclude: [{layout: 8x3}]\n"),
              ElementsAre("m.yaml:5:12: cell '8x3' occurs twice in the matrix"));
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

TEST(Cells, OfUnequalBatchesSeeAsManySamples) {
  const std::string head =
      "name: m\nsteps: 100\nallow_unequal_batch: true\nquestion: mechanism\nlayout: 8x3\n";
  EXPECT_THAT(problems_of(head + "reference: {layout: 1x3, steps: 800}\n"), IsEmpty());
  EXPECT_THAT(problems_of(head + "reference: {layout: 1x3}\n"), IsEmpty());
  EXPECT_THAT(
      problems_of(head + "reference: {layout: 1x3, steps: 700}\n"),
      ElementsAre(HasSubstr("100 steps of 24 rows are 2400 samples, the reference's 700 of 3 are 2100")));
}

TEST(Cells, OfAProductMayBeTheirOwnReferenceInAnOutcome) {
  const std::string text =
      "name: m\nreference: {same_as: cell, layout: 1x24, lr_scale: 1}\naxes: {layout: [1x24, 8x3]}\n"
      "include: [{layout: 8x3, lr_scale: 0.125}]\n";
  const Matrix matrix = parse(text + "seeds: 0..3\nquestion: outcome\npower_controls: [{lr_scale: 0.125}]\n");
  EXPECT_TRUE(matrix.cells[0].anchor);
  EXPECT_EQ(matrix.cells[0].reference_name, "1x24");
  EXPECT_FALSE(matrix.cells[1].anchor);
  EXPECT_THAT(problems_of(text + "question: mechanism\n"), ElementsAre(HasSubstr("is its own reference")));
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

}  // namespace
}  // namespace lockstep
