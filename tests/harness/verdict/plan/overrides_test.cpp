#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenarios/energy/config.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
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
  EXPECT_THAT(problems_of(text, set({"backend=ncl"})), testing::ElementsAre(testing::HasSubstr("did you mean nccl?")));
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
  EXPECT_THAT(
      problems_of(kGrid + "expect: [{when: {dropout: 0}, verdict: divergent}]\n", set({"lr_scale=1"})),
      SizeIs(1));
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

TEST(Set, RefusesWhatItCannotSetAndNamesItself) {
  const auto expect_one = [](const std::string& option, const std::string& text) {
    EXPECT_THAT(problems_of(kGrid, set({option})), ElementsAre(HasSubstr(text))) << option;
  };
  expect_one("lrr=3", "--set lrr=3: unknown key 'lrr'; did you mean lr?");
  expect_one("steps", "--set steps: --set takes key=value");
  expect_one("=3", "--set =3: --set takes key=value");
  expect_one("steps=x", "--set steps=x: steps must be a whole number, not 'x'");
  expect_one("steps=", "--set steps=: steps must be a whole number, not nothing");
  expect_one("lr=[1, 2]", "lr must be a finite number, not a list");
  expect_one("lr_scale=[]", "lr_scale has no value");
  expect_one("layout=8", "layout must be VxB");
  expect_one("axes={lr: [1]}", "axes can be set only in the file");
  expect_one("expect=[]", "expect can be set only in the file");
  expect_one("forced.repeat=1", "forced.repeat is set by the planner");
  expect_one("seed=1", "did you mean seeds?");
  expect_one("steps=[", "not YAML");
  expect_one("layout=5x5", "--set layout=5x5: cell '5x5 local' and 3 more: a step has 5 x 5 = 25 rows");
  EXPECT_THAT(problems_of(kGrid, set({"steps=3", "steps=4"})),
              ElementsAre("--set steps=4: steps is set twice"));
}

TEST(Seeds, OfTheCommandLineReplaceTheFiles) {
  Overrides overrides;
  overrides.seeds = "3..5";
  EXPECT_THAT(parse(kGrid + "question: mechanism\nseeds: 9\n", overrides).seeds, ElementsAre(3, 4, 5));
  overrides.seeds = "7,1";
  EXPECT_THAT(parse(kGrid + "question: mechanism\n", overrides).seeds, ElementsAre(7, 1));
  overrides.seeds = "x";
  EXPECT_THAT(problems_of(kGrid, overrides),
              ElementsAre("--seeds x: seeds are written A..B, a,b,c, or one whole number"));
}

TEST(Seeds, OfTheCommandLineDoNotChangeTheQuestion) {
  Overrides overrides;
  overrides.seeds = "3";
  EXPECT_EQ(parse(kGrid + "seeds: 0..9\npower_controls: [{lr_scale: 0.125}]\n", overrides).question,
            "outcome");
  overrides.seeds = "0..9";
  EXPECT_EQ(parse(kGrid, overrides).question, "mechanism");
}

TEST(Seeds, OfTheCommandLineMayBeFewerThanAnOutcomeNeeds) {
  Overrides overrides;
  overrides.seeds = "3";
  EXPECT_THAT(
      problems_of(kGrid + "question: outcome\nseeds: 0..9\npower_controls: [{lr_scale: 0.125}]\n", overrides),
      IsEmpty());
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

TEST(Only, NamesItsMistakesWithTheirColumn) {
  const auto expect_one = [](const std::string& expression, const std::string& text) {
    EXPECT_THAT(problems_of(kGrid, only(expression)), ElementsAre(HasSubstr(text))) << expression;
  };
  expect_one("negative==local", "--only:1:1: unknown key 'negative'; did you mean negatives?");
  expect_one("layout==8x3 && negatives==lokal",
             "--only:1:27: negatives must be local, global, layer, mixed, adaptive or adaptive_as_written, "
             "not 'lokal'; did you mean local?");
  expect_one("layout==8x3 lr_scale=1", "--only:1:13: expected && or || before 'lr_scale'");
  expect_one("layout==", "--only:1:9: expected a value at the end");
  expect_one("(layout==8x3", "--only:1:13: expected ')'");
  expect_one("a & b", "--only:1:3: a single '&'; did you mean &&?");
  expect_one("a || ", "--only:1:6: expected a key or a part of a name at the end");
  expect_one("name=='x", "--only:1:7: a quotation mark is not closed");
  expect_one("&& a", "--only:1:1: expected a key or a part of a name, not '&&'");
  expect_one(std::string(100000, '('), "nested more than 200 deep");
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

}  // namespace
}  // namespace lockstep
