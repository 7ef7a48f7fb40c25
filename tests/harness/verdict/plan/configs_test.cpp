// The configs that stand in the repository: what each of them promises to run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "harness/verdict/plan/plan.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/plan/read_matrix.h"
#include "scenarios/energy/config.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"
#include "tests/support/suite_config.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

Matrix config(const std::string& name) {
  return read_matrix(LOCKSTEP_SOURCE_DIR "/configs/" + name + ".yaml", {});
}

const Cell& cell_named(const Matrix& matrix, const std::string& name) {
  for (const Cell& cell : matrix.cells) {
    if (cell.name == name) return cell;
  }
  throw std::runtime_error("no cell " + name);
}

TEST(Configs, AllReadAndAskAQuestion) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    // Those that name a suite hold no matrix; harness/cli/session reads them.
    if (support::is_suite_config(entry.path())) continue;
    ++count;
    const Matrix matrix = read_matrix(entry.path().string(), {});
    EXPECT_EQ(matrix.name, entry.path().stem().string());
    EXPECT_TRUE(matrix.question_text.ends_with("?")) << matrix.question_text;
    for (const Cell& cell : matrix.cells) {
      EXPECT_TRUE(!cell.expected.empty() || cell.noise) << cell.name;
    }
  }
  EXPECT_GE(count, 3);
}

TEST(ParityConfig, HoldsBothKindsOfNegativesAgainstOneProcess) {
  const Matrix matrix = config("parity_1x24_vs_8x3");
  EXPECT_THAT(names_of(matrix), ElementsAre("8x3 global", "8x3 local", "8x3 global lr_scale=0.125"));
  EXPECT_EQ(matrix.question, "outcome");
  EXPECT_EQ(matrix.seeds.size(), 6u);
  EXPECT_EQ(matrix.primary.metric, "accuracy_24");
  EXPECT_EQ(matrix.primary.margin, 0.03);
  EXPECT_EQ(matrix.primary.alpha, 0.05);
  for (const Cell& cell : matrix.cells) {
    EXPECT_EQ(cell.reference_name, "1x24 global");
    EXPECT_EQ(cell.config.steps, 600);
    EXPECT_EQ(cell.config.layout, (Layout{8, 3}));
    EXPECT_EQ(cell.power_control, cell.name == "8x3 global lr_scale=0.125")
        << cell.name << ": what people ask about is no control";
  }
  EXPECT_THAT(cell_named(matrix, "8x3 global").expected, ElementsAre(VerdictKind::equivalent));
  EXPECT_THAT(cell_named(matrix, "8x3 local").expected, ElementsAre(VerdictKind::divergent));
  EXPECT_THAT(cell_named(matrix, "8x3 global lr_scale=0.125").expected, ElementsAre(VerdictKind::divergent));
}

TEST(ParityConfig, IsDoneWithinMinutesOnTwoCores) {
  const Plan plan = make_plan(config("parity_1x24_vs_8x3"), "", {});
  EXPECT_LT(estimate_total_s(plan, 2), 150);
}

TEST(RulesConfig, ReportsWhatRatesAndStreamsDo) {
  const Matrix matrix = config("rules");
  EXPECT_THAT(names_of(matrix), ElementsAre("8x3", "8x3 lr_rule=linear", "8x3 lr_rule=sqrt",
                                            "8x3 rank_seed=same", "8x3 lr_scale=0.125"));
  const Matrix parity = config("parity_1x24_vs_8x3");
  EXPECT_EQ(matrix.primary.metric, parity.primary.metric);
  EXPECT_EQ(matrix.primary.margin, parity.primary.margin);
  for (const Cell& cell : matrix.cells) {
    EXPECT_EQ(cell.reference_name, "1x24 global");
    EXPECT_EQ(energy(cell.config).negatives, Negatives::global);
    EXPECT_EQ(cell.power_control, cell.name == "8x3 lr_scale=0.125") << cell.name;
  }
  EXPECT_THAT(cell_named(matrix, "8x3").expected, ElementsAre(VerdictKind::equivalent));
  EXPECT_THAT(cell_named(matrix, "8x3 lr_scale=0.125").expected, ElementsAre(VerdictKind::divergent));
  for (const char* name : {"8x3 lr_rule=linear", "8x3 lr_rule=sqrt", "8x3 rank_seed=same"}) {
    EXPECT_THAT(
        cell_named(matrix, name).expected,
        UnorderedElementsAre(VerdictKind::equivalent, VerdictKind::divergent, VerdictKind::inconclusive));
  }
}

TEST(SmokeConfig, RunsRealRanksOnGeneratedDataOnly) {
  const Matrix matrix = config("smoke");
  EXPECT_THAT(names_of(matrix), ElementsAre("3x8 global", "8x3 global"));
  EXPECT_THAT(matrix.forced_steps, ElementsAre(0, 1, 2, 5, 10, 20, 29));
  const Plan plan = make_plan(matrix, "", {});
  for (const PlannedRun& run : plan.runs) {
    EXPECT_EQ(run.config.data.source, DataSource::synthetic);
    EXPECT_LT(energy(run.config).data.min_context, energy(run.config).data.context_steps);
    EXPECT_GT(energy(run.config).dropout, 0);
    EXPECT_EQ(run.config.backend == Backend::gloo, run.config.layout.world_size > 1);
  }
  EXPECT_LT(estimate_total_s(plan, 2), 60);
}

TEST(LadderConfig, CoversWhatTheRungsMustEqualOn) {
  const Matrix matrix = config("ladder");
  std::map<int, std::set<std::string>> names;
  std::map<int, std::set<std::string>> pairs;
  std::set<int> sharing;  // rungs whose ranks share the update
  for (const Cell& cell : matrix.cells) {
    const RunConfig& c = cell.config;
    EXPECT_TRUE(cell.paired);
    EXPECT_EQ(c.backend, Backend::gloo);
    EXPECT_EQ(cell.reference.backend, Backend::emulated);
    EXPECT_GT(c.bucket_cap_bytes, 0);
    EXPECT_THAT(cell.expected, ElementsAre(VerdictKind::identical));
    if (c.update == UpdatePartition::sharded) {
      sharing.insert(c.layout.world_size);
      continue;
    }
    names[c.layout.world_size].insert(cell.name);
    // Every pair of settings that a cell joins.
    for (std::size_t i = 1; i < cell.settings.size(); ++i) {
      for (std::size_t j = 1; j < i; ++j) {
        pairs[c.layout.world_size].insert(cell.settings[i].second + "+" + cell.settings[j].second);
      }
    }
  }
  EXPECT_EQ(sharing, (std::set<int>{3, 8}));
  ASSERT_EQ(names.size(), 5u);
  for (const int v : {3, 8}) EXPECT_EQ(names[v].size(), 24u);
  for (const int v : {2, 4, 5}) {
    EXPECT_EQ(names[v].size(), 6u);
    EXPECT_EQ(pairs[v], pairs[3]) << v;
  }
  const Plan plan = make_plan(matrix, "", {});
  EXPECT_EQ(plan.runs.size(), 2 * matrix.cells.size()) << "bits are compared: nothing is forced or certified";
  EXPECT_LT(estimate_total_s(plan, 2), 180);
}

}  // namespace
}  // namespace lockstep
