#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "harness/answer/questions/detection.h"
#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/estimates.h"
#include "harness/plan/matrix/cells.h"
#include "harness/plan/matrix/read_matrix.h"
#include "tests/support/said.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

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

/// The run's planted fault never acted; its mechanism is divergent all the same.
void idle(CellResult& cell, const std::string& operation) {
  cell.verdict = VerdictKind::failed;
  cell.failure.emplace();
  cell.failure->kind = FailureKind::idle;
  cell.failure->operation = operation;
  cell.failure->message = "the planted fault flip_bit never acted";
}

std::string text_of(const DetectionRow& row) {
  return fmt::format(
      "{}: {} of {} caught, {} at the step, {} at the place, {} exact, {} named, {} wrongly, {} by curve", row.mutant,
      row.caught, row.trials, row.exact_step, row.exact_place, row.exact, row.right_cause, row.wrong_cause,
      row.by_loss_curve);
}

/// Exit status, what falls short, rows that are not those of a perfect judge, and the misses, at most three of them.
std::string text_of(const Results& results) {
  static const Results perfect = Trials().score();
  const Detection& detection = *results.detection;
  std::string text = fmt::format("exit {}", results.summary.exit_code);
  for (const std::string& what : short_rates(detection)) text += "; short: " + what;
  for (std::size_t i = 0; i < detection.rows.size(); ++i)
    if (text_of(detection.rows[i]) != text_of(perfect.detection->rows[i])) text += "; " + text_of(detection.rows[i]);
  for (std::size_t i = 0; i < detection.misses.size() && i < 3; ++i)
    text += fmt::format("; {}: {}", detection.misses[i].cell, detection.misses[i].wrong);
  return text;
}

TEST(DetectionScore, SaysWhatWasCaughtWhereAndUnderWhichName) {
  const auto missed = [](CellResult& cell) {
    cell.verdict = cell.mechanism->verdict = VerdictKind::within_envelope;
    cell.mechanism->first_divergence.reset();
    cell.mechanism->cause.reset();
  };
  const auto failed = [](FailureKind kind) {
    return [kind](Trials& t) {
      CellResult& cell = t.of_mutant("flip_bit", 0);
      cell.verdict = VerdictKind::failed;
      cell.mechanism.reset();
      cell.failure.emplace();
      cell.failure->kind = kind;
    };
  };
  /// The failure names another rank, and its words one whose digits are the right rank's and those behind them.
  const auto other_rank = [](const std::string& behind) {
    return [behind](Trials& t) {
      Failure& failure = *t.of_mutant("die", 0).failure;
      failure.message = fmt::format("the header of rank {}{} differs", failure.rank++, behind);
    };
  };
  const std::pair<const char*, std::function<void(Trials&)>> rows[] = {
      {"a judge that sees all", [](Trials&) {}},
      {"a fault that never acted", [](Trials& t) { idle(t.of_mutant("flip_bit", 3), "mutant"); }},
      {"one is missed", [&](Trials& t) { missed(t.of_mutant("flip_bit", 3)); }},
      {"too many are missed",
       [&](Trials& t) {
         missed(t.of_mutant("flip_bit", 3));
         for (const int i : {0, 1, 2})
           t.of_mutant("grad_scale", i).verdict = VerdictKind::identical,
                                     t.of_mutant("grad_scale", i).mechanism.reset();
       }},
      {"another step, another place",
       [](Trials& t) {
         for (const int i : {0, 1}) ++t.of_mutant("flip_bit", i).mechanism->first_divergence->step;
         t.of_mutant("flip_bit", 2).mechanism->first_divergence->where = "energy_head.energy.bias";
         t.of_mutant("die", 0).failure->rank += 1;
       }},
      {"a failure names the rank in its words", other_rank("")},
      {"and another rank in them", other_rank("0")},
      {"a wrong cause", [](Trials& t) { t.of_mutant("flip_bit", 4).mechanism->cause->code = "temperature-detached"; }},
      {"unexplained where a cause is known",
       [](Trials& t) {
         for (const int i : {0, 1, 2, 3, 4}) t.of_mutant("flip_bit", i).mechanism->cause->code = "unexplained";
       }},
      {"a name for a factor that is no closed form",
       [](Trials& t) {
         for (const Cell& cell : t.matrix.cells)
           if (cell.name.starts_with("grad_scale #") && cell.config.mutant.factor == 3.7)
             t.of(cell.name).mechanism->cause->code = "gradient-times-world";
       }},
      {"an alarm on a clean pair", [](Trials& t) { t.of("clean #7").verdict = VerdictKind::divergent; }},
      {"a cause of a clean pair",
       [](Trials& t) { t.of("clean #8").mechanism->cause = Cause{"unexplained", 0, "", ""}; }},
      {"values that are not finite are found", failed(FailureKind::nonfinite)},
      {"a lost run is not", failed(FailureKind::lost)},
      {"of a pair the later one is shown",
       [](Trials& t) {
         for (const Cell& cell : t.matrix.cells)
           if (cell.config.second_mutant.name != "none")
             t.of(cell.name).mechanism->first_divergence->step = cell.config.second_mutant.step;
       }},
      {"loss curves leave the tolerance, of which nothing is asked",
       [](Trials& t) {
         const double curves[] = {0.0499, 0.051, std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN()};
         std::ranges::copy(curves, t.gaps.begin());
       }},
  };
  support::Said said;
  for (const auto& [what, change] : rows) {
    Trials trials;
    change(trials);
    said(what, text_of(trials.score()));
  }
}

TEST(DetectionScore, AMissSaysWhatWasPlantedAndHowToRunItAgain) {
  Trials trials;
  idle(trials.of_mutant("flip_bit", 3), "mutant");
  const Results results = trials.score();
  const DetectionMiss& miss = results.detection->misses.at(0);
  EXPECT_THAT(miss.said, HasSubstr("the planted fault flip_bit never acted"));
  EXPECT_THAT(miss.planted, HasSubstr("bit "));
  EXPECT_THAT(miss.rerun, HasSubstr("--only 'flip_bit #3'"));
  EXPECT_FALSE(results.cells[3].as_expected);
  EXPECT_THAT(results.summary.sentence, HasSubstr("never acted 1 of 40, where none is allowed"));
}

TEST(DetectionScore, AMutantThatNeverActedInAnyTrialIsLeftOutWithItsReason) {
  std::string config = kConfig;
  config.replace(config.find("pairs: 10"), 9, "pairs: 0");
  Trials trials(config);
  for (int number = 0; number < 10; ++number) idle(trials.of_mutant("flip_bit", number), "mutant");
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
      idle(trials.cells[i], key);
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
  EXPECT_EQ(exit_code_of(results), 0);
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

TEST(ExitCode, IsOfTheWorstEnd) {
  using V = VerdictKind;
  const CellResult failed_as_expected = cell(V::failed, true, FailureKind::died),
                   undecided = cell(V::inconclusive, false);
  EXPECT_EQ(
      code({cell(V::equivalent, true), cell(V::divergent, true), failed_as_expected, cell(V::inconclusive, true)}), 0);
  EXPECT_EQ(code({}), 6);
  EXPECT_EQ(code({cell(V::divergent, false)}), 1);
  EXPECT_EQ(code({undecided}), 5);
  const std::pair<FailureKind, int> failures[] = {{FailureKind::died, 3},       {FailureKind::threw, 3},
                                                  {FailureKind::lost, 3},       {FailureKind::hung, 4},
                                                  {FailureKind::unreadable, 7}, {FailureKind::nonfinite, 1}};
  for (const auto& [kind, expected] : failures) EXPECT_EQ(code({cell(V::failed, false, kind)}), expected) << kind;
  EXPECT_EQ(code({cell(V::equivalent, true)}, true), 5);
  // The first of 7, 3, 4, 1 and 5 that one of them has.
  std::vector<CellResult> cells{undecided};
  const std::pair<CellResult, int> more[] = {{cell(V::equivalent, false), 1},
                                             {cell(V::failed, false, FailureKind::hung), 4},
                                             {cell(V::failed, false, FailureKind::died), 3}};
  for (const auto& [each, expected] : more) {
    cells.push_back(each);
    EXPECT_EQ(code(cells), expected);
  }
  cells.push_back(cell(V::failed, false, FailureKind::unreadable));
  EXPECT_EQ(code(cells, true), 7);
}

Results with_margin(double margin, double control_effect, double sd = 0.018) {
  SyntheticMatrix matrix;
  matrix.plan.matrix.primary.margin = margin;
  matrix.add_cell({"8x3 global", 0.001, 0.004});
  matrix.add_cell({"control", control_effect, sd, 0.0, true, {}});
  return matrix.judge();
}

TEST(Margin, IsRefusedBeyondHalfOfTheControlsEffect) {
  struct Row {
    double margin, effect;
    bool refused, can_tell;
    int exit_code;
  };
  for (const Row& row :
       {Row{0.03, -0.09, false, true, 0}, Row{0.17, -0.347, false, true, 0}, Row{0.18, -0.347, true, true, 5},
        // It swallows the control; the control has no effect, and is missed instead.
        Row{0.5, -0.347, true, false, 5}, Row{0.03, 0.0, false, false, 1}}) {
    const Results results = with_margin(row.margin, row.effect);
    EXPECT_EQ(results.summary.margin_refused, row.refused) << row.margin;
    EXPECT_EQ(results.summary.can_tell, row.can_tell) << row.margin;
    EXPECT_EQ(results.summary.exit_code, row.exit_code) << row.margin;
  }
  const Summary summary = with_margin(0.18, -0.347).summary;
  for (const char* words : {"margin of 0.18", "control", "a margin of at most 0.17 ",
                            "which changes accuracy_24 by -0.347, 95 % interval -0.360 to -0.334, 10 paired seeds."})
    EXPECT_THAT(summary.margin_text, HasSubstr(words));
  EXPECT_THAT(summary.sentence, HasSubstr(summary.margin_text));
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

TEST(SummarySentence, IsItsSentencesOneAfterTheOther) {
  const Summary summary = SyntheticMatrix::usual().judge().summary;
  ASSERT_EQ(summary.sentences.size(), 4u);
  EXPECT_TRUE(summary.sentences[1].starts_with("The power control 8x3 global")) << summary.sentences[1];
  EXPECT_EQ(summary.sentence, summary.sentences[0] + " " + summary.sentences[1] + " " + summary.sentences[2] + " " +
                                  summary.sentences[3]);
}

TEST(SummarySentence, SaysOfCellsWhatWasFound) {
  using M = SyntheticMatrix;
  support::Said said;
  const auto with = [&said](const char* what, const std::vector<support::PlantedCell>& cells, M matrix = M(),
                            const std::function<void(M&)>& change = [](M&) {}) {
    for (const support::PlantedCell& cell : cells) matrix.add_cell(cell);
    change(matrix);
    said(what, matrix.judge().summary.sentence);
  };
  with("which train the same, which not, and by how much", {}, M::usual());
  with("of several cells no more than their intervals",
       {{"3x8", 0, 0.03}, {"8x3", 0.002, 0.008}, {"control", -0.347, 0.018, 0, true}});
  with("not all together, where one is undecided", {{"3x8", 0.001}, {"8x3"}, {"wide", 0, 0.3}, {"control", -0.347, 0.018, 0, true}});
  with("nor where one failed", {{"3x8", 0.001}, {"8x3"}, {"dead"}, {"control", -0.347, 0.018, 0, true}}, M(),
       [](M& m) { m.results.erase(m.path_of("dead seed 0", 0)); });
  with("without a control", {{"3x8", 0.001}, {"8x3", -0.001}});
  with("a control that lies far", {{"8x3 global", 0.001}, {"8x3 global lr_scale=0.125", -0.347, 0.018, 0.2, true}});
  with("what is shown to be worse is not the same", {{"8x3 global", -0.017, 0.008}, {"8x3 local", -0.2, 0.008}});
  with("each of several divergent cells", {{"8x3 other", -0.2, 0.02}}, M::usual());
  with("a control whose metrics disagree", {{"8x3 local", -0.094, 0.02, -0.1, true}});
  with("what it cannot tell comes first", {{"missed", 0, 0.008, 0, true}}, M::usual());
  with("one that failed and one that is undecided", {{"8x3 global sqrt", 0.02, 0.036}, {"8x3 dead"}}, M(), [](M& m) {
    m.options.failures["8x3 dead seed 2"] = {"8x3 dead seed 2", FailureKind::died, 3, 17, "all_gather loss.actions", "killed by signal 9", {}};
  });
  with("real ranks that part from the emulated run", {{"8x3 raced"}}, M(),
       [](M& m) { m.certifications["8x3 raced certify"].divergence.emplace().sentence = "Step 7, reduced gradients, bucket 1."; });
  const auto mechanism = [](int64_t steps, std::size_t forced) {
    return [=](M& m) {
      m.plan.matrix.question = "mechanism";
      m.mechanisms["3x8 seed 0"].verdict = VerdictKind::identical;
      m.mechanisms["3x8 seed 0"].compared_steps = steps;
      m.mechanisms["8x3 seed 0"].forced.resize(forced);
      m.mechanisms["8x3 grad x 8 seed 0"].verdict = VerdictKind::divergent;
      m.mechanisms["8x3 grad x 8 seed 0"].sentence = "step 0, reduced gradients: ratio 8.00.";
    };
  };
  with("of a mechanism", {{"3x8"}, {"8x3"}, {"8x3 grad x 8"}}, M(1), mechanism(100, 0));
  with("over fewer steps and at forced ones", {{"3x8"}, {"8x3"}, {"8x3 grad x 8"}}, M(1), mechanism(40, 2));

  Results results = M::usual().judge();
  const auto now = [&](const char* what, const std::function<void(Results&)>& change) {
    change(results);
    said(what, summarize_results(results).sentence);
  };
  // Whether it makes the outcome was not tried.
  now("what was found first of a cell that does not train the same", [](Results& r) {
    Mechanism& mechanism = r.cells[1].mechanism.emplace();
    mechanism.verdict = VerdictKind::divergent;
    mechanism.first_divergence.emplace().step = 2;
    mechanism.cause = Cause{"local-negatives", 0.98, "a row has 2 negatives instead of 23", "Gather them."};
  });
  now("no cause that is known", [](Results& r) { r.cells[1].mechanism->cause->code = "unexplained"; });
  now("two arithmetics", [](Results& r) {
    CurveBand& parameters = r.cells[0].drift.emplace_back();
    parameters.metric = "parameters";
    parameters.steps = {1, 300};
    parameters.median = parameters.low = parameters.high = {1e-8, 8e-6};
  });
  results = M::usual().judge();
  results.cells.erase(results.cells.begin() + 1, results.cells.end());
  results.cells.push_back(results.cells[0]);
  now("looks that ended at levels of their own", [](Results& r) { r.cells[1].outcome->equivalence.level = 0.973; });
  // At an equal batch no rule is called for, and none is spoken of.
  now("a rule of the rate at an equal batch", [](Results& r) {
    Growth& growth = r.growth.emplace_back();
    growth.from_batch = growth.to_batch = 24;
    growth.sentence = "At an equal global batch no rule is called for.";
    growth.rules.emplace_back().rule = "none";
  });
  now("two of them", [](Results& r) { r.growth[0].rules.emplace_back().rule = "linear"; });
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

}  // namespace
}  // namespace lockstep
