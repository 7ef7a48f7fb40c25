#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

TEST(MatrixReader, AcceptsTheLeastMatrix) { EXPECT_THAT(problems_of(kGood), IsEmpty()); }

TEST(MatrixReader, RefusesAnUnknownKeyWithItsPlaceAndTheNearest) {
  EXPECT_THAT(problems_of(kGood + "sedes: 3\n"),
              ElementsAre("m.yaml:5:1: unknown key 'sedes'; did you mean seeds?"));
  EXPECT_THAT(problems_of(kGood + "data: {strid: 3}\n"),
              ElementsAre("m.yaml:5:8: unknown key 'data.strid'; did you mean data.stride?"));
  EXPECT_THAT(problems_of(kGood + "stride: 3\n"),
              ElementsAre("m.yaml:5:1: unknown key 'stride'; did you mean data.stride?"));
  EXPECT_THAT(problems_of(kGood + "zebra: 3\n"), ElementsAre("m.yaml:5:1: unknown key 'zebra'"));
}

TEST(MatrixReader, RefusesToGoOnFromWhatCannotBe) {
  const auto problem = [](const std::string& cell, const std::string& more = "") {
    return problems_of(kGood + "steps: 100\ninclude:\n  - {layout: 2x12, " + cell + "}\n" + more);
  };
  EXPECT_THAT(problem("resume_from: 3x8, resume_step: 10"), IsEmpty());
  EXPECT_THAT(problem("resume_from: 3x9, resume_step: 10"), Contains(HasSubstr("'3x9' is not a cell of this matrix; did you mean '3x8'?")));
  EXPECT_THAT(problem("resume_from: 3x8"), Contains(HasSubstr("resume_step is 0: it must lie within the steps that '3x8' trains")));
  EXPECT_THAT(problem("resume_from: 3x8, resume_step: 100"), Contains(HasSubstr("resume_step is 100")));
  EXPECT_THAT(problem("resume_step: 10"), Contains(HasSubstr("resume_from names no cell")));
  EXPECT_THAT(problem("resume_from: 3x8, resume_step: 10, lr: 0.5"), Contains(HasSubstr("trains differently")));
  EXPECT_THAT(problem("resume_from: 3x8, resume_step: 10, checkpoint.every: 5"), Contains(HasSubstr("cannot have checkpoint.every")));
  EXPECT_THAT(problem("resume_from: 3x8, resume_step: 10", "resume_from: 3x8\n"), Contains(HasSubstr("a reference cannot resume")));
}

TEST(MatrixReader, RefusesADuplicateKey) {
  EXPECT_THAT(problems_of(kGood + "lr: 1\nlr: 2\n"),
              ElementsAre("m.yaml:6:1: duplicate key 'lr'; it was given at line 5 already"));
  EXPECT_THAT(problems_of(kHead + "axes:\n  layout: [8x3]\n  layout: [3x8]\n"),
              ElementsAre("m.yaml:6:3: duplicate key 'layout'; it was given at line 5 already"));
  EXPECT_THAT(problems_of(kGood + "data: {stride: 2}\ndata.stride: 2\n"),
              ElementsAre("m.yaml:6:1: duplicate key 'data.stride': it is given with and without its group"));
}

TEST(MatrixReader, RefusesWrongTypes) {
  EXPECT_THAT(problems_of(kGood + "steps: many\n"),
              ElementsAre("m.yaml:5:8: steps must be a whole number, not 'many'"));
  EXPECT_THAT(problems_of(kGood + "steps: \"3\"\n"),
              ElementsAre("m.yaml:5:8: steps must be a whole number, not '3'"));
  EXPECT_THAT(problems_of(kGood + "steps: 1e2\n"),
              ElementsAre("m.yaml:5:8: steps must be a whole number, not '1e2'; did you mean 100?"));
  EXPECT_THAT(problems_of(kGood + "lr: [1, 2]\n"),
              ElementsAre("m.yaml:5:5: lr must be a finite number, not a list"));
  EXPECT_THAT(problems_of(kGood + "lr: .nan\n"),
              ElementsAre("m.yaml:5:5: lr must be a finite number, not '.nan'"));
  EXPECT_THAT(problems_of(kGood + "lr: inf\n"),
              ElementsAre("m.yaml:5:5: lr must be a finite number, not 'inf'"));
  EXPECT_THAT(problems_of(kGood + "data: {shuffle: yes}\n"),
              ElementsAre("m.yaml:5:17: data.shuffle must be true or false, not 'yes'"));
  EXPECT_THAT(
      problems_of(kGood + "optimizer: adma\n"),
      ElementsAre("m.yaml:5:12: optimizer must be sgd, adam or adamw, not 'adma'; did you mean adam?"));
  EXPECT_THAT(problems_of(kGood + "layout: 8\n"),
              ElementsAre("m.yaml:5:9: layout must be VxB, ranks x rows of each, such as 8x3, or fitx3, not '8'"));
  EXPECT_THAT(problems_of(kGood + "layout: 0x3\n"),
              ElementsAre(HasSubstr("m.yaml:5:9: layout must be VxB with 1 to")));
  EXPECT_THAT(problems_of(kGood + "data: 3\n"),
              ElementsAre("m.yaml:5:7: data must be a map of keys, not '3'"));
  EXPECT_THAT(problems_of(kGood + "steps: 99999999999999999999\n"),
              ElementsAre(HasSubstr("m.yaml:5:8: steps must be")));
}

TEST(MatrixReader, RefusesValuesOutOfRange) {
  EXPECT_THAT(problems_of(kGood + "dropout: 1\n"),
              ElementsAre("m.yaml:5:10: dropout must be in [0, 1), not 1"));
  EXPECT_THAT(problems_of(kGood + "temperature: 0\n"),
              ElementsAre("m.yaml:5:14: temperature must be in [1e-06, 1000000], not 0"));
  EXPECT_THAT(problems_of(kGood + "steps: 0\n"), ElementsAre(HasSubstr("m.yaml:5:8: steps must be in [1, ")));
  EXPECT_THAT(problems_of(kGood + "bucket_cap_bytes: -1\n"),
              ElementsAre(HasSubstr("m.yaml:5:19: bucket_cap_bytes")));
  EXPECT_THAT(problems_of(kGood + "primary: {margin: 0}\n"),
              ElementsAre(HasSubstr("5:19: primary.margin must be")));
  for (const char* margin : {"-0.1", ".nan", ".inf"}) {
    EXPECT_THAT(problems_of(kGood + "primary: {margin: " + margin + "}\n"),
                ElementsAre(HasSubstr("5:19: primary.margin must be")));
  }
  for (const char* alpha : {"0", "-0.05", "0.6", ".nan"}) {
    EXPECT_THAT(problems_of(kGood + "primary: {alpha: " + alpha + "}\n"),
                ElementsAre(HasSubstr("5:18: primary.alpha must be")));
  }
  EXPECT_THAT(problems_of(kGood + "primary: {alpha: 0.5}\n"),
              ElementsAre("m.yaml:5:18: primary.alpha must be in [1e-09, 0.5), not 0.5"));
  EXPECT_THAT(problems_of(kGood + "band: {floor: 0}\n"),
              ElementsAre(HasSubstr("5:15: band.floor must be in [1e-06, ")));
}

TEST(MatrixReader, KeepsTheplannersOwnFieldsToThePlanner) {
  EXPECT_THAT(problems_of(kGood + "forced: {from: x}\n"),
              ElementsAre("m.yaml:5:10: forced.from is set by the planner, not by a config"));
  EXPECT_THAT(problems_of(kGood + "stop_after: 3\n"), ElementsAre(HasSubstr("set by the planner")));
  EXPECT_THAT(problems_of(kGood + "seed: 3\n"), ElementsAre(HasSubstr("did you mean seeds?")));
}

TEST(MatrixReader, RefusesTextThatIsNoMatrix) {
  EXPECT_THAT(problems_of(""), ElementsAre("m.yaml:1:1: the config is empty"));
  EXPECT_THAT(problems_of("- 1\n"), ElementsAre("m.yaml:1:1: a config is a map of keys and values"));
  EXPECT_THAT(problems_of("a: [1\nb: 2\n"), ElementsAre(HasSubstr(": not YAML: ")));
  EXPECT_THAT(problems_of("a: {b: 1\n"), ElementsAre(StartsWith("m.yaml:")));
  EXPECT_THAT(problems_of(kGood + "lr: &a 0.1\n"), ElementsAre(HasSubstr("m.yaml:5:5: anchors")));
  EXPECT_THAT(problems_of(kGood + "---\nname: other\n"), Contains(HasSubstr("a second document")));
  EXPECT_THAT(problems_of(kGood + "? [a, b]\n: 3\n"),
              ElementsAre(HasSubstr("a key must be a word, not a list")));
}

TEST(MatrixReader, AsksForWhatIsMissing) {
  EXPECT_THAT(
      problems_of("steps: 3\n"),
      ElementsAre("m.yaml:1:1: name is missing: it names the output folder",
                  "m.yaml:1:1: reference is missing: what every cell should equal, such as {layout: 1x24}"));
  EXPECT_THAT(problems_of("name: ../x\nreference: {layout: 1x24}\nlayout: 8x3\n"),
              ElementsAre(HasSubstr("m.yaml:1:7: name must be letters, digits")));
}

TEST(MatrixReader, RefusesMalformedSections) {
  EXPECT_THAT(problems_of(kHead + "axes: {lr: []}\n"), ElementsAre("m.yaml:4:12: axis lr is empty"));
  EXPECT_THAT(problems_of(kHead + "axes: {}\n"), ElementsAre(HasSubstr("m.yaml:4:7: axes must be a map")));
  EXPECT_THAT(problems_of(kHead + "axes: {lr: 3}\n"),
              ElementsAre("m.yaml:4:12: axis lr must be a list of values, not '3'"));
  EXPECT_THAT(problems_of(kHead + "axes: {lr: [1, 1.0]}\n"),
              ElementsAre("m.yaml:4:16: lr has the value 1 twice"));
  EXPECT_THAT(problems_of(kGood + "exclude: {lr: 3}\n"),
              ElementsAre("m.yaml:5:10: exclude must be a list of maps, not a map"));
  EXPECT_THAT(
      problems_of(kGood + "include: [{}]\n"),
      ElementsAre("m.yaml:5:11: an item of include must be a map with at least one key, not an empty one"));
  EXPECT_THAT(problems_of(kGood + "expect: [{whn: {}, verdict: identical}]\n"),
              ElementsAre("m.yaml:5:11: unknown key 'whn'; did you mean when?"));
  EXPECT_THAT(problems_of(kGood + "expect: [{when: {}}]\n"),
              ElementsAre("m.yaml:5:10: an expectation needs a verdict"));
  EXPECT_THAT(problems_of(kGood + "expect: [{verdict: identicla}]\n"),
              ElementsAre(AllOf(HasSubstr("m.yaml:5:20: unknown verdict 'identicla'"),
                                HasSubstr("did you mean identical?"))));
  EXPECT_THAT(problems_of("name: x\nlayout: 8x3\nreference: 3\n"),
              ElementsAre("m.yaml:3:12: reference must be a map, not '3'"));
  EXPECT_THAT(problems_of("name: x\nlayout: 8x3\nreference: {same_as: cel}\n"),
              ElementsAre("m.yaml:3:13: same_as must be cell, not 'cel'"));
}

TEST(MatrixReader, ReadsSeedsInEveryFormAndRefusesTheRest) {
  const auto seeds = [](const std::string& text) {
    return parse(kGood + "question: mechanism\nseeds: " + text + "\n").seeds;
  };
  EXPECT_THAT(seeds("2..4"), ElementsAre(2, 3, 4));
  EXPECT_THAT(seeds("[5, 1]"), ElementsAre(5, 1));
  EXPECT_THAT(seeds("7"), ElementsAre(7));
  EXPECT_THAT(seeds("0,3"), ElementsAre(0, 3));
  EXPECT_THAT(parse(kGood).seeds, ElementsAre(0));
  EXPECT_THAT(problems_of(kGood + "seeds: 4..2\n"),
              ElementsAre("m.yaml:5:8: the seeds 4..2 end before they begin"));
  EXPECT_THAT(problems_of(kGood + "seeds: [1, 1]\n"), ElementsAre("m.yaml:5:8: seed 1 is given twice"));
  EXPECT_THAT(problems_of(kGood + "seeds: []\n"), ElementsAre(HasSubstr("m.yaml:5:8: seeds must be")));
  EXPECT_THAT(problems_of(kGood + "seeds: [1, x]\n"), ElementsAre(HasSubstr("m.yaml:5:12: a seed must be")));
  EXPECT_THAT(problems_of(kGood + "seeds: -1\n"), ElementsAre(HasSubstr("seed -1 is not in [0, 2^53)")));
  EXPECT_THAT(problems_of(kGood + "seeds: 0..99999999999\n"),
              ElementsAre(HasSubstr("more than 10000 seeds")));
}

TEST(MatrixChecks, RefuseABatchThatDiffersFromTheReferencesUnlessSaid) {
  const std::string uneven = kHead + "axes: {layout: [8x3, 5x5]}\n";
  EXPECT_THAT(
      problems_of(uneven),
      ElementsAre("m.yaml:4:8: cell '5x5': a step has 5 x 5 = 25 rows, the reference's has 1 x 24 = 24; "
                  "set allow_unequal_batch: true if that is intended"));
  EXPECT_THAT(problems_of(uneven + "allow_unequal_batch: true\n"), IsEmpty());
}

TEST(MatrixChecks, SayOneMistakeOfManyCellsOnce) {
  EXPECT_THAT(problems_of(kHead + "axes: {layout: [5x5], lr: [1, 2, 3]}\n"),
              ElementsAre(StartsWith("m.yaml:4:8: cell '5x5 lr=1' and 2 more: a step has")));
}

TEST(MatrixChecks, RefuseCombinationsThatCannotRun) {
  const auto expect_one = [](const std::string& text, const std::string& part) {
    EXPECT_THAT(problems_of(kGood + text), ElementsAre(HasSubstr(part))) << text;
  };
  expect_one("data: {block: 2, source: synthetic}\n",
             "m.yaml:5:8: cell '8x3': a rank's 3 rows are not whole blocks of 2 samples");
  expect_one("data: {correlation: 0.5}\n",
             "cell '8x3' and 1 more: blocks of alike samples exist only with source synthetic");
  expect_one("data: {correlation: 0.5, source: synthetic}\n",
             "m.yaml:5:8: cell '8x3' and 1 more: correlation needs at least two samples in a block");
  expect_one("data: {min_context: 17}\n",
             "m.yaml:5:8: cell '8x3' and 1 more: data.min_context 17 is longer than");
  expect_one("data: {source: synthetic, series_steps: 20}\n", "do not fit into series of 20");
  expect_one("data: {source: synthetic, series: 4}\n", "4 of 4 series held back leave none");
  expect_one("data: {source: synthetic, series: 5, stride: 50}\n",
             "2 training pairs are fewer than the 24 rows");
  expect_one("data: {context_steps: 90, action_steps: 20, min_context: 1}\n",
             "do not fit into series of 100");
  expect_one("data: {source: ts_files}\n", "needs data.train_file and data.test_file");
  expect_one("data: {train_file: a.ts}\n", "data.source is not ts_files");
  expect_one("schedule: warmup\n", "schedule warmup needs warmup_steps");
  expect_one("warmup_steps: 3\n", "warmup_steps has no effect with schedule constant");
  expect_one("schedule: cosine\nwarmup_steps: 600\n", "takes all of the 600 steps");
  expect_one("trace: off\n", "trace: off keeps nothing to compare");
}

TEST(MatrixChecks, RefuseALossWithoutNegatives) {
  EXPECT_THAT(problems_of("name: x\nreference: {layout: 1x8}\naxes: {layout: [8x1]}\nnegatives: local\n"),
              ElementsAre(HasSubstr("local negatives need at least 2 rows a rank")));
  EXPECT_THAT(problems_of("name: x\nreference: {layout: 1x1, lr: 2}\nlayout: 1x1\n"),
              ElementsAre(HasSubstr("a batch of one row has no negatives")));
}

TEST(MatrixChecks, RefuseFaultsThatCannotAct) {
  const auto expect_one = [](const std::string& text, const std::string& part) {
    EXPECT_THAT(problems_of(kGood + text), ElementsAre(HasSubstr(part))) << text;
  };
  expect_one("mutant: {name: flip_bit, rank: 5}\n",
             "m.yaml:5:26: cell '3x8': mutant.rank is 5; 3 ranks are numbered 0 to 2");
  expect_one("mutant: {name: die, step: 600}\n", "mutant.step 600 is never reached in 600 steps");
  expect_one("mutant: {name: grad_scale}\n", "grad_scale with mutant.factor 1 has no effect");
  expect_one("mutant: {step: 3}\n", "m.yaml:5:10: mutant.step has no effect: mutant.name is none");
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

TEST(MatrixChecks, RefuseFaultsInParametersThatTheModelLacks) {
  const auto expect_one = [](const std::string& text, const std::string& part) {
    EXPECT_THAT(problems_of(kGood + text), ElementsAre(HasSubstr(part))) << text;
  };
  expect_one("mutant: {name: flip_bit, tensor: energy_head.key.wieght}\n",
             "m.yaml:5:26: cell '8x3' and 1 more: mutant.tensor 'energy_head.key.wieght' is no parameter of "
             "the model; did you mean energy_head.key.weight?");
  expect_one("mutant: {name: grad_scale, factor: 8, tensor: action_encode.in}\n",
             "is no parameter or group of the model; did you mean action_encoder.in?");
  expect_one("mutant: {name: grad_scale, factor: 8, tensor: nosuch}\n",
             "names begin with context_encoder, action_encoder, energy_head, temperature");
  expect_one("second_mutant: {name: nan_gradient, tensor: energy_head}\n",
             "second_mutant.tensor 'energy_head' is no parameter of the model");
  expect_one("mutant: {name: sample_dropped, tensor: energy_head.key.weight}\n",
             "mutant.tensor has no effect: sample_dropped does not act on a chosen parameter");
  expect_one("mutant: {name: sign_flipped, tensor: action_head}\n", "is no parameter or group of the model");
  EXPECT_THAT(problems_of(kGood + "negatives: layer\nmutant: {name: sign_flipped, tensor: action_head}\n"),
              IsEmpty());
  EXPECT_THAT(problems_of(kGood + "mutant: {name: grad_scale, factor: 8, tensor: action_encoder.in}\n"),
              IsEmpty());
}

TEST(MatrixChecks, RefuseACellThatIsItsOwnReference) {
  EXPECT_THAT(
      problems_of(kHead + "axes: {layout: [1x24, 8x3]}\n"),
      ElementsAre("m.yaml:4:1: cell '1x24' is its own reference, so nothing would be compared; exclude it"));
  EXPECT_THAT(problems_of("name: x\nreference: {same_as: cell, ranks: emulated}\nlayout: 8x3\n"),
              ElementsAre(HasSubstr("is its own reference")));
}

TEST(MatrixChecks, RefuseStepsThatDifferFromTheReferences) {
  EXPECT_THAT(problems_of("name: x\nreference: {layout: 1x24, steps: 5}\nlayout: 8x3\n"),
              ElementsAre(HasSubstr("600 steps against the reference's 5")));
}

TEST(MatrixChecks, RefuseRulesThatMatchNoCell) {
  EXPECT_THAT(problems_of(kGood + "exclude: [{layout: 2x12}]\n"),
              ElementsAre("m.yaml:5:11: this exclude matches no cell"));
  EXPECT_THAT(problems_of(kGood + "expect: [{when: {lr: 3}, verdict: identical}]\n"),
              ElementsAre("m.yaml:5:10: this expectation matches no cell"));
  EXPECT_THAT(problems_of(kGood + "question: outcome\nseeds: 0..9\npower_controls: [{lr: 3}]\n"),
              ElementsAre("m.yaml:7:18: this power control matches no cell"));
}

TEST(MatrixChecks, HoldAnOutcomeToItsNeeds) {
  const std::string outcome = kHead + "axes: {lr_scale: [1, 0.125]}\nlayout: 8x3\nquestion: outcome\n";
  const std::string control = "power_controls: [{lr_scale: 0.125}]\n";
  EXPECT_THAT(problems_of(outcome + "seeds: 0..9\n" + control), IsEmpty());
  EXPECT_THAT(problems_of(outcome + "seeds: 0..9\n"),
              ElementsAre(HasSubstr("6:1: an outcome needs power_controls")));
  // One seed is no mistake: its verdict is that it shows nothing, with the number of seeds that would.
  EXPECT_THAT(problems_of(outcome + "seeds: 3\n" + control), IsEmpty());
  EXPECT_THAT(problems_of(outcome + "seeds: 0..9\n" + control + "expect: [{verdict: equivalent}]\n"),
              ElementsAre(HasSubstr("a power control must be expected to be divergent")));
  EXPECT_THAT(
      problems_of(outcome + "seeds: 0..9\n" + control + "expect: [{verdict: [identical, divergent]}]\n"),
      ElementsAre(HasSubstr("identical is not a verdict of the question of outcome")));
}

TEST(MatrixChecks, TheTestOfAnOutcomeIsTOrSign) {
  const std::string outcome = kHead +
                              "axes: {lr_scale: [1, 0.125]}\nlayout: 8x3\nquestion: outcome\nseeds: 0..9\n"
                              "power_controls: [{lr_scale: 0.125}]\n";
  EXPECT_THAT(problems_of(outcome + "primary: {test: sign}\n"), IsEmpty());
  EXPECT_THAT(problems_of(outcome + "primary: {test: sgin}\n"), ElementsAre(HasSubstr("sign")));
}

TEST(MatrixChecks, KeepOutcomesOutOfMechanism) {
  EXPECT_THAT(
      problems_of(kGood + "expect: [{verdict: equivalent}]\n"),
      ElementsAre("m.yaml:5:1: cell '8x3' and 1 more: equivalent is not a verdict of the question of mechanism"));
  EXPECT_THAT(problems_of(kGood + "expect: [{verdict: [within_envelope, inconclusive]}]\n"), IsEmpty()) << "it is a verdict of every question";
  EXPECT_THAT(problems_of(kGood + "power_controls: [{layout: 8x3}]\n"),
              ElementsAre(HasSubstr("power controls are judged by their outcome")));
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

TEST(MatrixReader, SaysCombinationsBesideMistakesElsewhere) {
  EXPECT_THAT(problems_of(kGood + "primary: {alpha: 2}\nwarmup_steps: 3\n"),
              ElementsAre(HasSubstr("primary.alpha"), HasSubstr("warmup_steps has no effect")));
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

TEST(MatrixReader, PlacesAProblemOfACellWhereTheCellWasGivenTheKey) {
  EXPECT_THAT(problems_of(kHead + "include:\n  - {layout: 8x3}\n  - {layout: 3x8, accumulation: 3}\n"),
              ElementsAre("m.yaml:6:19: cell '3x8 accumulation=3': accumulation 3 does not divide the 8 rows of a rank"));
  // Of its reference: in the reference's block, or in the cell's own.
  EXPECT_THAT(problems_of("# Is it so?\nname: tiny\nreference: {layout: 1x24, accumulation: 5}\naxes: {layout: [8x3]}\n"),
              ElementsAre(StartsWith("m.yaml:3:27: cell '8x3': its reference: accumulation 5 does not divide")));
  EXPECT_THAT(problems_of(kHead + "include:\n  - {layout: 8x3, reference: {accumulation: 5}}\n"),
              ElementsAre(StartsWith("m.yaml:5:31: cell '8x3 against accumulation=5': its reference: accumulation 5 does not divide")));
  // A key that nobody gave: the cell.
  EXPECT_THAT(problems_of(kHead + "warmup_steps: 3\ninclude:\n  - {layout: 8x3}\n"), Contains(StartsWith("m.yaml:4:1: ")));
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
  EXPECT_THAT(problems_of(kCommand + "led: true\nquestion: outcome\naxes: {layout: [3x8]}\n"), Contains(HasSubstr("led run are its reference's: question must be")));
  EXPECT_THAT(problems_of(kCommand + "replay: true\nquestion: mechanism\naxes: {layout: [3x8]}\n"), Contains(HasSubstr("led: true lets its reference lead")));
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
