#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "harness/answer/questions/question_judge.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/band.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/read_matrix.h"
#include "tests/support/made_run.h"
#include "tests/support/temp_folder.h"

// Runs of one layout, bit for bit: each fault is planted and must be named; without it the judge is silent.

namespace lockstep {
namespace {

using support::FakeRun;
using support::FakeStep;
using support::parts_at;
using support::tensor_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void flip_bit(float& value, int bit) {
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (1u << bit));
}

class CompareSameLayout : public ::testing::TestWithParam<int> {
 protected:
  FakeRun clean() const {
    FakeRun run;
    run.world_size = GetParam();
    run.steps = support::steps_up_to(30);
    return run;
  }
  Mechanism compare(const FakeRun& a, const FakeRun& b, int64_t steps = 0) {
    support::write_fake_run(folder_ / "a", a);
    support::write_fake_run(folder_ / "b", b);
    return compare_runs({folder_ / "a", folder_ / "b", {}, {}, nullptr, nullptr, {}, steps});
  }
  Mechanism with_fault(std::function<void(FakeStep&)> fault) {
    FakeRun faulty = clean();
    faulty.fault = std::move(fault);
    return compare(clean(), faulty);
  }
  int last_rank() const { return GetParam() - 1; }
  TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, CompareSameLayout, ::testing::Values(3, 8));

TEST_P(CompareSameLayout, EqualRunsAreIdentical) {
  const Mechanism result = compare(clean(), clean());
  EXPECT_EQ(result.verdict, VerdictKind::identical);
  EXPECT_FALSE(result.first_divergence.has_value());
  EXPECT_EQ(result.compared_steps, 30);
  EXPECT_EQ(result.sentence,
            "Identical: every bit of 30 steps on " + std::to_string(GetParam()) + " ranks agrees.");
}

TEST_P(CompareSameLayout, OneFlippedBitIsNamedExactly) {
  const int rank = GetParam() == 8 ? 5 : 2;
  const Mechanism result = with_fault([&](FakeStep& it) {
    if (it.step < 17) return;
    if (it.step == 17 && it.rank == rank)
      flip_bit(tensor_of(it.local_gradients, "action_encoder.weight1")[3], 0);
    // What follows from it differs too, on every rank and in collectives.
    if (it.step == 17 && it.rank == rank) it.collectives[1].hash_in ^= 1;
    it.collectives[1].hash_out ^= 1;
    flip_bit(tensor_of(it.reduced_gradients, "action_encoder.weight1")[3], 0);
    flip_bit(tensor_of(it.parameters, "action_encoder.weight1")[3], 0);
    if (it.step > 17) flip_bit(it.energies[0], 0);
  });
  // Hashes alone say where, not why.
  ASSERT_THAT(result, parts_at({.step = 17, .phase = "local gradients", .rank = rank, .where = "action_encoder.weight1",
                                .kind = DivergenceKind::bits, .cause = "unexplained"}));
  EXPECT_NE(result.first_divergence->expected, result.first_divergence->actual);
  EXPECT_THAT(result.sentence, AllOf(HasSubstr("step 17, local gradients, rank " + std::to_string(rank)),
                                     HasSubstr("action_encoder.weight1"), HasSubstr("norm")));
}

TEST_P(CompareSameLayout, WhatIsPlantedIsNamedAtItsPlace) {
  const int last = last_rank();
  const std::vector<support::PlantedStep> rows = {
      {"another sample", [](FakeStep& it) { if (it.step == 4 && it.rank == 1) it.samples[0] = 1403; },
       {.step = 4, .phase = "samples", .rank = 1, .kind = DivergenceKind::value,
        .expected = "sample " + std::to_string(support::fake_sample(4, 1)) + " in row 0"}},
      {"a rate on all ranks", [](FakeStep& it) { it.controls[0].second *= it.step >= 2 ? 2.8284271247461903 : 1; },
       {.step = 2, .phase = "control", .rank = -1, .where = "lr", .expected = "0.001", .actual = "0.0028284271247461905"}},
      {"collectives in another order",
       [last](FakeStep& it) { if (it.step == 6 && it.rank == last) std::swap(it.collectives[0], it.collectives[2]); },
       {.step = 6, .phase = "collective", .rank = last, .kind = DivergenceKind::order,
        .expected = "all_reduce bucket 0", .actual = "all_reduce bucket 2"}},
      {"another reduction", [](FakeStep& it) { it.collectives[2].reduction = "sum"; },
       {.where = "all_reduce bucket 2", .kind = DivergenceKind::value}, "sum"},
      {"a collective that gives other bits for equal inputs",
       [](FakeStep& it) {
         if (it.step != 3 || it.rank != 1) return;
         it.collectives[0].hash_out ^= 4;
         flip_bit(tensor_of(it.reduced_gradients, "head.weight")[0], 3);
       },
       {.phase = "collective", .rank = 1, .where = "all_reduce bucket 0"}},
      {"a replica that drifts",
       [](FakeStep& it) { if (it.step >= 9 && it.rank == 2) flip_bit(tensor_of(it.parameters, "head.weight")[7], 2); },
       {.step = 9, .phase = "parameters", .rank = 2, .kind = DivergenceKind::replica}, "The run's replicas differ from each other"},
      {"a tensor too few",
       [](FakeStep& it) { if (it.step == 5 && it.rank == 0) it.local_gradients.erase(it.local_gradients.begin() + 1); },
       {.where = "context_encoder.bias1", .kind = DivergenceKind::missing, .actual = "nothing"}},
      {"a value too many", [](FakeStep& it) { if (it.rank == 1) it.controls.emplace_back("stop", 1.0); },
       {.rank = 1, .where = "stop", .expected = "nothing"}},
      {"another shape", [](FakeStep& it) { tensor_of(it.reduced_gradients, "head.weight").pop_back(); },
       {.rank = -1, .kind = DivergenceKind::shape, .expected = "float32 [20]", .actual = "float32 [19]"}},
      {"a step too few",
       [](FakeStep& it) {
         it.write = it.step != 12;
         if (it.step > 12) it.energies[0] += 1;
       },
       {.step = 12, .kind = DivergenceKind::missing}, "at step 13 they differ in energies"},
  };
  for (const support::PlantedStep& row : rows) {
    SCOPED_TRACE(row.what);
    const Mechanism result = with_fault(row.fault);
    EXPECT_THAT(result, parts_at(row.parting));
    EXPECT_THAT(result.sentence, HasSubstr(row.says));
  }
}

TEST_P(CompareSameLayout, RowsInAnotherOrderAreJudgedAsBetweenLayouts) {
  for (const bool between_ranks : {false, true}) {
    for (const bool wrong : {false, true}) {
      const Mechanism result = with_fault([&](FakeStep& it) {
        if (wrong && it.step == 0) it.loss *= 1.01;
        if (!between_ranks) std::ranges::reverse(it.samples);
        if (!between_ranks || it.rank > 1) return;
        it.samples[0] = support::fake_sample(it.step, 1 - it.rank);
      });
      EXPECT_EQ(result.verdict, wrong ? VerdictKind::divergent : VerdictKind::inconclusive) << result.sentence;
      EXPECT_THAT(result.sentence, HasSubstr("From step 0 on the rows are in another order"));
      if (!wrong) continue;
      ASSERT_THAT(result, parts_at({.phase = "loss"}));
    }
  }
}

TEST_P(CompareSameLayout, OneStreamForAllRanksIsNamed) {
  std::vector<uint64_t> of_rank_0(30);
  const Mechanism result = with_fault([&](FakeStep& it) {
    uint64_t& kept = of_rank_0[static_cast<std::size_t>(it.step)];
    if (it.rank == 0) kept = it.streams[1].second;
    it.streams[1].second = kept;
  });
  ASSERT_THAT(result, parts_at({.step = 0, .phase = "random", .rank = 1, .where = "dropout in head"}));
}

TEST_P(CompareSameLayout, DriftInBothRunsAlikeIsSaid) {
  FakeRun drifting = clean();
  drifting.fault = [](FakeStep& it) {
    if (it.rank == 2) tensor_of(it.parameters, "head.weight")[7] += 1;
  };
  const Mechanism result = compare(drifting, drifting);
  EXPECT_EQ(result.verdict, VerdictKind::identical);
  EXPECT_THAT(result.sentence,
              HasSubstr("In both runs the replicas differ from each other: at step 0, parameters, "
                        "rank 2"));
}

TEST_P(CompareSameLayout, AtLevelFullTheFirstElementIsNamed) {
  FakeRun a = clean(), b = clean();
  a.level = b.level = TraceLevel::full;
  b.fault = [](FakeStep& it) {
    if (it.rank == 1) tensor_of(it.local_gradients, "head.weight")[7] = 0.5F;
  };
  const Mechanism result = compare(a, b);
  ASSERT_TRUE(result.first_divergence.has_value());
  EXPECT_THAT(result.first_divergence->actual, HasSubstr("element 7 of 20: 0.5"));
}

TEST_P(CompareSameLayout, ACopyCutShortIsComparedUpToThere) {
  support::write_fake_run(folder_ / "a", clean());
  std::filesystem::copy(folder_ / "a", folder_ / "b");
  const std::string path = folder_ / "b/rank-1.trace";
  const std::string bytes = read_text(path);
  write_text(path, bytes.substr(0, bytes.size() * 6 / 10));
  const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive);
  EXPECT_EQ(compare_runs({folder_ / "a", folder_ / "b", {}, {}, nullptr, nullptr, {}, 10}).verdict, VerdictKind::identical);
  EXPECT_GT(result.compared_steps, 10);
  EXPECT_LT(result.compared_steps, 25);
  EXPECT_THAT(result.sentence, AllOf(HasSubstr("b/rank-1.trace is cut short in the record after step " +
                                               std::to_string(result.compared_steps - 1)),
                                     HasSubstr("bytes are whole")));
}

TEST_P(CompareSameLayout, UnequalLengthsAreSaid) {
  FakeRun shorter = clean();
  shorter.steps = support::steps_up_to(10);
  for (const bool shorter_first : {false, true}) {
    const Mechanism result = shorter_first ? compare(shorter, clean()) : compare(clean(), shorter);
    EXPECT_EQ(result.verdict, VerdictKind::inconclusive);
    EXPECT_EQ(result.compared_steps, 10);
    const std::string ends = shorter_first ? "a" : "b", goes_on = shorter_first ? "b" : "a";
    EXPECT_THAT(result.sentence, AllOf(HasSubstr("10 steps"), HasSubstr(ends + " ends after step 9, and "),
                                       HasSubstr(goes_on + " continues to step "), HasSubstr(": 10 of 30 steps were compared")));
    EXPECT_THAT(result.decide, HasSubstr("--steps 10"));
  }
}

TEST_P(CompareSameLayout, StepsThatWereNotAskedForMayBeMissing) {
  FakeRun shorter = clean();
  shorter.steps = support::steps_up_to(10);
  const Mechanism enough = compare(clean(), shorter, 10);
  EXPECT_EQ(enough.verdict, VerdictKind::identical) << enough.sentence;
  EXPECT_EQ(enough.compared_steps, 10);
  const Mechanism short_of = compare(shorter, shorter, 11);
  EXPECT_EQ(short_of.verdict, VerdictKind::inconclusive);
  EXPECT_THAT(short_of.sentence, HasSubstr("both end after step 9, and 11 steps were asked for"));
  // What parts behind the steps that were asked for is no matter.
  FakeRun later = clean();
  later.fault = [](FakeStep& it) {
    if (it.step == 12) it.loss += 1;
  };
  EXPECT_EQ(compare(clean(), later, 12).verdict, VerdictKind::identical);
  EXPECT_EQ(compare(clean(), later, 13).verdict, VerdictKind::divergent);
}

TEST_P(CompareSameLayout, StepsThatOneTraceLacksHaveNoPartner) {
  // The records of some steps are gone; the run is the same.
  FakeRun whole = clean(), resumed = clean();
  whole.steps.insert(whole.steps.begin(), -1);
  for (const auto& [left, told] : {std::pair<std::vector<int64_t>, std::string>{{-1}, "steps 0 to 9 have"},
                                   {{-1, 0, 1, 2}, "steps 3 to 9 have"},
                                   {{-1, 0, 1, 2, 3, 4, 5, 6, 7, 8}, "step 9 has"},
                                   {{}, "steps 0 to 9 have"}}) {
    resumed.steps = left;
    for (int64_t step = 10; step < 30; ++step) resumed.steps.push_back(step);
    resumed.fault = nullptr;
    const Mechanism same = compare(whole, resumed);
    EXPECT_EQ(same.verdict, VerdictKind::identical) << same.sentence;
    EXPECT_THAT(same.sentence, HasSubstr("Not compared: " + told + " no partner: only " + (folder_ / "a")));
    EXPECT_EQ(same.compared_steps, std::ssize(resumed.steps) - (left.empty() ? 0 : 1));
    // What parts behind the gap is found where it does.
    resumed.fault = [](FakeStep& it) {
      if (it.step >= 14) tensor_of(it.local_gradients, "head.weight")[0] += 1;
    };
    const Mechanism parted = compare(whole, resumed);
    EXPECT_THAT(parted, parts_at({.step = 14}));
    EXPECT_THAT(parted.sentence, HasSubstr(told));
  }
}

TEST_P(CompareSameLayout, WhatNoParametersShowBehindAGapIsNotClaimed) {
  FakeRun whole = clean(), resumed = clean();
  whole.fault = resumed.fault = [](FakeStep& it) { it.parameters.clear(); };
  resumed.steps = {0, 1, 2, 10, 11};
  whole.steps = support::steps_up_to(12);
  const Mechanism result = compare(whole, resumed);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_THAT(result.sentence, AllOf(HasSubstr("steps 3 to 9 have no partner"), HasSubstr("not in parameters")));
}

TEST_P(CompareSameLayout, ThoseThatDifferFromTheReferenceAreWrongHoweverManyTheyAre) {
  const int right = GetParam() == 8 ? 5 : 1;
  const Mechanism result = with_fault([&](FakeStep& it) {
    if (it.step >= 9 && it.rank != right) tensor_of(it.parameters, "head.weight")[7] += 1;
  });
  ASSERT_THAT(result, parts_at({.step = 9, .rank = 0, .cause = "replicas-drift"}));
  EXPECT_THAT(result.cause->evidence, AllOf(HasSubstr("differ from the reference"), Not(HasSubstr("rank " + std::to_string(right)))));
}

TEST_P(CompareSameLayout, WithoutTheReferencesValueNobodyIsAccused) {
  const Mechanism result = with_fault([](FakeStep& it) {
    if (it.step >= 9) tensor_of(it.parameters, "head.weight")[7] += it.rank == 2 ? 2 : 1;
  });
  ASSERT_THAT(result, parts_at({.rank = kAllRanks})) << "none holds what the reference does";
  EXPECT_THAT(result.sentence, HasSubstr("it is unknown which is right"));
  ASSERT_THAT(result, parts_at({.cause = "replicas-drift"}));
  EXPECT_THAT(result.cause->evidence, HasSubstr("have different values; it is unknown which are right"));
}

TEST_P(CompareSameLayout, WithoutACommonStepNothingIsClaimed) {
  FakeRun empty = clean();
  empty.steps.clear();
  const Mechanism result = compare(clean(), empty);
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive);
  EXPECT_THAT(result.sentence, HasSubstr("Nothing could be compared"));
}

/// Of a trainer that is not ours, whose bits nobody promises.
class CompareForeign : public CompareSameLayout {
 protected:
  Mechanism with_foreign_fault(std::function<void(FakeStep&)> fault) {
    FakeRun reference = clean();
    reference.trainer = "theirs";
    FakeRun faulty = reference;
    faulty.fault = std::move(fault);
    return compare(reference, faulty);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CompareForeign, ::testing::Values(3, 8));

TEST_P(CompareForeign, WhereHashesTellNoSizeThePlaceIsTheFirstThatDiffers) {
  const Mechanism result = with_foreign_fault([](FakeStep& it) {
    for (auto* list : {&it.local_gradients, &it.reduced_gradients}) {
      for (float& value : tensor_of(*list, "head.weight")) value *= 3;
    }
  });
  ASSERT_THAT(result, parts_at({.step = 0, .phase = "local gradients"}));
  EXPECT_THAT(result.sentence, HasSubstr("By values: They first differ at step 0, reduced gradients"));
}

TEST_P(CompareForeign, ABitOfUnknownSizeIsNotCalledRounding) {
  const Mechanism result = with_foreign_fault([](FakeStep& it) {
    if (it.step != 7) return;
    if (it.rank == 1) flip_bit(tensor_of(it.local_gradients, "head.weight")[3], 0);
    flip_bit(tensor_of(it.reduced_gradients, "head.weight")[3], 0);
  });
  EXPECT_EQ(result.verdict, VerdictKind::inconclusive) << result.sentence;
  EXPECT_THAT(result.sentence, HasSubstr("Bits first differ at step 7, reduced gradients, head.weight, by an unknown amount: only hashes were recorded."));
}

TEST_P(CompareForeign, TurnedSignsOfARankCountWhereWhatAllReduceDiffers) {
  for (const bool reduced : {false, true}) {
    const Mechanism result = with_foreign_fault([reduced](FakeStep& it) {
      if (it.step != 7) return;
      for (float& value : tensor_of(it.local_gradients, "head.weight")) value = it.rank == 1 ? -value : value;
      for (float& value : tensor_of(it.reduced_gradients, "head.weight")) value = reduced ? -value : value;
    });
    EXPECT_EQ(result.verdict, reduced ? VerdictKind::divergent : VerdictKind::within_envelope) << result.sentence;
    EXPECT_THAT(result.sentence, HasSubstr("step 7, local gradients, "));
    EXPECT_EQ(result.first_divergence && result.first_divergence->rank == 1, reduced) << result.sentence;
  }
}

TEST(CompareRuns, RefusesFoldersThatAreNoRun) {
  TempFolder folder;
  FakeRun run;
  run.steps = support::steps_up_to(2);
  support::write_fake_run(folder / "a", run);
  EXPECT_THROW(compare_runs({folder / "a", folder / "none", {}, {}}), TraceError);
  support::write_fake_run(folder / "b", run);
  std::filesystem::remove(folder / "b/rank-2.trace");
  EXPECT_THROW(compare_runs({folder / "a", folder / "b", {}, {}}), TraceError);
  std::filesystem::copy_file(folder / "b/rank-1.trace", folder / "b/rank-2.trace");
  EXPECT_THROW(compare_runs({folder / "a", folder / "b", {}, {}}), TraceError);
}

TEST(CompareRuns, APrefixThatLacksAStepCertifiesNoFurtherOne) {
  TempFolder folder;
  FakeRun emulated, real;
  emulated.steps = support::steps_up_to(8);
  emulated.steps.insert(emulated.steps.begin(), -1);
  real.steps = {-1, 0, 1, 2, 3, 4};
  support::write_fake_run(folder / "real", real);
  support::write_fake_run(folder / "emulated", emulated);
  EXPECT_EQ(certify(folder / "emulated", folder / "real", 5).steps, 5);
  std::erase(emulated.steps, 2);
  support::write_fake_run(folder / "emulated", emulated);
  const Certification short_of = certify(folder / "emulated", folder / "real", 5);
  EXPECT_EQ(short_of.steps, 2);
  EXPECT_FALSE(short_of.divergence.has_value());
}

TEST(CompareRuns, AnObservationThatOnlyOneRunMadeIsNoDifference) {
  TempFolder folder;
  for (bool observed : {false, true}) {
    const std::string dir = folder / (observed ? "b" : "a");
    std::filesystem::create_directories(dir);
    TraceWriter writer(dir + "/rank-0.trace", {"h", 0, 1, "energy", TraceLevel::hash, "emulated"});
    writer.begin_step(0);
    writer.scalar(Phase::control, "lr", 1, Sharing::replicated);
    if (observed) writer.scalar(Phase::evaluation, "accuracy_24", 0.5, Sharing::own);
    writer.finish();
  }
  const Mechanism result = compare_runs({folder / "a", folder / "b", {}, {}});
  EXPECT_EQ(result.verdict, VerdictKind::identical);
  EXPECT_THAT(result.sentence, HasSubstr("not in samples, loss, reduced gradients and parameters"));
  EXPECT_EQ(result.facts.back().mark, Mark::none);
  EXPECT_EQ(result.facts.back().text, "only the run recorded it at 1 step");
}

TEST(CompareRuns, CandidatesThatOneTraceLevelKeepsAreNoDifferenceAndEnergiesAre) {
  TempFolder folder;
  const std::vector<int64_t> ids{3, 1, 2}, shape{3}, energies_shape{1, 3};
  for (const std::string name : {"a", "b", "c"}) {
    const bool more = name != "a";
    std::filesystem::create_directories(folder / name);
    TraceWriter writer(folder / (name + "/rank-0.trace"),
                       {"h", 0, 1, "energy", more ? TraceLevel::stats : TraceLevel::hash, "emulated"});
    const std::vector<float> energies{1, 2, name == "c" ? 4.0F : 3.0F};
    writer.begin_step(0);
    if (more) writer.tensor(Phase::scores, "columns", {ids.data(), DType::int64, shape, {}}, Sharing::own);
    writer.tensor(Phase::scores, "energies", {energies.data(), DType::float32, energies_shape, {}},
                  Sharing::own);
    writer.finish();
  }
  EXPECT_EQ(compare_runs({folder / "a", folder / "b", {}, {}}).verdict, VerdictKind::identical);
  const Mechanism other = compare_runs({folder / "a", folder / "c", {}, {}});
  EXPECT_THAT(other, parts_at({.where = "energies"}));
}

// What is said of runs that agree rests on what was compared: records are taken away one kind at a time, and no fact may speak
// of them any more.

/// A kind of record, and the word that may be said only where it was compared.
constexpr std::pair<Phase, const char*> kKinds[] = {
    {Phase::samples, "samples"}, {Phase::random, "random streams"}, {Phase::control, "control values"},
    {Phase::collective, "collectives"}, {Phase::scores, "energies"}, {Phase::loss, "loss"},
    {Phase::local_gradients, "local gradients"}, {Phase::gradient_norm, "gradient norm"},
    {Phase::reduced_gradients, "reduced gradients"}, {Phase::parameters, "update"}};

/// Writes the traces of `from` to `to` without the records of these phases.
void write_without(const std::string& from, const std::string& to, int world_size, const std::vector<Phase>& taken) {
  std::filesystem::create_directories(to);
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string name = "/rank-" + std::to_string(rank) + ".trace";
    TraceReader reader(from + name);
    TraceWriter writer(to + name, reader.header());
    while (auto step = reader.next()) {
      std::erase_if(step->records, [&](const Record& record) { return std::ranges::find(taken, record.phase) != taken.end(); });
      writer.copy(*step);
    }
    writer.finish();
  }
}

class ComparedFacts : public ::testing::Test {
 protected:
  static FakeRun run(int world_size, double noise) {
    FakeRun it;
    it.world_size = world_size;
    it.steps = support::steps_up_to(4);
    if (noise == 0) it.steps.insert(it.steps.begin(), -1);
    it.noise = noise;
    it.noise_seed = static_cast<uint64_t>(world_size);
    return it;
  }
  /// What is said to agree of both runs without these records.
  std::string agreeing(const FakeRun& a, const FakeRun& b, const std::vector<Phase>& taken) {
    support::write_fake_run(folder_ / "whole_a", a);
    support::write_fake_run(folder_ / "whole_b", b);
    write_without(folder_ / "whole_a", folder_ / "a", a.world_size, taken);
    write_without(folder_ / "whole_b", folder_ / "b", b.world_size, taken);
    const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
    EXPECT_NE(result.verdict, VerdictKind::divergent) << result.sentence;
    sentence_ = result.sentence;
    std::string names = ",";
    for (const Fact& fact : result.facts)
      if (fact.mark == Mark::same) names += fact.name + (fact.text.empty() ? "" : " " + fact.text) + ",";
    return names;
  }
  std::string sentence_;
  TempFolder folder_;
};

TEST_F(ComparedFacts, OfTwoLayoutsAreWhatBothRecorded) {
  const FakeRun a = run(1, 0), b = run(3, 0);
  EXPECT_EQ(agreeing(a, b, {}), ",samples,random streams,control values,collectives,energies,loss,reduced gradients,gradient norm,replicas,");
  std::vector<Phase> all;
  for (const auto& [phase, word] : kKinds) {
    all.push_back(phase);
    EXPECT_THAT(agreeing(a, b, {phase}), Not(HasSubstr(std::string(",") + word)));
    const std::string none = agreeing(a, b, all);
    for (std::size_t gone = 0; gone < all.size(); ++gone)
      EXPECT_THAT(none, Not(HasSubstr(std::string(",") + kKinds[gone].second)));
  }
  EXPECT_EQ(agreeing(a, b, all), ",");
}

TEST_F(ComparedFacts, OfCollectivesThatTheReferenceDoesNotMakeAreTheRunsOwn) {
  FakeRun a = run(1, 0);
  a.fault = [](support::FakeStep& it) { it.collectives.clear(); };
  EXPECT_THAT(agreeing(a, run(3, 0), {}), HasSubstr(",control values,collectives among the run's ranks,"));
}

TEST_F(ComparedFacts, OfOneLayoutLackWhatWasNotRecorded) {
  const FakeRun it = run(3, 0);
  EXPECT_THAT(agreeing(it, it, {}), AllOf(HasSubstr(",samples,"), HasSubstr(",loss,"), HasSubstr(",parameters,")));
  EXPECT_THAT(sentence_, testing::StartsWith("Identical: every bit of 4 steps on 3 ranks agrees."));
  for (const auto& [phase, word] : {std::pair{Phase::samples, "samples"}, {Phase::loss, "loss"},
                                    {Phase::reduced_gradients, "reduced gradients"}, {Phase::parameters, "parameters"}}) {
    EXPECT_THAT(agreeing(it, it, {phase}), Not(HasSubstr(fmt::format(",{},", word))));
    EXPECT_THAT(sentence_, HasSubstr(std::string("agrees in what both recorded: not in ") + word));
  }
}

TEST_F(ComparedFacts, OfGradientsThatNoLocalOnesWereRecordedOfSayNothing) {
  // Rounding drives the parameters apart, so that later steps are judged by what each run's own records show.
  FakeRun a = run(1, 3e-7), b = run(3, 3e-7);
  a.forced = b.forced = true;
  a.level = b.level = TraceLevel::full;
  b.fault = [](support::FakeStep& it) {
    for (std::size_t t = 0; t < it.local_gradients.size(); ++t) it.local_gradients[t].second = it.reduced_gradients[t].second;
  };
  EXPECT_THAT(agreeing(a, b, {}), AllOf(HasSubstr(",reduction"), HasSubstr(",norm")));
  EXPECT_THAT(agreeing(a, b, {Phase::local_gradients}), Not(HasSubstr(",reduction")));
  EXPECT_THAT(agreeing(a, b, {Phase::gradient_norm}), Not(HasSubstr(",norm")));
}

using testing::HasSubstr;

void write_trace(const std::string& path, bool with_state) {
  TraceWriter writer(path, {"0123456789abcdef", 0, 1, "energy", TraceLevel::hash, "emulated"});
  const std::vector<float> values{1, 2, 3};
  const std::vector<int64_t> shape{3}, ids{4, 5};
  for (int64_t step = 0; step < 3; ++step) {
    writer.begin_step(step);
    if (with_state && step == 2) {
      writer.tensor(Phase::snapshot, "a.weight", {values.data(), DType::float32, shape, {}}, Sharing::replicated, {},
                    Keep::whole);
    }
    writer.samples(ids);
    writer.random("dropout", 7, 12);
    writer.scalar(Phase::loss, "loss", 0.5, Sharing::own);
    writer.end_step();
  }
  writer.finish();
}

TEST(KeepStep, CopiesStateRowsAndStreamsOfThatStepAlone) {
  const TempFolder folder;
  write_trace(folder / "from.trace", true);
  ASSERT_TRUE(keep_step(folder / "from.trace", 2, folder / "to.trace"));
  const Trace kept = read_trace(folder / "to.trace");
  ASSERT_EQ(kept.steps.size(), 1u);
  EXPECT_TRUE(kept.finished);
  EXPECT_EQ(kept.steps[0].step, 2);
  ASSERT_EQ(kept.steps[0].records.size(), 3u) << "the loss is no state";
  EXPECT_EQ(kept.steps[0].records[0].name, "a.weight");
  EXPECT_EQ(kept.steps[0].records[0].payload.size(), 12u);
  EXPECT_EQ(kept.steps[0].records[1].ids, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(kept.steps[0].records[2].stats.hash, 7u);
}

TEST(KeepStep, SaysThatNoStateWasKept) {
  const TempFolder folder;
  write_trace(folder / "from.trace", false);
  EXPECT_FALSE(keep_step(folder / "from.trace", 2, folder / "to.trace"));
  EXPECT_FALSE(keep_step(folder / "from.trace", 9, folder / "to.trace"));
}

TEST(ReplayConfig, IsReadBackAsTheSameCellAndReference) {
  const TempFolder folder;
  const Matrix matrix = parse_matrix(
      "# Which?\nname: some\nseeds: 3\nsteps: 40\ndata: {source: synthetic}\nreference: {layout: 1x24}\n"
      "axes: {layout: [8x3]}\nmutant: {name: grad_scale, factor: 3.7, step: 2}\n",
      "some.yaml", {});
  write_trace(folder / "rank-0.trace", true);
  write_text(folder / "replay.yaml", replay_config(matrix, matrix.cells[0], 2, true));
  const Matrix again = read_matrix(folder / "replay.yaml", {});
  ASSERT_EQ(again.cells.size(), 1u);
  EXPECT_EQ(again.forced_steps, std::vector<int64_t>{2});
  EXPECT_EQ(again.replay, folder / "rank-0.trace");
  EXPECT_TRUE(same_config(again.cells[0].config, matrix.cells[0].config));
  EXPECT_TRUE(same_config(again.cells[0].reference, matrix.cells[0].reference));
  EXPECT_THAT(replay_config(matrix, matrix.cells[0], 2, false), testing::Not(HasSubstr("replay: rank")));
}

}  // namespace
}  // namespace lockstep
