#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/answer/questions/trials.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/cells.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/read_matrix.h"
#include "scenarios/energy/spec.h"
#include "tests/harness/plan/matrix/matrix_helpers.h"

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
}

TEST(Detection, AMutantThatCannotShowWithinTheRunIsLeftOutAndAMistakeOfTheUsersIsNot) {
  const Matrix matrix = parse(detection("mutants: [set_epoch_forgotten, sign_flipped], seeds: [0], pairs: 0, clean: 0, steps: 3"));
  const auto& left_out = section_of<DetectionConfig>(matrix).left_out;
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_EQ(left_out[0].mutant, "set_epoch_forgotten");
  EXPECT_EQ(left_out[0].reason, "it cannot show within 3 steps");
  EXPECT_THAT(names_of(matrix), ElementsAre("sign_flipped #0"));
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

// The question of certificate: what a matrix derives and plans for it, and which losses it refuses.

using testing::SizeIs;

// Three lines: what tests append begins at line 4.
const std::string kCertificate =
    "# Is it exact?\n"
    "name: tiny\n"
    "question: certificate\n";

const std::string kOneCell = kCertificate + "axes: {layout: [3x8]}\n";

TEST(CertificatePlan, SetsWhatTheQuestionNeedsUnlessGiven) {
  const Matrix matrix = parse(kOneCell);
  EXPECT_EQ(matrix.cells.front().config.precision, Precision::float64);
  EXPECT_EQ(matrix.cells.front().config.steps, 61);
  EXPECT_TRUE(matrix.cells.front().config.eval_every.is_never());
  EXPECT_THAT(matrix.forced_steps, ElementsAre(0, 60));
  EXPECT_EQ(matrix.band.exact, 1e-12);
  const Matrix given =
      parse(kOneCell + "precision: float32\nsteps: 5\nforced_steps: [0, 3]\nband: {exact: 1e-5}\n");
  EXPECT_EQ(given.cells.front().config.precision, Precision::float32);
  EXPECT_EQ(given.cells.front().config.steps, 5);
  EXPECT_THAT(given.forced_steps, ElementsAre(0, 3));
  EXPECT_EQ(given.band.exact, 1e-5);
}

TEST(CertificatePlan, DerivesOneProcessThatHoldsAllRows) {
  const Matrix matrix =
      parse(kCertificate +
            "axes: {layout: [3x8], negatives: [local], rows: [unequal], accumulation: [1]}\n"
            "tile_columns: 5\nbucket_cap_bytes: 4096\nmutant: {name: grad_scale, factor: 3}\n");
  ASSERT_THAT(matrix.cells, SizeIs(1));
  const Cell& cell = matrix.cells.front();
  EXPECT_EQ(cell.config.oracle_world, 0);
  EXPECT_EQ(energy(cell.config).tile_columns, 5);
  EXPECT_EQ(cell.config.mutant.name, "grad_scale");
  const RunConfig& reference = cell.reference;
  EXPECT_EQ(reference.layout, (Layout{1, 24}));
  EXPECT_EQ(reference.oracle_world, 3);
  EXPECT_EQ(reference.backend, Backend::emulated);
  EXPECT_EQ(energy(reference).negatives, Negatives::local);
  EXPECT_EQ(reference.rows, RowPartition::unequal);
  EXPECT_EQ(energy(reference).tile_columns, 1000000);
  EXPECT_EQ(reference.bucket_cap_bytes, 0);
  EXPECT_EQ(reference.mutant.name, "none");
  EXPECT_EQ(reference.precision, Precision::float64);
  EXPECT_THAT(cell.reference_name, HasSubstr("oracle_world=3"));
}

TEST(CertificatePlan, ComparesOneProcessWithItsPlainReferenceToo) {
  const Matrix matrix = parse(kCertificate + "axes: {layout: [1x24]}\n");
  EXPECT_EQ(matrix.cells.front().reference.oracle_world, 1);
  EXPECT_EQ(make_plan(matrix, "", {}).runs.back().role, RunRole::forced_cell);
}

TEST(CertificatePlan, SharesAReferenceWhereRanksDoNotDecideTheCandidates) {
  const std::string axes =
      "axes: {layout: [1x24, 3x8, 8x3], rows: [equal, unequal]}\n"
      "exclude: [{layout: 1x24, rows: unequal}]\nnegatives: ";
  const auto references = [&](const std::string& more) {
    std::set<std::string> names;
    for (const Cell& cell : parse(kCertificate + axes + more + "\n").cells)
      names.insert(config_hash(cell.reference));
    return names.size();
  };
  EXPECT_EQ(references("global"), 1u);
  EXPECT_EQ(references("layer"), 1u);
  EXPECT_EQ(references("local"), 5u);
  EXPECT_EQ(references("layer\nlayer: {as_written: true}"), 5u)
      << "noise by rank is another with every layout";
  EXPECT_EQ(references("adaptive_as_written"), 3u)
      << "of all ranks at 3x8, explicit at 8x3; local in one process";
}

TEST(CertificatePlan, RunsTheReferenceAndForcesItsSnapshotsAndNothingElse) {
  const Plan plan =
      make_plan(parse(kCertificate + "axes: {layout: [3x8], ranks: [emulated, real]}\n"), "", {});
  std::vector<RunRole> roles;
  for (const PlannedRun& run : plan.runs) roles.push_back(run.role);
  EXPECT_THAT(roles, ElementsAre(RunRole::reference, RunRole::forced_reference, RunRole::forced_cell,
                                 RunRole::forced_cell))
      << "cells that differ in how ranks run share a reference";
  EXPECT_THAT(plan.runs[0].config.snapshot_steps, ElementsAre(0, 60));
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(plan.runs[i].config.forced.from, plan.runs[0].id);
    EXPECT_THAT(plan.runs[i].needs, ElementsAre(plan.runs[0].id));
  }
  EXPECT_EQ(plan.runs[3].config.backend, Backend::gloo);
  EXPECT_THAT(plan_text(plan), HasSubstr("tiny · certificate: 2 cells within 1e-12"));
}

int count_of(RunRole role, const std::string& keys) {
  const Plan plan = make_plan(parse(kHead + "axes: {layout: [3x8]}\n" + keys), "", {});
  return static_cast<int>(std::ranges::count(plan.runs, role, &PlannedRun::role));
}

TEST(CertificatePlan, PlansTwinsForOtherQuestionsStill) {
  EXPECT_EQ(count_of(RunRole::forced_twin, ""), 2);
  EXPECT_EQ(count_of(RunRole::forced_twin, "precision: bfloat16\n"), 2);
  EXPECT_EQ(count_of(RunRole::forced_twin, "precision: float64\n"), 0) << "they are their own twins";
  EXPECT_EQ(count_of(RunRole::forced_twin, "band: {exact: 1e-12}\n"), 0);
}

TEST(Planner, ForcesNoSnapshotsUponAnotherModel) {
  const auto forced = [](const std::string& reference) {
    const Plan plan =
        make_plan(parse("# Q?\nname: tiny\nreference: {layout: 1x24, negatives: " + reference +
                        "}\naxes: {layout: [8x3], negatives: [global, layer, adaptive_as_written]}\n"),
                  "", {});
    std::vector<std::string> cells;
    for (const PlannedRun& run : plan.runs) {
      if (run.role == RunRole::forced_cell) cells.push_back(run.cell);
    }
    return cells;
  };
  EXPECT_THAT(forced("global"), ElementsAre("8x3 global"))
      << "the others have an action head, the reference has none";
  EXPECT_THAT(forced("layer"), ElementsAre("8x3 layer", "8x3 adaptive_as_written"));
}

TEST(LossesConfig, HasEveryLossAtEveryNumberOfRanks) {
  const Matrix matrix = read_matrix(LOCKSTEP_SOURCE_DIR "/configs/losses.yaml", {});
  EXPECT_GE(matrix.cells.size(), 500u);
  std::set<std::string> forms;
  std::set<int> worlds;
  int real = 0, tiled = 0, empty = 0;
  for (const Cell& cell : matrix.cells) {
    const RunConfig& c = cell.config;
    forms.insert(energy(c).loss + " " + std::to_string(static_cast<int>(energy(c).negatives)));
    worlds.insert(c.layout.world_size);
    real += c.backend == Backend::gloo;
    tiled += energy(c).tile_columns < 24;
    empty += c.rows == RowPartition::one_empty;
    EXPECT_EQ(c.precision, Precision::float64);
    const bool by_rank = energy(c).negatives == Negatives::local || c.accumulation > 1;
    EXPECT_EQ(cell.reference.oracle_world, by_rank ? c.layout.world_size : 1) << cell.name;
  }
  EXPECT_EQ(forms.size(), 12u);
  EXPECT_THAT(worlds, ElementsAre(1, 2, 3, 4, 8));
  EXPECT_GE(real, 40);
  EXPECT_GE(tiled, 6);
  EXPECT_GE(empty, 100);
  EXPECT_LT(estimate_total_s(make_plan(matrix, "", {}), 2), 600);
}

// What a matrix may ask of exact arithmetic, and what it is refused.

const std::string kOutcome =
    "# Is it so?\nname: tiny\nquestion: outcome\nseeds: [4, 5]\nsteps: 300\n"
    "reference: {layout: 1x24}\naxes: {layout: [8x3]}\ninclude:\n  - {layout: 8x3, lr_scale: 0.125}\n"
    "power_controls:\n  - {lr_scale: 0.125}\n";

std::map<RunRole, int> roles_of(const Plan& plan) {
  std::map<RunRole, int> count;
  for (const PlannedRun& run : plan.runs) ++count[run.role];
  return count;
}

Plan plan_of(const std::string& text) { return make_plan(parse(text), "", {}); }

TEST(ExactPair, IsOfOneSeedOfEachCellButOfNoPowerControl) {
  const Plan plan = plan_of(kOutcome + "certify: {exact: 100}\n");
  auto roles = roles_of(plan);
  EXPECT_EQ(roles[RunRole::exact_reference], 1);
  EXPECT_EQ(roles[RunRole::exact_cell], 1);
  for (const PlannedRun& run : plan.runs) {
    const bool exact = run.role == RunRole::exact_reference || run.role == RunRole::exact_cell;
    EXPECT_EQ(run.config.arithmetic == Arithmetic::exact, exact) << run.id;
    if (!exact) continue;
    EXPECT_EQ(run.config.stop_after, 100);
    EXPECT_EQ(run.config.steps, 300) << "schedules still extend to the whole run";
    EXPECT_EQ(run.config.seed, 4);
    EXPECT_EQ(run.config.backend, Backend::emulated);
    EXPECT_THAT(run.id, HasSubstr("-exact-"));
  }
  EXPECT_FALSE(roles_of(plan_of(kOutcome)).contains(RunRole::exact_cell)) << "it was not asked for";
}

TEST(ExactArithmetic, NamesCellsAndTakesNoForcedStep) {
  const std::string text = kHead + "arithmetic: native\nforced_steps: [0, 1]\naxes: {layout: [8x3], arithmetic: [native, exact]}\n";
  const Matrix matrix = parse(text);
  EXPECT_THAT(names_of(matrix), Contains("8x3 arithmetic=exact"));
  for (const PlannedRun& run : make_plan(matrix, "", {}).runs) {
    if (run.role != RunRole::forced_cell) continue;
    EXPECT_EQ(run.config.arithmetic, Arithmetic::native) << run.id;
  }
}

const std::string kDetection = kBase + "arithmetic: exact\n";

TEST(ExactDetection, PlantsEveryBugThatCanActAndRefusesThoseThatCannot) {
  const Matrix matrix = parse(kDetection + "detection: {mutants: all, seeds: [0], pairs: 0, clean: 0}\n");
  int beyond = 0;
  for (const MutantEntry& entry : mutant_entries()) {
    const bool of_another = !entry.trainer.empty() && entry.trainer != "energy";
    const auto plants = [&](const Cell& cell) { return cell.config.mutant.name == entry.name; };
    const bool planted = std::ranges::any_of(matrix.cells, plants);
    beyond += entry.beyond_exact.empty() ? 0 : 1;
    if (of_another) continue;
    EXPECT_EQ(planted, entry.beyond_exact.empty()) << entry.name;
  }
  EXPECT_GT(beyond, 0);
}

TEST(ExactDetection, DrawsBitsBelowRoundingToo) {
  const Matrix matrix = parse(kDetection + "detection: {mutants: [flip_bit], seeds: 0..40, pairs: 0, clean: 0}\n");
  const auto low = [](const Cell& cell) { return cell.config.mutant.bit < 20; };
  EXPECT_TRUE(std::ranges::any_of(matrix.cells, low));
  for (const PlannedRun& run : make_plan(matrix, "", {}).runs) EXPECT_FALSE(run.config.forced.on()) << run.id;
}

// Cells that differ from their reference in arithmetic alone keep what shows how far rounding carries them.

const std::string kConfig =
    "# How far?\nname: drift\nquestion: outcome\nseeds: [0, 1]\nsteps: 300\nreference: {layout: 1x24}\n"
    "axes: {layout: [1x24], arithmetic: [exact]}\n"
    "include:\n  - {layout: 1x24, lr_scale: 0.5}\n  - {layout: 8x3, arithmetic: exact}\n"
    "power_controls:\n  - {lr_scale: 0.5}\n";

TEST(Drift, StepsAreSpreadEvenlyOverTheDecades) {
  EXPECT_THAT(drift_steps(300), ElementsAre(1, 2, 5, 10, 20, 50, 100, 200, 299));
  EXPECT_THAT(drift_steps(3), ElementsAre(1, 2));
  EXPECT_THAT(drift_steps(2), ElementsAre(1));
  EXPECT_THAT(drift_steps(1), IsEmpty());
}

TEST(Drift, IsOfCellsThatDifferInArithmeticAlone) {
  const Matrix matrix = parse(kConfig);
  ASSERT_EQ(matrix.cells.size(), 3u);
  EXPECT_TRUE(rounds_alone(matrix.cells[0]));
  EXPECT_FALSE(rounds_alone(matrix.cells[1])) << "another rate is no rounding";
  EXPECT_FALSE(rounds_alone(matrix.cells[2])) << "another layout may be another mistake";
}

TEST(Drift, BothSidesKeepSnapshotsAndTheReferenceIsTrainedOnceForAllCells) {
  const Plan plan = make_plan(parse(kConfig), "", {});
  for (const PlannedRun& run : plan.runs) {
    const bool kept = run.role == RunRole::reference || run.cell == "1x24 arithmetic=exact";
    EXPECT_EQ(run.config.snapshot_steps, kept ? drift_steps(300) : std::vector<int64_t>{}) << run.id;
  }
  const auto references = std::ranges::count(plan.runs, RunRole::reference, &PlannedRun::role);
  EXPECT_EQ(references, 2) << "one a seed";
}

TEST(Drift, AMatrixOfOneArithmeticKeepsNothingForIt) {
  const Matrix matrix = parse("# So?\nname: d\nsteps: 300\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n");
  for (const Cell& cell : matrix.cells) {
    EXPECT_THAT(cell.config.snapshot_steps, IsEmpty());
    EXPECT_THAT(cell.reference.snapshot_steps, IsEmpty());
  }
}

}  // namespace
}  // namespace lockstep
