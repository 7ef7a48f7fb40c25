#include "harness/verdict/questions/detection/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/cells.h"
#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kBase =
    "# Is it found?\nname: d\nquestion: detection\nmodel: {width: 8, hidden: 16}\n"
    "data: {source: synthetic, series: 7, holdout_series: 1, series_steps: 86, min_context: 10}\n";

const std::string kClassify =
    "# Is it found?\nname: d\nquestion: detection\ntrainer: classify\nmodel: {width: 8, hidden: 16}\n"
    "data: {source: synthetic, series: 8, holdout_series: 1, series_steps: 40}\n";

std::string detection(const std::string& keys) { return kBase + "detection: {" + keys + "}\n"; }

const Cell& cell_of(const Matrix& matrix, const std::string& name) {
  for (const Cell& cell : matrix.cells) {
    if (cell.name == name) return cell;
  }
  throw std::runtime_error("no cell " + name);
}

bool is_planted(const Cell& cell) { return cell.config.mutant.name != "none"; }

TEST(Detection, HasATrialForEachMutantAndSeedThenPairsThenCleanOnes) {
  const Matrix matrix = parse(detection("mutants: [flip_bit, grad_scale], seeds: 3..4, pairs: 1, clean: 2"));
  const std::vector<std::string> names = names_of(matrix);
  ASSERT_EQ(names.size(), 7u);
  EXPECT_EQ(names[0], "flip_bit #3");
  EXPECT_EQ(names[3], "grad_scale #4");
  EXPECT_THAT(names[4], HasSubstr(" + "));
  EXPECT_THAT(names[4], testing::EndsWith(" #0"));
  EXPECT_EQ(names[6], "clean #1");
  EXPECT_THAT(matrix.seeds, ElementsAre(3, 4));
  EXPECT_EQ(matrix.certify_steps, 0);
  EXPECT_EQ(matrix.forced_steps.size(), 20u) << "every step";
}

TEST(Detection, AllAreThoseThatFitTheTrainer) {
  const Matrix matrix = parse(kClassify + "detection: {mutants: all, seeds: [0], pairs: 0, clean: 0}\n");
  std::set<std::string> planted;
  for (const Cell& cell : matrix.cells) {
    const MutantEntry* entry = find_mutant(cell.config.mutant.name);
    ASSERT_NE(entry, nullptr) << cell.name;
    EXPECT_TRUE(entry->trainer.empty() || entry->trainer == "classify") << entry->name;
    planted.emplace(entry->name);
  }
  EXPECT_TRUE(planted.contains("gradient_times_world"));
  EXPECT_TRUE(planted.contains("weight_decay_twice")) << "its settings are every trainer's";
  EXPECT_FALSE(planted.contains("wrong_root")) << "the trainer has no running_stats";
}

TEST(Detection, RefusesAMutantThatNeedsAKeyOfAnotherTrainer) {
  EXPECT_THAT(problems_of(kClassify + "detection: {mutants: [grad_scale, wrong_root], pairs: 0}\n"),
              ElementsAre("m.yaml:7:13: mutant wrong_root shows only with the key running_stats, which the trainer "
                          "classify does not have"));
}

const std::string kShortContext =
    "# Is it found?\nname: d\nquestion: detection\nmodel: {width: 8, hidden: 12}\n"
    "data: {source: synthetic, series: 40, series_steps: 60, channels: 4, context_steps: 7, action_steps: 3, min_context: 3}\n";

TEST(Detection, LeavesAMutantOutWhoseOwnSettingsTheDataRefuse) {
  for (const char* mutants : {"[context_mask_ignored, sign_flipped]", "all"}) {
    const Matrix matrix =
        parse(kShortContext + "detection: {mutants: " + mutants + ", seeds: 0..1, pairs: 2, clean: 2}\n");
    const auto& left_out = section_of<DetectionConfig>(matrix).left_out;
    const auto found = std::ranges::find(left_out, "context_mask_ignored", &LeftOutMutant::mutant);
    ASSERT_NE(found, left_out.end()) << mutants;
    EXPECT_EQ(found->reason, "with data.min_context=10, data.min_context 10 is longer than data.context_steps 7");
    for (const LeftOutMutant& each : left_out) {
      EXPECT_TRUE(each.mutant == found->mutant || each.reason == "it cannot show within 20 steps") << each.mutant << ": " << each.reason;
    }
    for (const std::string& name : names_of(matrix)) EXPECT_THAT(name, Not(HasSubstr("context_mask_ignored")));
    EXPECT_THAT(names_of(matrix), Contains("sign_flipped #1"));
  }
  EXPECT_THAT(problems_of(kShortContext + "detection: {mutants: [context_mask_ignored], seeds: [0], pairs: 0, clean: 2}\n"),
              ElementsAre(HasSubstr("mutant context_mask_ignored cannot act: with data.min_context=10")))
      << "nothing would be left to find";
}

TEST(Detection, AMutantThatCannotShowWithinTheRunIsLeftOutAndAMistakeOfTheUsersIsNot) {
  const Matrix matrix = parse(detection("mutants: [set_epoch_forgotten, sign_flipped], seeds: [0], pairs: 0, clean: 0, steps: 3"));
  const auto& left_out = section_of<DetectionConfig>(matrix).left_out;
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_EQ(left_out[0].mutant, "set_epoch_forgotten");
  EXPECT_EQ(left_out[0].reason, "it cannot show within 3 steps");
  EXPECT_THAT(names_of(matrix), ElementsAre("sign_flipped #0"));
  EXPECT_THAT(problems_of(kShortContext + "warmup_steps: 3\ndetection: {mutants: [sign_flipped], seeds: [0], pairs: 0, clean: 0}\n"),
              ElementsAre(HasSubstr("warmup_steps has no effect")));
}

TEST(Detection, ATrialIsTheSameWhateverElseIsInTheMatrix) {
  const Matrix all = parse(detection("mutants: all, seeds: 0..4, pairs: 4, clean: 20"));
  const Matrix one = parse(detection("mutants: [grad_scale], seeds: [2], pairs: 0, clean: 12"));
  for (const char* name : {"grad_scale #2", "clean #11"}) {
    EXPECT_EQ(canonical_json(cell_of(all, name).config), canonical_json(cell_of(one, name).config)) << name;
  }
  const Matrix other =
      parse(detection("mutants: [grad_scale], seeds: [2], pairs: 0, clean: 12, draw_seed: 2"));
  EXPECT_NE(canonical_json(cell_of(one, "clean #11").config),
            canonical_json(cell_of(other, "clean #11").config));
}

TEST(Detection, DrawsOnlyWhatCanShow) {
  const Matrix matrix = parse(detection("mutants: all, seeds: 0..39, pairs: 30, clean: 0"));
  std::set<int> bits, worlds;
  std::set<double> factors;
  std::set<std::string> tensors;
  for (const Cell& cell : matrix.cells) {
    const std::optional<PlantedFault> fault = first_planted(cell.config);
    ASSERT_TRUE(fault) << cell.name;
    EXPECT_LT(fault->step, 20) << cell.name;
    EXPECT_GE(cell.config.layout.world_size, fault->entry->min_world) << cell.name;
    EXPECT_EQ(cell.config.layout.global_batch(), 24) << cell.name;
    const MutantConfig& mutant = fault->mutant;
    EXPECT_LT(mutant.rank, cell.config.layout.world_size) << cell.name;
    worlds.insert(cell.config.layout.world_size);
    if (fault->entry->draws.bit) bits.insert(mutant.bit);
    if (fault->entry->draws.factor) factors.insert(mutant.factor);
    if (fault->entry->draws.tensor) tensors.insert(mutant.tensor);
    if (mutant.name == "flip_bit") {
      EXPECT_NE(mutant.tensor, "context_encoder.place") << "its first element may belong to padding alone";
    }
  }
  EXPECT_THAT(worlds, ElementsAre(2, 3, 4, 8));
  EXPECT_EQ(*bits.begin(), 20) << "what lies below is rounding";
  EXPECT_EQ(*bits.rbegin(), 31);
  EXPECT_THAT(factors, Contains(3.7));
  EXPECT_THAT(factors, Contains(8.0));
  EXPECT_GT(tensors.size(), 12u);
  EXPECT_THAT(tensors, Not(Contains("energy_head.energy.bias"))) << "its gradient is 0 but for rounding";
}

TEST(Detection, TrialsOfOneSeedShareReferences) {
  const Matrix matrix = parse(detection("mutants: all, seeds: 0..4, pairs: 30, clean: 80"));
  std::set<std::string> planted, clean;
  std::map<std::string, std::string> by_name;
  for (const Cell& cell : matrix.cells) {
    EXPECT_EQ(cell.reference.mutant.name, "none");
    EXPECT_EQ(cell.reference.second_mutant.name, "none");
    EXPECT_EQ(cell.reference.layout, (Layout{1, 24}));
    EXPECT_EQ(cell.reference.steps, cell.config.steps);
    EXPECT_EQ(cell.reference.seed, cell.config.seed);
    EXPECT_EQ(cell.reference.optimizer, cell.config.optimizer);
    (is_planted(cell) ? planted : clean).insert(cell.reference_name);
    const auto [at, is_new] = by_name.emplace(cell.reference_name, config_hash(cell.reference));
    EXPECT_EQ(at->second, config_hash(cell.reference)) << "one name, one reference";
  }
  EXPECT_LE(clean.size(), 20u);
}

TEST(Detection, PairsBeginAtDifferentStepsAndNeitherEndsTheRun) {
  const Matrix matrix = parse(detection("mutants: all, seeds: 0..4, pairs: 40, clean: 0"));
  int pairs = 0;
  for (const Cell& cell : matrix.cells) {
    if (cell.config.second_mutant.name == "none") continue;
    ++pairs;
    EXPECT_NE(cell.config.mutant.name, cell.config.second_mutant.name) << cell.name;
    EXPECT_LT(cell.config.mutant.step, cell.config.second_mutant.step) << cell.name;
    EXPECT_NE(find_mutant(cell.config.mutant.name)->phase, "failed");
    EXPECT_NE(find_mutant(cell.config.second_mutant.name)->phase, "failed");
    EXPECT_THAT(cell.expected, ElementsAre(VerdictKind::divergent));
  }
  EXPECT_EQ(pairs, 40);
}

TEST(Detection, AFaultThatEndsTheRunHasRealRanksAndNothingForced) {
  const Matrix matrix = parse(detection("mutants: [stall, die], seeds: [0], pairs: 0, clean: 0"));
  EXPECT_EQ(cell_of(matrix, "stall #0").config.timeout_s, 2.0);
  EXPECT_EQ(cell_of(matrix, "die #0").config.backend, Backend::gloo);
  EXPECT_THAT(cell_of(matrix, "die #0").expected, ElementsAre(VerdictKind::failed));
  for (const PlannedRun& run : make_plan(matrix, "", {}).runs)
    EXPECT_FALSE(run.config.forced.on()) << run.id;
}

TEST(Detection, CleanPairsDifferInLengthAndEveryStepIsForced) {
  const Matrix matrix = parse(detection("mutants: [flip_bit], seeds: [0], pairs: 0, clean: 200, steps: 12"));
  std::set<int64_t> lengths;
  std::set<TraceLevel> traces;
  std::set<std::string> configs;
  for (const Cell& cell : matrix.cells) {
    if (is_planted(cell)) continue;
    lengths.insert(cell.config.steps);
    traces.insert(cell.config.trace);
    configs.insert(canonical_json(cell.config));
  }
  EXPECT_GE(lengths.size(), 8u);
  EXPECT_LE(*lengths.rbegin(), 12);
  EXPECT_EQ(traces.size(), 3u);
  EXPECT_EQ(configs.size(), 200u) << "no pair twice";
  int forced = 0;
  for (const PlannedRun& run : make_plan(matrix, "", {}).runs) {
    if (run.role != RunRole::forced_cell) continue;
    ++forced;
    EXPECT_EQ(static_cast<int64_t>(run.config.forced.steps.size()), run.config.steps);
    EXPECT_EQ(run.config.forced.steps.back(), run.config.steps - 1);
  }
  EXPECT_EQ(forced, 201);
}

TEST(Detection, OneTrialCanBeRepeatedByItsName) {
  Overrides overrides;
  overrides.only = "clean #7";
  EXPECT_THAT(names_of(parse(detection("mutants: [flip_bit], clean: 9"), overrides)),
              ElementsAre("clean #7"));
  overrides = {};
  overrides.seeds = "7..8";
  overrides.set = {"detection.clean=0", "detection.pairs=0"};
  EXPECT_THAT(names_of(parse(detection("mutants: [flip_bit]"), overrides)),
              ElementsAre("flip_bit #7", "flip_bit #8"));
}

TEST(Detection, RefusesWhatItDrawsItselfAndUnknownMutants) {
  EXPECT_THAT(problems_of(detection("mutants: [flip_bits]")),
              ElementsAre(HasSubstr("did you mean flip_bit?")));
  EXPECT_THAT(problems_of(detection("mutants: [die, die]")), ElementsAre(HasSubstr("given twice")));
  EXPECT_THAT(problems_of(detection("pears: 3")), ElementsAre(HasSubstr("did you mean detection.pairs?")));
  EXPECT_THAT(problems_of(detection("clean: 1") + "reference: {layout: 1x24}\n"),
              ElementsAre(HasSubstr("reference is not allowed in a detection matrix")));
  EXPECT_THAT(problems_of(detection("clean: 1") + "steps: 30\n"),
              ElementsAre(HasSubstr("give detection.steps")));
  EXPECT_THAT(problems_of(detection("mutants: [stall, die], pairs: 1")),
              ElementsAre(HasSubstr("no two mutants can be combined")));
}

TEST(Detection, TextsOfManyTrialsAreShort) {
  const std::string text = plan_text(make_plan(parse(detection("mutants: all, clean: 400")), "", {}), 2);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 230);
  EXPECT_THAT(text, HasSubstr("GB of traces"));
}

PlantedFault fault_of(const MutantEntry& entry, double factor = 1) {
  PlantedFault fault{&entry, {}, 0};
  fault.mutant.tensor = "energy_head.key.weight";
  fault.mutant.factor = factor;
  return fault;
}

TEST(PlantedFault, APlaceIsNamedByItsBeginning) {
  MutantEntry entry{
      .name = "x", .help = "", .phase = "local gradients|reduced gradients", .where = "$tensor|bucket 1"};
  const PlantedFault fault = fault_of(entry);
  EXPECT_TRUE(names_place(fault, "local gradients", "energy_head.key.weight"));
  EXPECT_TRUE(names_place(fault, "reduced gradients", "energy_head.key.weight, element 3"));
  EXPECT_TRUE(names_place(fault, "local gradients", "bucket 1"));
  EXPECT_FALSE(names_place(fault, "local gradients", "bucket 12"));
  EXPECT_FALSE(names_place(fault, "local gradients", "energy_head.key.weight_2"));
  EXPECT_FALSE(names_place(fault, "local gradients", "energy_head.query.weight"));
  EXPECT_FALSE(names_place(fault, "energies", "energy_head.key.weight"));
  entry.where = "";
  EXPECT_TRUE(names_place(fault, "local gradients", "anything"));
}

TEST(PlantedFault, AFactorIsNamedByItsFormAndAnyOtherIsUnexplained) {
  const MutantEntry entry{.name = "x",
                          .help = "",
                          .draws = {.factor = true},
                          .causes = "gradient-times-world gradient-over-world sign-flipped unexplained"};
  EXPECT_THAT(right_causes(fault_of(entry, 8), 8), ElementsAre("gradient-times-world"));
  EXPECT_THAT(right_causes(fault_of(entry, 1.0 / 3), 3), ElementsAre("gradient-over-world"));
  EXPECT_THAT(right_causes(fault_of(entry, 0.5), 2), ElementsAre("gradient-over-world"));
  EXPECT_THAT(right_causes(fault_of(entry, 0.5), 4), ElementsAre("unexplained"));
  EXPECT_THAT(right_causes(fault_of(entry, -1), 4), ElementsAre("sign-flipped"));
  EXPECT_THAT(right_causes(fault_of(entry, 3.7), 8), ElementsAre("unexplained"));
  const MutantEntry rate{.name = "y", .help = "", .draws = {.factor = true}, .causes = "rate-differs"};
  EXPECT_THAT(right_causes(fault_of(rate, 3.7), 8), ElementsAre("rate-differs"));
}

TEST(PlantedFault, ShowsWhereTheEntrySays) {
  MutantEntry entry{.name = "x", .help = ""};
  EXPECT_EQ(shown_at(entry, 5, 8), 5);
  entry.step_offset = 1;
  EXPECT_EQ(shown_at(entry, 5, 8), 6);
  entry = {.name = "x", .help = "", .at_epoch = true};
  EXPECT_EQ(shown_at(entry, 0, 8), 8);
  EXPECT_EQ(shown_at(entry, 8, 8), 8);
  EXPECT_EQ(shown_at(entry, 9, 8), 16);
}

}  // namespace
}  // namespace lockstep
