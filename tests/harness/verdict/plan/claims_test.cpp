// The section `claims`: what it says, and what it refuses by place.

#include "harness/verdict/questions/claims/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Nine lines: what tests append begins at line 10.
const std::string kMatrix =
    "# Does it hold?\n"
    "name: tiny\n"
    "question: claims\n"
    "seeds: 0..3\n"
    "reference: {layout: 1x24}\n"
    "axes: {layout: [8x3], negatives: [global, local]}\n"
    "power_controls: [{negatives: local}]\n"
    "expect: [{when: {negatives: global}, verdict: [equivalent, divergent, inconclusive]}]\n"
    "claims:\n";

std::string claim(const std::string& condition) {
  return kMatrix + "  - {id: A1, told: it learns, conditions: [" + condition + "]}\n";
}

TEST(Claims, AreReadWithTheirConditions) {
  const Matrix matrix =
      parse(kMatrix +
            "  - id: A1\n"
            "    told: \"local: it barely learns\"\n"
            "    expect: does not hold\n"
            "    shows: 8x3 global\n"
            "    conditions:\n"
            "      - {outcome: 8x3 local, is: [worse, different], against: 8x3 global, margin: 0.05}\n"
            "      - {value: accuracy_24, of: 1x24, within: [0, 0.1]}\n"
            "      - {ratio: seconds, of: 8x3 global, to: 8x3 local, within: [1.15, 1.25]}\n"
            "      - {gradient: 8x3 global, group: action_encoder, within: [0, 0]}\n"
            "      - {mechanism: 8x3 global, is: within_envelope}\n"
            "      - {rule: adaptive_as_written, at: 4x6, gives: layer}\n"
            "  - {id: A2, told: later, not_testable: no accelerator on this machine}\n");
  ASSERT_THAT(section_of<Claims>(matrix), SizeIs(2));
  const Claim& first = section_of<Claims>(matrix)[0];
  EXPECT_EQ(first.id, "A1");
  EXPECT_EQ(first.told, "local: it barely learns");
  EXPECT_EQ(first.expected, "does not hold");
  EXPECT_THAT(cells_of(first), ElementsAre("8x3 local", "8x3 global", "1x24"));
  ASSERT_THAT(first.conditions, SizeIs(6));
  const Condition& outcome = first.conditions[0];
  EXPECT_EQ(outcome.kind, Condition::Kind::outcome);
  EXPECT_THAT(outcome.is, ElementsAre("worse", "different"));
  EXPECT_EQ(outcome.against, "8x3 global");
  EXPECT_EQ(outcome.margin, 0.05);
  EXPECT_EQ(first.conditions[1].kind, Condition::Kind::value);
  EXPECT_EQ(first.conditions[1].high, 0.1);
  EXPECT_EQ(first.conditions[2].metric, "seconds");
  EXPECT_EQ(first.conditions[2].against, "8x3 local");
  EXPECT_EQ(first.conditions[3].metric, "ratio");
  EXPECT_EQ(first.conditions[3].group, "action_encoder");
  EXPECT_EQ(first.conditions[5].cell, "4x6");
  EXPECT_EQ(section_of<Claims>(matrix)[1].not_testable, "no accelerator on this machine");
}

TEST(Claims, RefuseConditionsThatSayNothing) {
  EXPECT_THAT(problems_of(claim("{outcom: 8x3 local, is: worse}")),
              ElementsAre(HasSubstr(
                  "m.yaml:10:45: a condition begins with outcome, value, ratio, gradient, mechanism, "
                  "rule, certified, samples, draws, first, suite, written, timing, not 'outcom'; did you mean outcome?")));
  EXPECT_THAT(problems_of(claim("{outcome: 8x3 local, is: wrose}")),
              ElementsAre(HasSubstr(
                  "is must be better, worse, higher, lower, equivalent, different, not 'wrose'; did "
                  "you mean worse?")));
  EXPECT_THAT(problems_of(claim("{outcome: 8x3 local}")), ElementsAre(HasSubstr("outcome needs is")));
  EXPECT_THAT(problems_of(claim("{outcome: 8x3 local, is: worse, margin: 0}")),
              ElementsAre(HasSubstr("margin must be a number greater than 0")));
  EXPECT_THAT(problems_of(claim("{outcome: 8x3 local, is: worse, within: [0, 1]}")),
              ElementsAre(HasSubstr("unknown key 'within'")));
  EXPECT_THAT(problems_of(claim("{value: accuracy_24, of: 8x3 local, within: [1, 0]}")),
              ElementsAre(HasSubstr("within [1, 0] is empty")));
  EXPECT_THAT(problems_of(claim("{value: accuracy_24, of: 8x3 local, within: 1}")),
              ElementsAre(HasSubstr("within must be two numbers")));
  EXPECT_THAT(problems_of(claim("{gradient: 8x3 local, group: temperature, of: norm, within: [1, 1]}")),
              ElementsAre(HasSubstr("of must be ratio, cosine, residual, not 'norm'")));
  EXPECT_THAT(problems_of(claim("{rule: adaptive_as_writen, at: 4x6, gives: layer}")),
              ElementsAre(HasSubstr("did you mean adaptive_as_written?")));
  EXPECT_THAT(problems_of(claim("{rule: adaptive, at: 4, gives: layer}")),
              ElementsAre(HasSubstr("at must be a layout such as 8x3, not '4'")));
  EXPECT_THAT(problems_of(claim("worse")), ElementsAre(HasSubstr("a condition must be a map, not 'worse'")));
}

TEST(Claims, RefuseCellsThatTheMatrixHasNot) {
  EXPECT_THAT(problems_of(claim("{outcome: 8x3 locale, is: worse}")),
              ElementsAre(HasSubstr("the matrix has no cell '8x3 locale'; did you mean 8x3 local?")));
  EXPECT_THAT(problems_of(claim("{ratio: seconds, of: 8x3 local, to: 9x3 global, within: [1, 2]}")),
              ElementsAre(HasSubstr("no cell '9x3 global'; did you mean 8x3 global?")));
  EXPECT_THAT(
      problems_of(kMatrix +
                  "  - {id: A1, told: it, shows: [9x9], conditions: [{outcome: 8x3 local, is: worse}]}\n"),
      ElementsAre(HasSubstr("the matrix has no cell '9x9'")));
  EXPECT_THAT(problems_of(claim("{outcome: 1x24, is: worse}")),
              ElementsAre(HasSubstr("'1x24' is a reference: it has no reference of its own")));
  EXPECT_THAT(problems_of(claim("{outcome: 1x24, is: better, against: 8x3 local}")), IsEmpty());
}

TEST(Claims, RefuseWhatIsNoClaim) {
  EXPECT_THAT(problems_of(kMatrix + "  - {told: it}\n"),
              ElementsAre(HasSubstr("a claim needs an id"), HasSubstr("needs conditions, or a reason")));
  EXPECT_THAT(
      problems_of(kMatrix +
                  "  - {id: A, told: it, not_testable: no}\n  - {id: A, told: it, not_testable: no}\n"),
      ElementsAre(HasSubstr("m.yaml:11:6: claim 'A' is given twice")));
  EXPECT_THAT(problems_of(kMatrix + "  - {id: A, told: it, not_testable: no, expect: hold}\n"),
              ElementsAre(HasSubstr(
                  "expect must be holds, does not hold, undecided, not testable here, waiting, not 'hold'")));
  EXPECT_THAT(problems_of(kMatrix + "  - {id: A, told: it, not_testable: no, conditons: []}\n"),
              ElementsAre(HasSubstr("unknown key 'conditons'; did you mean conditions?")));
  EXPECT_THAT(problems_of(kMatrix + "  {id: A}\n"),
              ElementsAre(HasSubstr("claims must be a list of maps, not a map")));
}

TEST(Claims, BelongToTheirQuestion) {
  EXPECT_THAT(problems_of(kHead + "axes: {layout: [8x3]}\nclaims: [{id: A, told: it, not_testable: no}]\n"),
              ElementsAre(HasSubstr(
                  "m.yaml:5:1: claims are judged by the question of claims; the question is mechanism")));
  const std::string none = kMatrix.substr(0, kMatrix.find("claims:\n"));
  EXPECT_THAT(problems_of(none), ElementsAre(HasSubstr("needs a section claims")));
  EXPECT_THAT(
      problems_of(
          "# Q?\nname: t\nquestion: claims\nseeds: 0..3\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n"
          "claims: [{id: A, told: it, not_testable: no}]\n"),
      ElementsAre(HasSubstr("needs power_controls")));
}

TEST(Claims, GoWithTheCellsThatAreLeftOut) {
  const std::string two = claim("{outcome: 8x3 local, is: worse}") +
                          "  - {id: A2, told: it, conditions: [{outcome: 8x3 global, is: equivalent}]}\n";
  const Matrix matrix = parse(two, only("negatives==global"));
  ASSERT_THAT(section_of<Claims>(matrix), SizeIs(1));
  EXPECT_EQ(section_of<Claims>(matrix).front().id, "A2");
}

TEST(Claims, MayLookIntoRuns) {
  const Matrix matrix = parse(kMatrix +
                              "  - id: B1\n"
                              "    told: it is partitioned rightly\n"
                              "    conditions:\n"
                              "      - {certified: 8x3 global, steps: 20}\n"
                              "      - {samples: 8x3 global, are: [as_reference, each_once]}\n"
                              "      - {draws: 8x3 global, are: apart}\n"
                              "      - {first: 8x3 local, step: 5, rank: -1, cause: negatives-missing}\n"
                              "      - {timing: speed_up, at: 2x24, within: [1.8, 2]}\n"
                              "  - {id: B3, told: later, waiting_for: checkpoints, expect: waiting}\n");
  ASSERT_THAT(section_of<Claims>(matrix), SizeIs(2));
  const std::vector<Condition>& conditions = section_of<Claims>(matrix)[0].conditions;
  ASSERT_THAT(conditions, SizeIs(5));
  EXPECT_EQ(conditions[0].step, 20);
  EXPECT_THAT(conditions[1].is, ElementsAre("as_reference", "each_once"));
  EXPECT_EQ(conditions[3].rank, -1);
  EXPECT_EQ(conditions[3].cause, "negatives-missing");
  EXPECT_EQ(conditions[4].metric, "speed_up");
  EXPECT_EQ(conditions[4].cell, "2x24");
  EXPECT_THAT(cells_of(section_of<Claims>(matrix)[0]), ElementsAre("8x3 global", "8x3 local"));
  EXPECT_EQ(section_of<Claims>(matrix)[1].waiting_for, "checkpoints");
}

TEST(Claims, RefuseWhatTheyCannotLookInto) {
  EXPECT_THAT(problems_of(claim("{certified: 1x24, steps: 5}")),
              ElementsAre(HasSubstr("is a reference: it has no reference of its own")));
  EXPECT_THAT(problems_of(claim("{certified: 8x3 global}")), ElementsAre(HasSubstr("certified needs steps")));
  EXPECT_THAT(problems_of(claim("{samples: 8x3 global, are: each_one}")),
              ElementsAre(HasSubstr("did you mean each_once?")));
  EXPECT_THAT(problems_of(claim("{timing: speedup, at: 2x24, within: [1, 2]}")),
              ElementsAre(HasSubstr("did you mean speed_up?")));
  EXPECT_THAT(problems_of(claim("{first: 8x3 global, step: soon}")),
              ElementsAre(HasSubstr("step must be a whole number")));
  EXPECT_THAT(problems_of(kMatrix + "  - {id: A1, told: t, waiting_for: later, not_testable: here}\n"),
              ElementsAre(HasSubstr("or what it is waiting_for")));
}

}  // namespace
}  // namespace lockstep
