// The question of certificate: what a matrix derives and plans for it, and which losses it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
}

TEST(CertificatePlan, PlansNoTwinsWhereABoundIsDeclared) {
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

TEST(CertificatePlan, RefusesAReferenceOfTheUsersOwn) {
  EXPECT_THAT(
      problems_of(kOneCell + "reference: {layout: 1x24}\n"),
      ElementsAre("m.yaml:5:1: the question certificate derives the reference of each cell: remove it"));
  EXPECT_THAT(problems_of(kOneCell, set({"reference.layout=1x24"})),
              ElementsAre(HasSubstr("derives the reference of each cell")));
  EXPECT_THAT(problems_of("# Q?\nname: tiny\naxes: {layout: [3x8]}\n"),
              ElementsAre(HasSubstr("reference is missing")));
}

TEST(CertificatePlan, RefusesWhatItCannotJudge) {
  EXPECT_THAT(problems_of(kOneCell + "seeds: 0..2\n"),
              ElementsAre("m.yaml:5:1: a certificate takes one seed"));
  EXPECT_THAT(problems_of(kOneCell + "rank_seed: plus_rank\n"),
              ElementsAre(HasSubstr("m.yaml:5:1: cell '3x8': one process can repeat")));
  EXPECT_THAT(problems_of(kOneCell + "trace: off\n"),
              ElementsAre(HasSubstr("5:1: cell '3x8': trace: off keeps nothing")));
  EXPECT_THAT(problems_of(kOneCell + "forced_steps: []\n"),
              ElementsAre(HasSubstr("5:1: a certificate compares gradients")));
  EXPECT_THAT(problems_of(kOneCell + "expect: [{when: {}, verdict: equivalent}]\n"),
              ElementsAre(HasSubstr("equivalent is not a verdict of the question of certificate")));
}

TEST(Losses, RefuseAnUnknownNameWithTheNearest) {
  EXPECT_THAT(problems_of(kOneCell + "loss: symetric\n"),
              ElementsAre(AllOf(HasSubstr("m.yaml:5:7: loss must be "), HasSubstr("infonce, "),
                                HasSubstr(", not 'symetric'; did you mean symmetric?"))));
  EXPECT_THAT(problems_of(kHead + "axes: {layout: [3x8], loss: [infonce, sigmod]}\n"),
              ElementsAre(HasSubstr("m.yaml:4:39: loss must be")));
}

TEST(Losses, RefuseNumbersOutOfRange) {
  EXPECT_THAT(problems_of(kOneCell + "tile_columns: 0\n"),
              ElementsAre(HasSubstr("m.yaml:5:15: tile_columns must be in [1, ")));
  EXPECT_THAT(problems_of(kOneCell + "layer: {count: 0}\n"),
              ElementsAre(HasSubstr("m.yaml:5:16: layer.count must be in [1, ")));
  EXPECT_THAT(problems_of(kOneCell + "layer: {count: -3}\n"),
              ElementsAre(HasSubstr("m.yaml:5:16: layer.count must be in [1, ")));
  EXPECT_THAT(problems_of(kOneCell + "temperature: 0\n"),
              ElementsAre("m.yaml:5:14: temperature must be in [1e-06, 1000000], not 0"));
  EXPECT_THAT(problems_of(kOneCell + "temperature: -0.3\n"), SizeIs(1));
  EXPECT_THAT(problems_of(kOneCell + "layer: {layers: [0, -2]}\n"), ElementsAre(HasSubstr("m.yaml:5:21:")));
}

TEST(Losses, RefuseLayersThatTheActionHeadHasNot) {
  EXPECT_THAT(
      problems_of(kOneCell + "negatives: layer\nlayer: {layers: [0, 6]}\n"),
      ElementsAre(
          "m.yaml:6:9: cell '3x8 layer': layer.layers names layer 6; an action head of 6 layers has layers 0 to "
          "5"));
  EXPECT_THAT(problems_of(kOneCell + "negatives: layer\nlayer: {layers: [0, 5]}\n"), IsEmpty());
  EXPECT_THAT(problems_of(kOneCell + "layer: {layers: [0, 6]}\n"), ElementsAre(HasSubstr("names layer 6")))
      << "also where no layer predicts anything";
  EXPECT_THAT(problems_of(kOneCell + "negatives: mixed\nmodel: {action_layers: 1}\n"),
              ElementsAre(HasSubstr("m.yaml:6:9: cell '3x8 mixed': an action head of one layer")));
  EXPECT_THAT(problems_of(kOneCell + "negatives: layer\nlayer: {layers: [0, 1, 2], count: 2}\n"),
              ElementsAre(HasSubstr("layer.count 2 keeps fewer")));
}

TEST(Losses, RefuseExplicitNegativesWhereTheyHaveNoMeaning) {
  for (const std::string loss : {"symmetric", "sigmoid", "hard"}) {
    for (const std::string negatives : {"layer", "mixed"}) {
      EXPECT_THAT(problems_of(kOneCell + "loss: " + loss + "\nnegatives: " + negatives + "\n"),
                  ElementsAre("m.yaml:5:1: cell '3x8 " + negatives + "': loss " + loss +
                              " uses only the rows of a batch: explicit negatives need infonce"));
    }
    EXPECT_THAT(problems_of(kOneCell + "loss: " + loss + "\nnegatives: global\n"), IsEmpty());
  }
  EXPECT_THAT(
      problems_of(kCertificate + "axes: {layout: [4x6], negatives: [adaptive_as_written]}\nloss: hard\n"),
      ElementsAre(HasSubstr("loss hard uses only the rows")))
      << "at 4x6 that rule takes explicit negatives";
}

TEST(Losses, RefuseRowsThatCannotBePartitioned) {
  EXPECT_THAT(problems_of(kCertificate + "axes: {layout: [1x24]}\nrows: one_empty\n"),
              ElementsAre("m.yaml:5:1: cell '1x24': rows one_empty needs at least 2 ranks"));
  EXPECT_THAT(problems_of(kOneCell + "rows: one_empty\n"), IsEmpty())
      << "its one process stands for three ranks";
  EXPECT_THAT(problems_of(kHead + "axes: {layout: [3x8]}\nrows: unequal\n"),
              ElementsAre(HasSubstr("its reference: rows unequal needs at least 2 ranks")));
  EXPECT_THAT(problems_of(kOneCell + "accumulation: 3\n"),
              ElementsAre("m.yaml:5:1: cell '3x8': accumulation 3 does not divide the 8 rows of a rank"));
  EXPECT_THAT(problems_of(kOneCell + "accumulation: 4\n"), IsEmpty());
  EXPECT_THAT(problems_of(kOneCell + "accumulation: 2\nrows: unequal\n"),
              ElementsAre(HasSubstr("accumulation 2 does not divide unequal rows")));
  EXPECT_THAT(problems_of(kOneCell + "accumulation: 8\nnegatives: local\n"),
              ElementsAre(HasSubstr("local negatives need at least 2 rows in a micro-step")));
  EXPECT_THAT(problems_of(kCertificate + "axes: {layout: [24x1]}\nnegatives: local\n"),
              ElementsAre(HasSubstr("local negatives need at least 2 rows a rank")));
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

}  // namespace
}  // namespace lockstep
