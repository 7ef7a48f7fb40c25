#include "scenarios/energy/adaptive.h"

#include <gtest/gtest.h>

#include <vector>

#include "scenarios/energy/config.h"

namespace lockstep {
namespace {

RunConfig config_of(Layout layout, Negatives negatives) {
  RunConfig config;
  config.layout = layout;
  energy(config).negatives = negatives;
  return config;
}

TEST(ResolvedNegatives, DecideLayoutsOfOneGlobalBatch) {
  struct Row {
    Layout layout;
    Negatives as_written, repaired;
  };
  const std::vector<Row> table{
      {{1, 24}, Negatives::local, Negatives::global}, {{2, 12}, Negatives::global, Negatives::global},
      {{3, 8}, Negatives::global, Negatives::global}, {{4, 6}, Negatives::layer, Negatives::global},
      {{8, 3}, Negatives::layer, Negatives::global},
  };
  for (const auto& [layout, as_written, repaired] : table) {
    EXPECT_EQ(resolved_negatives(config_of(layout, Negatives::adaptive_as_written)), as_written)
        << layout.world_size << "x" << layout.rows_per_rank;
    EXPECT_EQ(resolved_negatives(config_of(layout, Negatives::adaptive)), repaired)
        << layout.world_size << "x" << layout.rows_per_rank;
  }
}

TEST(ResolvedNegatives, NeverReachTheInnerLimitAsWritten) {
  for (int rows = 1; rows <= 24; ++rows) {
    const Negatives chosen = resolved_negatives(config_of({2, rows}, Negatives::adaptive_as_written));
    EXPECT_EQ(chosen, rows >= 8 ? Negatives::global : Negatives::layer) << rows;
  }
}

TEST(ResolvedNegatives, ChangeAtEightCandidatesWhenRepaired) {
  EXPECT_EQ(resolved_negatives(config_of({7, 1}, Negatives::adaptive)), Negatives::layer);
  EXPECT_EQ(resolved_negatives(config_of({1, 7}, Negatives::adaptive)), Negatives::layer);
  EXPECT_EQ(resolved_negatives(config_of({8, 1}, Negatives::adaptive)), Negatives::global);
}

TEST(ResolvedNegatives, SeeTheRanksThatAnOracleStandsFor) {
  RunConfig oracle = config_of({1, 24}, Negatives::adaptive_as_written);
  oracle.oracle_world = 4;
  EXPECT_EQ(resolved_negatives(oracle), Negatives::layer);
  oracle.oracle_world = 3;
  EXPECT_EQ(resolved_negatives(oracle), Negatives::global);
}

TEST(ResolvedNegatives, LeaveWhatIsChosenAlone) {
  for (const Negatives negatives :
       {Negatives::local, Negatives::global, Negatives::layer, Negatives::mixed}) {
    EXPECT_EQ(resolved_negatives(config_of({8, 3}, negatives)), negatives);
  }
}

TEST(HasNegatives, NotWhereARowIsAloneAmongItsCandidates) {
  EXPECT_FALSE(has_negatives(config_of({24, 1}, Negatives::local)));
  EXPECT_TRUE(has_negatives(config_of({24, 1}, Negatives::global)));
  EXPECT_FALSE(has_negatives(config_of({1, 1}, Negatives::global)));
  EXPECT_TRUE(has_negatives(config_of({8, 3}, Negatives::local)));
  for (const Negatives negatives : {Negatives::layer, Negatives::mixed, Negatives::adaptive})
    EXPECT_TRUE(has_negatives(config_of({1, 1}, negatives)));
}

}  // namespace
}  // namespace lockstep
