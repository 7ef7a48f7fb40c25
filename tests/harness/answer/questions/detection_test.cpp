#include "harness/answer/questions/detection.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/plan/matrix/read_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/plan/matrix/cells.h"
#include "tests/support/json_schema.h"

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

}  // namespace
}  // namespace lockstep
