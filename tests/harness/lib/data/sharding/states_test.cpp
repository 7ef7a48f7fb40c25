// Initial states: none twice in a round, the same for every number of ranks; and the audit of what ranks
// drew.

#include "harness/lib/data/sharding/states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/base/errors.h"

namespace lockstep::sharding {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

StateDraws draws_of(const StateOptions& options, int ranks, int64_t rounds) {
  InitialStates states(options);
  StateDraws draws{options.states, {}, {}};
  for (int64_t round = 0; round < rounds; ++round) {
    auto& drawn = draws.drawn.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) drawn.push_back(states.of_rank(round, rank, ranks));
  }
  return draws;
}

TEST(InitialStates, DoNotRepeatInARoundNorLeaveOneOut) {
  for (const int64_t states : {1, 5, 12, 50}) {
    for (int64_t a_round = 1; a_round <= states; ++a_round)
      EXPECT_EQ(audit_states(draws_of({states, a_round, 3}, 4, 3 * states / a_round + 1)).sentence, "");
  }
}

TEST(InitialStates, DoNotHangOnTheNumberOfRanks) {
  InitialStates all({20, 7, 1});
  for (const int ranks : {1, 2, 3, 8}) {
    InitialStates states({20, 7, 1});
    for (int64_t round = 0; round < 9; ++round) {
      std::vector<int64_t> drawn;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int64_t> mine = states.of_rank(round, rank, ranks);
        drawn.insert(drawn.end(), mine.begin(), mine.end());
      }
      EXPECT_THAT(drawn, UnorderedElementsAreArray(all.round(round)));
    }
  }
}

TEST(InitialStates, AreTheSameWhicheverRoundIsAskedFirst) {
  InitialStates in_order({9, 4, 2}), any_order({9, 4, 2});
  std::vector<std::vector<int64_t>> rounds;
  for (int64_t round = 0; round < 8; ++round) rounds.push_back(in_order.round(round));
  for (const int64_t round : {7, 2, 2, 3, 0, 5})
    EXPECT_EQ(any_order.round(round), rounds[static_cast<std::size_t>(round)]);
}

TEST(InitialStates, RefuseARoundOfMoreThanThereAre) {
  EXPECT_THROW(InitialStates({0, 1}), ConfigError);
  EXPECT_THROW(InitialStates({3, 0}), ConfigError);
  EXPECT_THROW(InitialStates({3, 4}), ConfigError);
}

TEST(AuditStates, NamesEqualEnvironmentSeeds) {
  StateDraws draws{4, {}, {{{1, 2}, {3, 4}, {5, 6}}}};
  EXPECT_EQ(audit_states(draws).sentence, "");
  draws.environment_seeds[0][2] = {3, 4};
  const Finding finding = audit_states(draws);
  EXPECT_EQ(finding.code, "equal_environment_seeds");
  EXPECT_THAT(finding.sentence, HasSubstr("round 0: ranks 1 and 2 seed their environments alike"));
}

TEST(AuditStates, SeesEachOfManyRanks) {
  const int ranks = 4096;
  StateDraws draws = draws_of({2 * ranks + 1, ranks, 3}, ranks, 7);
  for (uint64_t round = 0; round < 7; ++round) {
    auto& seeds = draws.environment_seeds.emplace_back();
    for (uint64_t rank = 0; rank < ranks; ++rank) seeds.push_back({10'000 * round + rank});
  }
  EXPECT_EQ(audit_states(draws).sentence, "");
  StateDraws twice = draws;
  twice.drawn[5][4095] = twice.drawn[5][17];
  EXPECT_THAT(audit_states(twice).sentence, HasSubstr("is drawn by ranks 17 and 4095"));
  draws.environment_seeds[6][4095] = draws.environment_seeds[6][17];
  EXPECT_THAT(audit_states(draws).sentence,
              HasSubstr("round 6: ranks 17 and 4095 seed their environments alike"));
}

TEST(InitialStates, GoOverAnEpochsEndWithLongRounds) {
  // Each round passes over most of the next permutation: linear in the states, or this takes minutes.
  EXPECT_EQ(audit_states(draws_of({100'000, 70'000, 1}, 1, 4)).sentence, "");
}

TEST(AuditStates, TellsAChunksIndexFromOtherRepeats) {
  StateDraws draws{1, {}, {{{}}}};
  for (uint64_t i = 0; i < 768; ++i) draws.environment_seeds[0][0].push_back(i % 192);
  const Finding chunk = audit_states(draws);
  EXPECT_EQ(chunk.code, "chunk_index_seeds");
  EXPECT_THAT(chunk.sentence, HasSubstr("768 requests have 192 seeds, which repeat every 192 requests"));
  draws.environment_seeds = {{{1, 2}, {3, 1}}};
  EXPECT_EQ(audit_states(draws).code, "repeated_seeds");
}

TEST(AuditStates, NamesStatesThatRepeatOrAreLeftOut) {
  StateDraws draws{12, {{{0, 1}, {2, 3}}, {{4, 5}, {6, 4}}}, {}};
  EXPECT_THAT(audit_states(draws).sentence, HasSubstr("round 1: state 4 is drawn by ranks 0 and 1"));
  draws = draws_of({12, 4, 1}, 2, 6);
  for (std::size_t round = 3; round < 6; ++round) draws.drawn[round] = draws.drawn[round - 3];
  EXPECT_EQ(audit_states(draws).code, "epoch_order_repeats");
  draws = draws_of({12, 1, 1}, 1, 12);
  draws.drawn[11] = draws.drawn[10];
  EXPECT_EQ(audit_states(draws).code, "state_left_out");
}

}  // namespace
}  // namespace lockstep::sharding
