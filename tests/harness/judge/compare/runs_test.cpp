#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/writer.h"

// What tracers contradict, and states of generators.

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(Contradictions, StatisticsAreHeldAgainstValuesAndHashes) {
  const std::vector<float> values{3, -4};
  Record sound;
  sound.phase = Phase::parameters;
  sound.name = "w";
  sound.shape = {2};
  sound.has_stats = true;
  sound.stats = tensor_stats({values.data(), DType::float32, sound.shape, {}});
  sound.payload.assign(reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<const std::byte*>(values.data() + 2));
  const auto told = [&](const Record& b) {
    Contradictions found;
    found.look({3, {{3, {sound}}}}, {3, {{3, {b}}}}, "a", "b");
    return found.sentence();
  };
  EXPECT_EQ(told(sound), "");
  struct Case {
    const char* words;
    void (*plant)(Record&);
  };
  for (const Case& each : {Case{"the norms 6 and 5", [](Record& r) { r.stats.norm = 6; }}, Case{"the minima -5 and -4", [](Record& r) { r.stats.min = -5; }},
                           Case{"the maxima 7 and 3", [](Record& r) { r.stats.max = 7; }}, Case{"the counts of non-finite values 1 and 0", [](Record& r) { r.stats.nonfinite = 1; }}}) {
    Record beside_values = sound, by_hash = sound;
    each.plant(beside_values);
    EXPECT_THAT(told(beside_values), HasSubstr(std::string("step 3, rank 0, parameters, w: in b, recorded and of its values, ") + each.words));
    each.plant(by_hash);
    by_hash.payload.clear();
    EXPECT_THAT(told(by_hash), HasSubstr("w: the hashes are the same, the "));
  }
  Record rounded = sound, other_hash = sound, other_values = sound;
  rounded.stats.norm *= 1 + 1e-6;
  EXPECT_EQ(told(rounded), "") << "another order of the sum";
  other_hash.stats.hash ^= 1;
  EXPECT_THAT(told(other_hash), HasSubstr("the values are the same and the hashes are not"));
  other_values.payload[0] ^= std::byte{1};
  other_values.has_stats = false;
  EXPECT_THAT(told(other_values), HasSubstr("the hashes are the same and the values are not"));
}

TEST(Contradictions, PartsAndIdsOfRowsAreHeldAgainstEachOther) {
  const std::vector<float> values{3, -4};
  Record part;
  part.phase = Phase::parameters;
  part.name = "w";
  part.shape = {2};
  part.placement = std::make_shared<const Placement>(Placement{true, {4}, {2}});
  part.stats.hash = 7;
  part.payload.assign(reinterpret_cast<const std::byte*>(values.data()), reinterpret_cast<const std::byte*>(values.data() + 2));
  const auto of_part = [&](const Record& b) {
    Contradictions found;
    found.look({3, {{3, {}}}, {}, {{part}}}, {3, {{3, {}}}, {}, {{b}}}, "a", "b");
    return found.sentence();
  };
  Record other_hash = part, elsewhere = part;
  other_hash.stats.hash = elsewhere.stats.hash = 8;
  elsewhere.placement = std::make_shared<const Placement>(Placement{true, {4}, {0}});
  EXPECT_EQ(of_part(part), "");
  EXPECT_EQ(of_part(elsewhere), "") << "another part of the tensor";
  EXPECT_THAT(of_part(other_hash), HasSubstr("the values are the same and the hashes are not"));
  Record samples, losses;
  samples.phase = Phase::samples;
  samples.ids = {4, 5};
  losses.phase = Phase::loss;
  losses.name = "row_losses";
  losses.ids = {4, 5};
  const auto of_rows = [&](const Record& b) {
    Contradictions found;
    found.look({3, {{3, {samples, losses}}}}, {3, {{3, {samples, b}}}}, "a", "b");
    return found.sentence();
  };
  Record exchanged = losses, strange = losses;
  exchanged.ids = {5, 4};
  strange.ids = {4, 9};
  EXPECT_EQ(of_rows(losses), "");
  EXPECT_THAT(of_rows(exchanged), HasSubstr("the hashes are the same and the sample ids of the rows are not"));
  EXPECT_THAT(of_rows(strange), HasSubstr("row 1 is of sample 9, which is not among the rank's samples of the step"));
}

/// What a rank records of one generator.
struct State {
  uint64_t hash = 0;
  double draws = 12;
};

StepOfRun step_of(const std::vector<State>& ranks, const std::string& declared = "", const std::string& stream = "process/dropout") {
  StepOfRun step;
  step.step = 2;
  for (const State& state : ranks) {
    Record record;
    record.phase = Phase::random;
    record.name = stream;
    record.stats.hash = state.hash;
    record.value = state.draws;
    step.ranks.push_back({2, {record}});
  }
  if (!declared.empty()) {
    auto header = std::make_shared<Declared>();
    header->streams[stream] = declared;
    step.declared = header;
  }
  return step;
}

TEST(Generators, AreStreamsWithAScope) {
  for (const char* stream : {"process/dropout", "worker 3/augment", "device 0/noise"}) EXPECT_TRUE(is_of_a_generator(stream)) << stream;
  for (const char* stream : {"dropout", "context noise", "processor/dropout", "worker", "processes"}) EXPECT_FALSE(is_of_a_generator(stream)) << stream;
  EXPECT_EQ(name_of_generator("worker 3/augment"), "augment");
}

TEST(Generators, AreDeclaredByTheirWholeNameOrWithoutTheirScope) {
  StepOfRun step = step_of({{1}});
  EXPECT_EQ(declared_state(step, "process/dropout"), "");
  auto header = std::make_shared<Declared>();
  header->streams["dropout"] = "rank";
  header->streams["device 1/dropout"] = "same";
  step.declared = header;
  EXPECT_EQ(declared_state(step, "process/dropout"), "rank");
  EXPECT_EQ(declared_state(step, "device 1/dropout"), "same") << "the whole name goes first";
  EXPECT_EQ(declared_state(step, "process/noise"), "");
}

TEST(GeneratorsDifference, IsNoneWhereEachRankHasItsOwnState) {
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}, "rank"), step_of({{2}, {3}}, "rank")));
  EXPECT_FALSE(generators_difference(step_of({{1}, {2}}), step_of({{3}, {4}}))) << "which states those are only a seed decides";
}

TEST(GeneratorsDifference, RanksInOneStateAreTold) {
  const auto declared = generators_difference(step_of({{1, 24}}, "rank"), step_of({{5}, {5}}, "rank"));
  ASSERT_TRUE(declared);
  EXPECT_EQ(declared->phase, Phase::random);
  EXPECT_EQ(declared->divergence.rank, kAllRanks);
  EXPECT_EQ(declared->divergence.where, "process/dropout");
  EXPECT_EQ(declared->divergence.expected, "another state on each rank");
  EXPECT_TRUE(generators_difference(step_of({{1}, {2}}), step_of({{5}, {5}}))) << "the reference's ranks have states of their own";
  EXPECT_FALSE(generators_difference(step_of({{1}, {1}}), step_of({{5}, {5}}))) << "as the reference's are";
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}), step_of({{5}, {5}}))) << "and of one process nothing is known";
  EXPECT_FALSE(generators_difference(step_of({{1, 0}}, "rank"), step_of({{5, 0}, {5, 0}}, "rank"))) << "nobody draws from it";
}

TEST(GeneratorsDifference, RanksInSeveralStatesOfWhatIsDeclaredTheSameAreTold) {
  EXPECT_FALSE(generators_difference(step_of({{1}}, "same"), step_of({{7}, {7}, {7}}, "same")));
  const auto odd = generators_difference(step_of({{1}}, "same"), step_of({{7}, {8}, {7}}, "same"));
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->divergence.rank, 1);
  EXPECT_THAT(odd->divergence.actual, HasSubstr("0000000000000008"));
}

TEST(GeneratorsDifference, OtherNumbersOfDrawsAreToldWhereTheDeclarationFixesThem) {
  // Each rank draws for its own rows: together as much as one process.
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}, "rank"), step_of({{2, 12}, {3, 12}}, "rank")));
  const auto more = generators_difference(step_of({{1, 24}}, "rank"), step_of({{2, 12}, {3, 15}}, "rank"));
  ASSERT_TRUE(more);
  EXPECT_EQ(more->divergence.expected, "24 draws");
  EXPECT_EQ(more->divergence.actual, "27 draws");
  // One state on all ranks: each draws what one process does.
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}, "same"), step_of({{2, 24}, {2, 24}}, "same")));
  EXPECT_TRUE(generators_difference(step_of({{1, 24}}, "same"), step_of({{2, 12}, {2, 12}}, "same")));
  // Of two layouts nothing else tells.
  EXPECT_FALSE(generators_difference(step_of({{1, 24}}), step_of({{2, 24}, {3, 24}})));
  EXPECT_TRUE(generators_difference(step_of({{1, 24}, {2, 24}}), step_of({{2, 24}, {3, 25}}))) << "of one layout they are the same";
}

TEST(GeneratorsDifference, OfOneRunAloneTellsNothingOfDraws) {
  EXPECT_FALSE(generators_difference(step_of({{1}}, "rank", "process/noise"), step_of({{2}, {3, 99}}, "rank")));
}

TEST(GeneratorHistory, KeepsStatesOfGeneratorsAlone) {
  GeneratorHistory history;
  remember_generators(history, step_of({{7}, {8}}));
  remember_generators(history, step_of({{9}}, "", "dropout"));
  ASSERT_EQ(history.size(), 1u);
  EXPECT_EQ(history.at(2).at("process/dropout").at(1), 8u);
  EXPECT_FALSE(history.at(2).contains("dropout"));
}

}  // namespace
}  // namespace lockstep
