#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "harness/answer/questions/detection.h"
#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/plan/matrix/cells.h"
#include "harness/plan/matrix/read_matrix.h"
#include "tests/support/json_schema.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::schema_violations;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const kConfig =
    "# Is it found?\nname: d\nquestion: detection\n"
    "data: {source: synthetic, series: 7, holdout_series: 1, series_steps: 86, min_context: 10}\n"
    "detection: {mutants: [flip_bit, grad_scale, die], seeds: 0..9, pairs: 10, clean: 40}\n";

/// What a judge would say that sees everything and names everything rightly.
CellResult perfect(const Cell& cell) {
  CellResult result;
  result.scenario = cell.name;
  result.rerun = "lockstep run d.yaml --only '" + cell.name + "'";
  result.config = {{"layout", "8x3"}};
  const std::optional<PlantedFault> fault = first_planted(cell.config);
  if (fault && fault->entry->phase == "failed") {
    result.verdict = VerdictKind::failed;
    result.failure.emplace();
    result.failure->kind = FailureKind::died;
    result.failure->rank = fault->mutant.rank;
    result.failure->step = fault->step;
    return result;
  }
  Mechanism& mechanism = result.mechanism.emplace();
  mechanism.verdict = result.verdict = fault ? VerdictKind::divergent : VerdictKind::within_envelope;
  for (int64_t step = 0; step < cell.config.steps; ++step) mechanism.forced.push_back({step, {}, 0.1, "w"});
  if (!fault) return result;
  mechanism.first_divergence =
      Divergence{fault->step, "local gradients", -1, fault->mutant.tensor, DivergenceKind::bits, "a", "b", ""};
  mechanism.cause = Cause{right_causes(*fault, cell.config.layout.world_size).front(), 1, "", ""};
  return result;
}

struct Trials {
  Matrix matrix;
  std::vector<CellResult> cells;
  std::vector<double> gaps;
  Trials(const std::string& config = kConfig) : matrix(parse_matrix(config, "d.yaml", {})) {
    for (const Cell& cell : matrix.cells) {
      cells.push_back(perfect(cell));
      gaps.push_back(0.01);
    }
  }
  CellResult& of(const std::string& name) { return *std::ranges::find(cells, name, &CellResult::scenario); }
  CellResult& of_mutant(const std::string& name, int number) {
    return of(name + " #" + std::to_string(number));
  }
  Results score() {
    Results results;
    results.name = "d";
    results.question = "detection";
    results.cells = cells;
    results.detection = score_detection(matrix, results.cells, gaps);
    results.summary = summarize_results(results);
    return results;
  }
};

const DetectionRow& row_of(const Detection& detection, const std::string& name) {
  return *std::ranges::find(detection.rows, name, &DetectionRow::mutant);
}

std::vector<std::string> short_rates(const Detection& detection) {
  std::vector<std::string> names;
  for (const DetectionRate& rate : detection.rates) {
    if (!rate.enough) names.push_back(rate.what);
  }
  return names;
}

TEST(DetectionScore, AFaultThatNeverActedIsNeitherCaughtNorMissed) {
  Trials trials;
  CellResult& idle = trials.of_mutant("flip_bit", 3);
  idle.verdict = VerdictKind::failed;  // its mechanism is divergent all the same
  idle.failure.emplace();
  idle.failure->kind = FailureKind::idle;
  idle.failure->operation = "mutant";
  idle.failure->message = "the planted fault flip_bit never acted";
  const Results results = trials.score();
  const Detection& detection = *results.detection;
  EXPECT_EQ(row_of(detection, "flip_bit").trials, 9);
  EXPECT_EQ(row_of(detection, "flip_bit").caught, 9);
  EXPECT_FALSE(detection.passed);
  EXPECT_THAT(short_rates(detection), ElementsAre("never acted"));
  ASSERT_EQ(detection.misses.size(), 1u);
  EXPECT_EQ(detection.misses[0].wrong, "never acted");
  EXPECT_THAT(detection.misses[0].said, HasSubstr("the planted fault flip_bit never acted"));
  EXPECT_EQ(results.summary.exit_code, 1);
  EXPECT_THAT(results.summary.sentence, HasSubstr("never acted 1 of 40, where none is allowed"));
}

TEST(DetectionScore, AMutantThatNeverActedInAnyTrialIsLeftOutWithItsReason) {
  std::string config = kConfig;
  config.replace(config.find("pairs: 10"), 9, "pairs: 0");
  Trials trials(config);
  for (int number = 0; number < 10; ++number) {
    CellResult& idle = trials.of_mutant("flip_bit", number);
    idle.verdict = VerdictKind::failed;
    idle.failure.emplace();
    idle.failure->kind = FailureKind::idle;
    idle.failure->operation = "mutant";
    idle.failure->message = "the planted fault flip_bit never acted";
  }
  const Results results = trials.score();
  const Detection& detection = *results.detection;
  EXPECT_TRUE(detection.passed);
  EXPECT_THAT(detection.misses, IsEmpty());
  ASSERT_EQ(detection.left_out.size(), 1u);
  EXPECT_EQ(detection.left_out[0].mutant, "flip_bit");
  EXPECT_EQ(detection.left_out[0].reason, "the planted fault flip_bit never acted");
  EXPECT_EQ(results.summary.exit_code, 0);
  EXPECT_THAT(detection_sentences(detection).back(),
              "Left out because they cannot act here: flip_bit (the planted fault flip_bit never acted).");
}

/// The same trials, with those in exact arithmetic beside them.
Trials with_exact_trials() {
  std::string config = kConfig;
  config.replace(config.find("clean: 40"), 9, "clean: 40, exact: true");
  return {config};
}

TEST(DetectionScore, TrialsInExactArithmeticHaveAColumnOfTheirOwn) {
  Trials trials = with_exact_trials();
  const Results all = trials.score();
  EXPECT_TRUE(all.detection->passed);
  const DetectionRow& row = row_of(*all.detection, "flip_bit");
  EXPECT_EQ(row.trials, 10) << "those in native arithmetic";
  EXPECT_EQ(row.exact_trials, 10);
  EXPECT_EQ(row.exact_found, 10);
  EXPECT_EQ(row_of(*all.detection, "die").exact_trials, 0) << "a rank that dies changes no meaning";
  const Results read = results_from_json(results_to_json(all), "r.json");
  EXPECT_EQ(row_of(*read.detection, "flip_bit").exact_found, 10);

  CellResult& late = trials.of("flip_bit exact #4");
  ++late.mechanism->first_divergence->step;
  const Results missed = trials.score();
  EXPECT_FALSE(missed.detection->passed);
  EXPECT_EQ(row_of(*missed.detection, "flip_bit").exact_found, 9);
  EXPECT_EQ(row_of(*missed.detection, "flip_bit").exact, 10) << "the mutant's own trials";
  EXPECT_THAT(short_rates(*missed.detection),
              ElementsAre("found at the exact step and place by a free run in exact arithmetic"));
  ASSERT_EQ(missed.detection->misses.size(), 1u);
  EXPECT_EQ(missed.detection->misses[0].cell, "flip_bit exact #4");
  EXPECT_EQ(missed.detection->misses[0].wrong, "another step");
}

TEST(DetectionScore, AnExactTrialNeedNoCause) {
  Trials trials = with_exact_trials();
  trials.of("grad_scale exact #2").mechanism->cause.reset();
  EXPECT_TRUE(trials.score().detection->passed);
  EXPECT_THAT(trials.score().detection->misses, IsEmpty());
}

TEST(DetectionScore, APairWhoseFirstFaultKeepsTheOtherFromActingIsThatOfTheFirst) {
  Trials trials;
  for (const char* key : {"second_mutant", "mutant second_mutant"}) {
    for (std::size_t i = 0; i < trials.cells.size(); ++i) {
      if (trials.matrix.cells[i].config.second_mutant.name == "none") continue;
      CellResult& pair = trials.cells[i];
      pair.verdict = VerdictKind::failed;
      pair.failure.emplace();
      pair.failure->kind = FailureKind::idle;
      pair.failure->operation = key;
      const Results results = trials.score();
      const bool both = std::string(key).starts_with("mutant");
      EXPECT_EQ(results.detection->passed, !both) << key;
      EXPECT_EQ(results.cells[i].verdict, both ? VerdictKind::failed : VerdictKind::divergent);
      break;
    }
  }
}

TEST(DetectionScore, AJudgeThatSeesAllPasses) {
  const Results results = Trials().score();
  const Detection& detection = *results.detection;
  EXPECT_TRUE(detection.passed);
  EXPECT_EQ(results.summary.exit_code, 0);
  EXPECT_EQ(exit_code_of(results), 0);
  EXPECT_THAT(detection.misses, IsEmpty());
  EXPECT_EQ(detection.clean, 40);
  EXPECT_EQ(detection.false_alarms, 0);
  ASSERT_EQ(detection.rows.size(), 4u);
  EXPECT_EQ(detection.rows[0].mutant, "flip_bit");
  EXPECT_EQ(detection.rows[0].caught, 10);
  EXPECT_EQ(detection.rows[0].exact, 10);
  EXPECT_EQ(detection.rows[0].right_cause, 10);
  EXPECT_EQ(detection.rows[0].by_loss_curve, 0);
  EXPECT_EQ(row_of(detection, "pairs").trials, 10);
  EXPECT_EQ(row_of(detection, "die").first_found.back(), 10);
  EXPECT_THAT(results.summary.sentence, HasSubstr("40 of 40 planted faults were caught"));
}

TEST(DetectionScore, AMissedFaultIsSeenAndTooManyFail) {
  Trials trials;
  CellResult& missed = trials.of_mutant("flip_bit", 3);
  missed.verdict = missed.mechanism->verdict = VerdictKind::within_envelope;
  missed.mechanism->first_divergence.reset();
  missed.mechanism->cause.reset();
  Results results = trials.score();
  EXPECT_TRUE(results.detection->passed) << "39 of 40 is more than 95 %";
  EXPECT_EQ(row_of(*results.detection, "flip_bit").caught, 9);
  ASSERT_EQ(results.detection->misses.size(), 1u);
  EXPECT_EQ(results.detection->misses[0].cell, "flip_bit #3");
  EXPECT_EQ(results.detection->misses[0].wrong, "missed");
  EXPECT_THAT(results.detection->misses[0].planted, HasSubstr("bit "));
  EXPECT_THAT(results.detection->misses[0].rerun, HasSubstr("--only 'flip_bit #3'"));
  EXPECT_FALSE(results.cells[3].as_expected);
  for (int i = 0; i < 3; ++i) {
    CellResult& more = trials.of_mutant("grad_scale", i);
    more.verdict = VerdictKind::identical;
    more.mechanism.reset();
  }
  results = trials.score();
  EXPECT_THAT(short_rates(*results.detection), ElementsAre("caught"));
  EXPECT_EQ(results.summary.exit_code, 1);
  EXPECT_THAT(results.summary.sentence, HasSubstr("caught 36 of 40, where 95 % are required"));
}

TEST(DetectionScore, AnotherStepOrPlaceIsNotExact) {
  Trials trials;
  for (int i = 0; i < 2; ++i) ++trials.of_mutant("flip_bit", i).mechanism->first_divergence->step;
  trials.of_mutant("flip_bit", 2).mechanism->first_divergence->where = "energy_head.energy.bias";
  trials.of_mutant("die", 0).failure->rank += 1;
  const Results results = trials.score();
  const DetectionRow& row = row_of(*results.detection, "flip_bit");
  EXPECT_EQ(row.caught, 10);
  EXPECT_EQ(row.exact_step, 8);
  EXPECT_EQ(row.exact_place, 9);
  EXPECT_EQ(row.exact, 7);
  EXPECT_EQ(row_of(*results.detection, "die").exact, 9);
  EXPECT_THAT(short_rates(*results.detection), ElementsAre("of these at the exact step and place"));
  EXPECT_EQ(results.detection->misses[0].wrong, "another step");
  EXPECT_EQ(results.detection->misses[2].wrong, "another place");
}

TEST(DetectionScore, AFailureMayNameTheRankInItsWords) {
  Trials trials;
  CellResult& cell = trials.of_mutant("die", 0);
  const int rank = cell.failure->rank;
  cell.failure->rank = rank + 1;
  cell.failure->message = "the header of rank " + std::to_string(rank) + " differs";
  EXPECT_TRUE(trials.score().detection->passed);
  cell.failure->message = "the header of rank " + std::to_string(rank) + "0 differs";
  EXPECT_EQ(row_of(*trials.score().detection, "die").exact_place, 9);
}

TEST(DetectionScore, OneWrongCauseFails) {
  Trials trials;
  trials.of_mutant("flip_bit", 4).mechanism->cause->code = "temperature-detached";
  const Results results = trials.score();
  EXPECT_EQ(row_of(*results.detection, "flip_bit").wrong_cause, 1);
  EXPECT_THAT(short_rates(*results.detection), ElementsAre("named wrongly"));
  EXPECT_EQ(results.detection->misses[0].wrong, "wrong cause");
  EXPECT_EQ(exit_code_of(results), 1);
}

TEST(DetectionScore, UnexplainedIsNeitherRightNorWrongWhereACauseIsKnown) {
  Trials trials;
  for (int i = 0; i < 5; ++i) trials.of_mutant("flip_bit", i).mechanism->cause->code = "unexplained";
  const Results results = trials.score();
  EXPECT_EQ(row_of(*results.detection, "flip_bit").right_cause, 5);
  EXPECT_EQ(row_of(*results.detection, "flip_bit").wrong_cause, 0);
  EXPECT_THAT(short_rates(*results.detection), ElementsAre("named rightly"));
  EXPECT_EQ(results.detection->misses[0].wrong, "not named");
}

TEST(DetectionScore, ANameForAFactorThatIsNoClosedFormIsWrong) {
  Trials trials;
  bool any = false;
  for (const Cell& cell : trials.matrix.cells) {
    if (!cell.name.starts_with("grad_scale #") || cell.config.mutant.factor != 3.7) continue;
    trials.of(cell.name).mechanism->cause->code = "gradient-times-world";
    any = true;
  }
  ASSERT_TRUE(any) << "no trial drew 3.7; take another draw_seed";
  EXPECT_FALSE(trials.score().detection->passed);
}

TEST(DetectionScore, AnAlarmOrACauseOnACleanPairFails) {
  Trials trials;
  trials.of("clean #7").verdict = VerdictKind::divergent;
  Results results = trials.score();
  EXPECT_EQ(results.detection->false_alarms, 1);
  EXPECT_THAT(short_rates(*results.detection), ElementsAre("false alarms on clean pairs"));
  EXPECT_EQ(results.detection->misses[0].wrong, "false alarm");
  trials = {};
  trials.of("clean #8").mechanism->cause = Cause{"unexplained", 0, "", ""};
  EXPECT_EQ(trials.score().detection->false_alarms, 1);
}

TEST(DetectionScore, ValuesThatAreNotFiniteAreFoundAndALostRunIsNot) {
  Trials trials;
  for (const FailureKind kind : {FailureKind::nonfinite, FailureKind::lost}) {
    CellResult& cell = trials.of_mutant("flip_bit", 0);
    cell.verdict = VerdictKind::failed;
    cell.mechanism.reset();
    cell.failure.emplace();
    cell.failure->kind = kind;
    EXPECT_EQ(row_of(*trials.score().detection, "flip_bit").caught, kind == FailureKind::lost ? 9 : 10)
        << kind;
  }
}

TEST(DetectionScore, ARowThatIsNoNumberIsFoundWhereTheRunSaysSo) {
  const auto score = [](const std::string& message, int64_t step) {
    Cell cell;
    cell.config.layout = {8, 3};
    cell.config.mutant.name = "nan_gradient";
    cell.config.mutant.step = 4;
    cell.config.mutant.tensor = "energy_head.key.weight";
    CellResult result;
    result.verdict = VerdictKind::failed;
    result.failure.emplace();
    result.failure->kind = FailureKind::threw;
    result.failure->step = step;
    result.failure->message = message;
    return score_trial(cell, result, 0, first_planted(cell.config));
  };
  const std::string row = "step 4: row 5 of the step's batch (sample 9, rank 5) has NaN or infinity in its gradient of ";
  EXPECT_TRUE(score(row + "energy_head.key.weight: exact arithmetic adds numbers alone", 4).exact());
  EXPECT_FALSE(score(row + "energy_head.query.weight: exact arithmetic adds numbers alone", 4).exact_place);
  EXPECT_FALSE(score(row + "energy_head.key.weight: exact arithmetic adds numbers alone", 3).exact_step);
  EXPECT_FALSE(score("planted", 4).caught);
}

TEST(DetectionScore, OfAPairTheEarlierOneDecides) {
  Trials trials;
  for (const Cell& cell : trials.matrix.cells) {
    if (cell.config.second_mutant.name == "none") continue;
    CellResult& result = trials.of(cell.name);
    EXPECT_EQ(result.mechanism->first_divergence->step, cell.config.mutant.step);
    result.mechanism->first_divergence->step = cell.config.second_mutant.step;
  }
  const Results results = trials.score();
  EXPECT_EQ(row_of(*results.detection, "pairs").caught, 10);
  EXPECT_EQ(row_of(*results.detection, "pairs").exact_step, 0);
}

TEST(DetectionScore, LossCurvesFindWhatLeavesTheTolerance) {
  Trials trials;
  trials.gaps[0] = 0.0499;
  trials.gaps[1] = 0.051;
  trials.gaps[2] = std::numeric_limits<double>::infinity();
  trials.gaps[3] = std::numeric_limits<double>::quiet_NaN();
  const Results results = trials.score();
  EXPECT_EQ(row_of(*results.detection, "flip_bit").by_loss_curve, 3);
  EXPECT_TRUE(results.detection->passed) << "nothing is asked of the curves";
}

TEST(DetectionScore, ManyTrialsStaySmall) {
  Trials trials;
  const Results results = trials.score();
  for (const CellResult& cell : results.cells) {
    EXPECT_THAT(cell.curves, IsEmpty());
    EXPECT_THAT(cell.config, IsEmpty());
    EXPECT_FALSE(cell.settings.empty());
    if (!cell.mechanism) continue;
    EXPECT_LE(cell.mechanism->forced.size(), 1u);
  }
}

TEST(DetectionScore, ComesBackFromJsonAndFitsTheSchema) {
  Trials trials;
  trials.of("clean #7").verdict = VerdictKind::divergent;
  const Results results = trials.score();
  const std::string text = results_to_json(results);
  EXPECT_EQ(results_to_json(results_from_json(text, "results.json")), text);
  EXPECT_THAT(schema_violations(nlohmann::json::parse(text), nlohmann::json::parse(results_schema())),
              IsEmpty());
}

TEST(DetectionRate, HasTheExactIntervalOfClopperAndPearson) {
  // Values of R's binom.test.
  DetectionRate rate = detection_rate("x", 8, 10);
  EXPECT_NEAR(rate.interval.low, 0.4439045, 1e-6);
  EXPECT_NEAR(rate.interval.high, 0.9747893, 1e-6);
  rate = detection_rate("x", 0, 1000);
  EXPECT_EQ(rate.interval.low, 0);
  EXPECT_NEAR(rate.interval.high, 1 - std::pow(0.025, 1.0 / 1000), 1e-9);
  rate = detection_rate("x", 5, 5);
  EXPECT_NEAR(rate.interval.low, std::pow(0.025, 1.0 / 5), 1e-9);
  EXPECT_EQ(rate.interval.high, 1);
  rate = detection_rate("x", 0, 0);
  EXPECT_EQ(rate.interval.high, 1);
}

using support::SyntheticMatrix;
using testing::AllOf;
using testing::Not;

CellResult cell(VerdictKind verdict, bool as_expected, std::optional<FailureKind> failure = std::nullopt) {
  CellResult c;
  c.scenario = "cell";
  c.verdict = verdict;
  c.as_expected = as_expected;
  if (failure) {
    c.failure.emplace();
    c.failure->kind = *failure;
  }
  return c;
}

int code(const std::vector<CellResult>& cells, bool margin_refused = false) {
  Results results;
  results.cells = cells;
  results.summary.margin_refused = margin_refused;
  return exit_code_of(results);
}

TEST(ExactSentences, SayHowFarCellsAgreeAndWhereTheyPart) {
  Results results;
  results.cells = {cell(VerdictKind::equivalent, true), cell(VerdictKind::divergent, true)};
  EXPECT_TRUE(exact_sentences(results).empty());
  for (CellResult& each : results.cells) {
    each.reference = "1x24";
    each.exact.emplace();
    each.exact->asked = each.exact->steps = 100;
    each.exact->seed = 3;
  }
  results.cells[1].scenario = "8x3 local";
  results.cells[1].exact->steps = 0;
  results.cells[1].exact->divergence = Divergence{};
  results.cells[1].exact->divergence->phase = "energies";
  results.cells[1].exact->divergence->where = "inputs";
  const std::vector<std::string> said = exact_sentences(results);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0], "In exact arithmetic (100 steps of seed 3) cell and 1x24 agree bit for bit, so what differs natively is "
                     "rounding.");
  EXPECT_EQ(said[1], "8x3 local differs from 1x24 in exact arithmetic too (step 0, energies, inputs), so the difference is not rounding.");
}

TEST(Summary, SaysWhichSavesOfCheckpointsFailed) {
  Results results;
  results.cells = {cell(VerdictKind::identical, true), cell(VerdictKind::identical, true)};
  results.cells[1].failed_saves = "1 of 3 saves failed, epoch_0_step_6 was not saved; the newest checkpoint is of step 9";
  EXPECT_THAT(summarize_results(results).sentences, testing::Contains(HasSubstr("Checkpoints of cell: 1 of 3 saves failed, ")));
  results.cells[1].failed_saves.clear();
  EXPECT_THAT(summarize_results(results).sentences, Not(testing::Contains(HasSubstr("Checkpoints of"))));
}

TEST(ExitCode, IsZeroIfAllIsAsExpected) {
  EXPECT_EQ(code({cell(VerdictKind::equivalent, true), cell(VerdictKind::divergent, true)}), 0);
  EXPECT_EQ(code({cell(VerdictKind::failed, true, FailureKind::died)}), 0);
  EXPECT_EQ(code({cell(VerdictKind::inconclusive, true)}), 0);
}

TEST(ExitCode, NamesEachEnd) {
  EXPECT_EQ(code({}), 6);
  EXPECT_EQ(code({cell(VerdictKind::divergent, false)}), 1);
  EXPECT_EQ(code({cell(VerdictKind::inconclusive, false)}), 5);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::died)}), 3);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::threw)}), 3);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::lost)}), 3);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::hung)}), 4);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::unreadable)}), 7);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::nonfinite)}), 1);
  EXPECT_EQ(code({cell(VerdictKind::equivalent, true)}, true), 2);
}

TEST(ExitCode, IsTheFirstOf723415) {
  std::vector<CellResult> cells{cell(VerdictKind::inconclusive, false)};
  EXPECT_EQ(code(cells), 5);
  cells.push_back(cell(VerdictKind::equivalent, false));
  EXPECT_EQ(code(cells), 1);
  cells.push_back(cell(VerdictKind::failed, false, FailureKind::hung));
  EXPECT_EQ(code(cells), 4);
  cells.push_back(cell(VerdictKind::failed, false, FailureKind::died));
  EXPECT_EQ(code(cells), 3);
  EXPECT_EQ(code(cells, true), 2);
  cells.push_back(cell(VerdictKind::failed, false, FailureKind::unreadable));
  EXPECT_EQ(code(cells, true), 7);
}

Results with_margin(double margin, double control_effect, double sd = 0.018) {
  SyntheticMatrix matrix;
  matrix.plan.matrix.primary.margin = margin;
  matrix.add_cell({"8x3 global", 0.001, 0.004});
  matrix.add_cell({"control", control_effect, sd, 0.0, true, {}});
  return matrix.judge();
}

TEST(Margin, StandsUpToHalfOfTheControlsEffect) {
  EXPECT_FALSE(with_margin(0.03, -0.09).summary.margin_refused);
  EXPECT_FALSE(with_margin(0.17, -0.347).summary.margin_refused);
  EXPECT_EQ(with_margin(0.17, -0.347).summary.exit_code, 0);
}

TEST(Margin, IsRefusedBeyondHalfOfTheControlsEffect) {
  const Results results = with_margin(0.18, -0.347);
  EXPECT_TRUE(results.summary.margin_refused);
  EXPECT_EQ(results.summary.exit_code, 2);
  EXPECT_THAT(results.summary.margin_text, HasSubstr("margin of 0.18"));
  EXPECT_THAT(results.summary.margin_text, HasSubstr("control"));
  EXPECT_THAT(results.summary.margin_text, HasSubstr("-0.347"));
  EXPECT_THAT(results.summary.margin_text, HasSubstr("a margin of at most 0.17 "));
  EXPECT_THAT(results.summary.sentence, HasSubstr(results.summary.margin_text));
  EXPECT_EQ(exit_code_of(results), 2);
}

TEST(Margin, IsRefusedAlsoWhereItSwallowsTheControl) {
  const Results results = with_margin(0.5, -0.347);
  EXPECT_FALSE(results.summary.can_tell);
  EXPECT_EQ(results.summary.exit_code, 2);
}

TEST(Margin, TheWeakestControlThatShowsAnEffectCounts) {
  SyntheticMatrix matrix;
  matrix.plan.matrix.primary.margin = 0.05;
  matrix.add_cell({"strong", -0.347, 0.018, 0.0, true, {}});
  EXPECT_FALSE(matrix.judge().summary.margin_refused);
  matrix.add_cell({"weak", -0.09, 0.018, 0.0, true, {}});
  EXPECT_TRUE(matrix.judge().summary.margin_refused);
  EXPECT_THAT(matrix.judge().summary.margin_text, HasSubstr("weak"));
}

TEST(Margin, AControlWithoutEffectIsMissedInsteadOfRefusingTheMargin) {
  const Results results = with_margin(0.03, 0.0);
  EXPECT_FALSE(results.summary.margin_refused);
  EXPECT_FALSE(results.summary.can_tell);
  EXPECT_EQ(results.summary.exit_code, 1);
}

TEST(SummarySentence, SaysWhichTrainTheSameWhichNotAndByHowMuch) {
  const std::string sentence = SyntheticMatrix::usual().judge().summary.sentence;
  EXPECT_EQ(
      sentence,
      "8x3 global trains the same as 1x24 global: 24-way accuracy differs by +0.001 (90 % interval -0.004 to "
      "+0.006), margin 0.03, 10 paired seeds; 8x3 local does not: 24-way accuracy 0.094 lower (95 % interval "
      "0.080 to 0.108, 10 paired seeds), although its training loss / log N and its raw cross-entropy are "
      "lower. The power control 8x3 global lr_scale=0.125 was found to differ, as required: 24-way accuracy "
      "0.347 lower (95 % interval 0.334 to 0.360, 10 paired seeds). "
      "Against 1x24 global a true difference in 24-way accuracy of 0.056 or more is found with "
      "probability 0.8 or more (10 paired seeds with the spread of 8x3 local, at its upper bound); the closest cell that was found to "
      "differ, 8x3 local, differs by 3 margins: it does not show that a small difference would be noticed. A failure in fewer than "
      "26 % of seeds may simply not be among these 10 (probability above 5 %).");
}

TEST(SummarySentence, IsItsSentencesOneAfterTheOther) {
  const Summary summary = SyntheticMatrix::usual().judge().summary;
  ASSERT_EQ(summary.sentences.size(), 4u);
  EXPECT_TRUE(summary.sentences[1].starts_with("The power control 8x3 global")) << summary.sentences[1];
  EXPECT_EQ(summary.sentence, summary.sentences[0] + " " + summary.sentences[1] + " " + summary.sentences[2] + " " +
                                  summary.sentences[3]);
}

TEST(SummarySentence, SaysWhatWasFoundFirstOfACellThatDoesNotTrainTheSame) {
  Results results = SyntheticMatrix::usual().judge();
  Mechanism& mechanism = results.cells[1].mechanism.emplace();
  mechanism.verdict = VerdictKind::divergent;
  mechanism.first_divergence.emplace().step = 2;
  const auto sentence = [&results] { return summarize_results(results).sentence; };
  mechanism.cause = Cause{"local-negatives", 0.98, "a row has 2 negatives instead of 23", "Gather them."};
  EXPECT_THAT(sentence(), HasSubstr("0.080 to 0.108, 10 paired seeds), although its training loss / log N"));
  EXPECT_THAT(sentence(), HasSubstr("; the first difference, at step 2: a row has 2 negatives instead of 23."));
  EXPECT_THAT(sentence(), Not(HasSubstr("because"))) << "whether it makes the outcome was not tried";
  mechanism.cause->code = "unexplained";
  EXPECT_THAT(sentence(), Not(HasSubstr("first difference")));
  mechanism.cause.reset();
  EXPECT_THAT(sentence(), Not(HasSubstr("first difference")));
}

TEST(SummarySentence, PromisesOfSeveralCellsNoMoreThanTheirIntervals) {
  SyntheticMatrix matrix;
  matrix.add_cell({"3x8", 0.0, 0.03});
  matrix.add_cell({"8x3", 0.002, 0.008});
  matrix.add_cell({"control", -0.347, 0.018, 0.0, true});
  const Results results = matrix.judge();
  ASSERT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_THAT(results.summary.sentence,
              AllOf(HasSubstr("3x8 and 8x3 train the same as 1x24 global: 24-way accuracy differs by no more than "
                              "-0.017 to +0.017 (each cell's 90 % interval)"),
                    Not(HasSubstr("at most"))));
}

TEST(SummarySentence, DoesNotCallTheSameWhatIsShownToBeWorse) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", -0.017, 0.008});
  matrix.add_cell({"8x3 local", -0.2, 0.008});
  const Results results = matrix.judge();
  ASSERT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_THAT(results.summary.sentence,
              AllOf(HasSubstr("8x3 global is within the margin of 1x24 global, but not the same: 24-way accuracy "
                              "0.017 lower (95 % interval 0.011 to 0.023, 10 paired seeds), margin 0.03."),
                    HasSubstr("8x3 local does not train the same as 1x24 global"), Not(HasSubstr("trains the same"))));
}

TEST(SummarySentence, GivesEachOfSeveralDivergentCellsASentence) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"8x3 other", -0.2, 0.02});
  EXPECT_THAT(matrix.judge().summary.sentence,
              AllOf(HasSubstr("10 paired seeds. 8x3 local does not: "), HasSubstr(". 8x3 other does not: ")));
}

TEST(SummarySentence, SaysOfAControlTooWhereItsMetricsDisagree) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 local", -0.094, 0.02, -0.1, true});
  EXPECT_THAT(
      matrix.judge().summary.sentence,
      HasSubstr(
          "0.080 to 0.108, 10 paired seeds), although its training loss / log N and its raw cross-entropy are lower."));
}

TEST(SummarySentence, BeginsWithWhatItCannotTell) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"missed", 0.0, 0.008, 0.0, true, {}});
  EXPECT_TRUE(matrix.judge().summary.sentence.starts_with(
      "This matrix cannot tell: the power control missed came out equivalent (+0.000, 95 % interval "
      "-0.006 to +0.006, 10 paired seeds), but it must be found to differ."))
      << matrix.judge().summary.sentence;
}

TEST(SummarySentence, NamesFailuresAndUndecidedCells) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global sqrt", 0.02, 0.036});
  matrix.add_cell({"8x3 dead", 0.0});
  Failure died;
  died.run = "8x3 dead seed 2";
  died.kind = FailureKind::died;
  died.rank = 3;
  died.step = 17;
  died.operation = "all_gather loss.actions";
  died.message = "killed by signal 9";
  matrix.options.failures[died.run] = died;
  const std::string sentence = matrix.judge().summary.sentence;
  EXPECT_THAT(
      sentence,
      HasSubstr("8x3 dead failed: rank 3 died at step 17 in all_gather loss.actions: killed by signal 9."));
  EXPECT_THAT(sentence, HasSubstr("8x3 global sqrt is undecided: accuracy_24 differs by +0.020 (95 % interval -0.006 "
                                  "to +0.046) against a margin of 0.03 (10 paired seeds)"));
  EXPECT_THAT(sentence, HasSubstr("with probability 0.8 if the true difference"));
  EXPECT_THAT(sentence, HasSubstr("to extend this one use seeds: auto"));
}

TEST(SummarySentence, GivesTheMarginsRefusalItsFigures) {
  EXPECT_THAT(with_margin(0.18, -0.347).summary.margin_text,
              HasSubstr("which changes accuracy_24 by -0.347, 95 % interval -0.360 to -0.334, 10 paired seeds."));
}

// Looks end where they may, at levels of their own: no one level is that of all.
TEST(SummarySentence, NamesTheLevelsOfCellsThatHaveLevelsOfTheirOwn) {
  SyntheticMatrix matrix;
  matrix.add_cell({"3x8", 0.0, 0.008});
  matrix.add_cell({"8x3", 0.002, 0.008});
  Results results = matrix.judge();
  results.cells[1].outcome->equivalence.level = 0.973;
  EXPECT_THAT(summarize_results(results).sentence, HasSubstr("(each cell's 90 % to 97.3 % interval)"));
}

// At an equal batch no rule is called for, and none is spoken of.
TEST(SummarySentence, SpeaksOfRulesOfTheRateOnlyWhereTheyVary) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3", 0.0, 0.008});
  Results results = matrix.judge();
  Growth& growth = results.growth.emplace_back();
  growth.from_batch = growth.to_batch = 24;
  growth.sentence = "At an equal global batch no rule is called for.";
  growth.rules.emplace_back().rule = "none";
  EXPECT_THAT(summarize_results(results).sentence, Not(HasSubstr("no rule is called for")));
  growth.rules.emplace_back().rule = "linear";
  EXPECT_THAT(summarize_results(results).sentence, HasSubstr("no rule is called for"));
}

TEST(SummarySentence, OfManyCellsIsShort) {
  SyntheticMatrix matrix(3);
  for (int i = 0; i < 50; ++i) matrix.add_cell({"same " + std::to_string(i), 0.0, 0.001});
  for (int i = 0; i < 50; ++i) matrix.add_cell({"worse " + std::to_string(i), -0.2, 0.001});
  matrix.add_cell({"control", -0.347, 0.001, 0.0, true});
  const std::string sentence = matrix.judge().summary.sentence;
  EXPECT_LT(sentence.size(), 1600u);
  EXPECT_THAT(sentence, HasSubstr("same 0, same 1, same 2 and 47 more train the same as 1x24 global"));
  EXPECT_THAT(sentence, HasSubstr("47 more do not train the same."));
}

TEST(SummarySentence, OfAMechanismQuestion) {
  SyntheticMatrix matrix(1);
  matrix.plan.matrix.question = "mechanism";
  matrix.add_cell({"3x8"});
  matrix.add_cell({"8x3"});
  matrix.add_cell({"8x3 grad x 8"});
  matrix.mechanisms["3x8 seed 0"].verdict = VerdictKind::identical;
  Mechanism& planted = matrix.mechanisms["8x3 grad x 8 seed 0"];
  planted.verdict = VerdictKind::divergent;
  planted.sentence = "step 0, reduced gradients: ratio 8.00.";
  EXPECT_EQ(matrix.judge().summary.sentence,
            "3x8 computes the same as 1x24 global over 100 steps of seed 0: every compared bit is equal. 8x3 computes the same as "
            "1x24 global within the "
            "rounding tolerance (19 % of it used). 8x3 grad x 8 does not compute the same as 1x24 global: "
            "step 0, reduced "
            "gradients: ratio 8.00.");
}

TEST(Summary, Counts) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"wide", 0.0, 0.3});
  matrix.add_cell({"gone", 0.0});
  matrix.results.erase(matrix.path_of("gone seed 0", 0));
  matrix.plan.runs[0].reused = true;
  const Summary s = matrix.judge().summary;
  EXPECT_EQ(s.cells, 5);
  EXPECT_EQ(s.as_expected, 4);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.undecided, 1);
  EXPECT_EQ(s.power_controls, 1);
  EXPECT_EQ(s.power_controls_caught, 1);
  EXPECT_EQ(s.runs, 10 + 5 * 11);
  EXPECT_EQ(s.runs_reused, 1);
}

TEST(SummarySentence, OfAMechanismSaysOverHowManyStepsOfWhichSeed) {
  SyntheticMatrix matrix(1);
  matrix.plan.matrix.question = "mechanism";
  matrix.add_cell({"3x8"});
  matrix.add_cell({"8x3"});
  matrix.mechanisms["3x8 seed 0"].verdict = VerdictKind::identical;
  matrix.mechanisms["3x8 seed 0"].compared_steps = 40;
  matrix.mechanisms["8x3 seed 0"].verdict = VerdictKind::within_envelope;
  matrix.mechanisms["8x3 seed 0"].forced.resize(2);
  const std::string said = matrix.judge().summary.sentence;
  EXPECT_THAT(said, HasSubstr("3x8 computes the same as 1x24 global over 40 steps of seed 0: every compared bit is equal."));
  EXPECT_THAT(said, HasSubstr("8x3 computes the same as 1x24 global at 2 forced steps of seed 0 within"));
}

TEST(SummarySentence, OfTwoArithmeticsBeginsWithHowFarRoundingCarried) {
  Results results = SyntheticMatrix::usual().judge();
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("rounding alone")));
  CurveBand& parameters = results.cells[0].drift.emplace_back();
  parameters.metric = "parameters";
  parameters.steps = {1, 300};
  parameters.median = parameters.low = parameters.high = {1e-8, 8e-6};
  EXPECT_THAT(summarize_results(results).sentences.front(),
              HasSubstr("against 1x24 global, 10 paired seeds: Differences by rounding alone up to step 300: parameters at most "
                        "8.0e-06 of their norm."));
}

}  // namespace
}  // namespace lockstep
