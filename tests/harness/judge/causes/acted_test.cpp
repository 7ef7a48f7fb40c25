// Log-probabilities as acted against recomputed ones: each cause with its fault planted, a right trainer silent, and no
// name where numbers prove none.

#include "harness/judge/causes/acted.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <functional>

#include "harness/base/files.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

double float32(double value) { return static_cast<float>(value); }
double bfloat16(double value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(static_cast<float>(value)) + 0x8000U) & 0xffff0000U);
}
/// Around 0, of no regularity.
double wave(double x) { return std::sin(x * x + 3 * x); }

using Recomputed = std::function<double(const ActedTransition&)>;

/// Two ranks, four steps, rows of eight transitions.
ActedRecord record_of(const Recomputed& recomputed, const std::map<std::string, Recomputed>& again = {}) {
  ActedRecord record;
  for (int64_t i = 0; i < 128; ++i) {
    ActedTransition each{i / 32, i % 8, static_cast<int>(i / 8 % 2), std::to_string(i / 8),
                         float32(-2 + 1.5 * wave(static_cast<double>(i)))};
    each.recomputed = recomputed(each);
    for (const auto& [name, value] : again) record.again[name].push_back(value(each));
    record.all.push_back(each);
  }
  return record;
}
double as_acted(const ActedTransition& each) { return each.acted; }
double other_weights(const ActedTransition& each) { return each.acted + 0.1 * wave(each.acted * 50); }
std::string code_of(const ActedRecord& record) {
  const Mechanism found = judge_acted(record);
  EXPECT_EQ(found.verdict, VerdictKind::divergent) << found.sentence;
  return found.cause ? found.cause->code : "";
}
std::string evidence_of(const ActedRecord& record) {
  const Mechanism found = judge_acted(record);
  return found.cause ? found.cause->code + ": " + found.cause->evidence + " " + found.sentence : found.sentence;
}

TEST(Acted, ARightTrainerIsSilent) {
  EXPECT_EQ(judge_acted(record_of(as_acted)).verdict, VerdictKind::identical);
  const auto rounded = [](const ActedTransition& each) { return float32(each.acted * (1 + 1e-6 * wave(each.acted))); };
  EXPECT_EQ(judge_acted(record_of(rounded, {{"float64", as_acted}, {"back_1", other_weights}})).verdict,
            VerdictKind::within_envelope);
  const auto of_four_digits = [](const ActedTransition& each) { return std::round(each.acted * 1e4) / 1e4; };
  EXPECT_EQ(judge_acted(record_of(of_four_digits)).verdict, VerdictKind::within_envelope);
  EXPECT_EQ(judge_acted({}).verdict, VerdictKind::inconclusive);
}

TEST(Acted, TheRecomputationThatAgreesNamesTheCause) {
  const std::pair<const char*, const char*> expected[] = {
      {"back_2", "stale-rollout-policy"},         {"schedule_15", "schedules-differ"},
      {"sigma_1", "sigma-of-another-step"},       {"nosigma", "sigma-terms-missing"},
      {"temperature_0.7", "rollout-temperature"}, {"bfloat16", "log-pi-in-low-precision"}};
  for (const auto& [column, code] : expected) {
    EXPECT_EQ(code_of(record_of(other_weights, {{column, as_acted}})), code);
    EXPECT_THAT(evidence_of(record_of(other_weights, {{column, as_acted}})),
                HasSubstr(std::string("recomputed_") + column));
    // The other way round it is the trainer's: what it has is what that column says, and the rollout is right.
    EXPECT_EQ(code_of(record_of(other_weights, {{"float64", as_acted}, {column, other_weights}})), code);
    const auto neither = [](const ActedTransition& each) { return each.acted + 0.05; };
    EXPECT_EQ(code_of(record_of(other_weights, {{column, neither}})), "unexplained") << column;
  }
}

TEST(Acted, APolicyMayBeStaleByAnotherAgeInEachStep) {
  const auto even = [](const ActedTransition& each) { return each.step % 2 == 0 ? each.acted : 0; };
  const auto odd = [](const ActedTransition& each) { return each.step % 2 == 1 ? each.acted : 0; };
  EXPECT_EQ(code_of(record_of(other_weights, {{"back_1", even}, {"back_2", odd}})), "stale-rollout-policy");
  EXPECT_EQ(code_of(record_of(other_weights, {{"back_1", even}, {"sigma_1", odd}})), "unexplained");
}

TEST(Acted, TwoThatFitNameNone) {
  EXPECT_THAT(evidence_of(record_of(other_weights, {{"back_1", as_acted}, {"sigma_1", as_acted}})),
              testing::StartsWith("unexplained"));
}

TEST(Acted, RoundedNumbersAreSeenWithoutFurtherColumns) {
  ActedRecord record = record_of([](const ActedTransition& each) { return bfloat16(each.acted); });
  EXPECT_EQ(code_of(record), "log-pi-in-low-precision");
  for (ActedTransition& each : record.all) std::swap(each.acted, each.recomputed);
  EXPECT_EQ(code_of(record), "old-log-pi-in-low-precision");
  const auto noisy = [](const ActedTransition& each) { return each.acted + 0.003 * wave(each.acted * 40); };
  EXPECT_EQ(code_of(record_of(noisy, {{"float64", as_acted}})), "log-pi-in-low-precision");
  EXPECT_EQ(code_of(record_of(noisy)), "unexplained");
  const auto biased = [](const ActedTransition& each) { return each.acted + 0.003; };
  EXPECT_EQ(code_of(record_of(biased, {{"float64", as_acted}})), "unexplained");
}

TEST(Acted, NumbersAloneShowALevelASlopeAFactorAndRanks) {
  const auto shown = [](const Recomputed& recomputed) { return evidence_of(record_of(recomputed)); };
  EXPECT_THAT(shown([](const ActedTransition& each) { return each.acted - 0.005; }),
              AllOf(testing::StartsWith("unexplained"), HasSubstr("plus 0.005, a constant offset"),
                    HasSubstr("flat, not growing: a bias per transition")));
  EXPECT_THAT(shown([](const ActedTransition& each) { return each.acted - 0.01 * static_cast<double>(each.t); }),
              AllOf(HasSubstr("depends on the transition alone"), HasSubstr("grows by 0.01 a transition")));
  EXPECT_THAT(shown([](const ActedTransition& each) { return each.acted / 2; }),
              HasSubstr("acted is 2 times recomputed, a factor"));
  const Mechanism one = judge_acted(record_of(
      [](const ActedTransition& each) { return each.rank == 1 && each.step >= 2 ? other_weights(each) : each.acted; }));
  ASSERT_TRUE(one.first_divergence);
  EXPECT_EQ(one.first_divergence->rank, 1);
  EXPECT_EQ(one.first_divergence->step, 2);
  EXPECT_EQ(one.facts[0].mark, Mark::same);
  EXPECT_EQ(one.facts[1].mark, Mark::different);
  EXPECT_THAT(one.decide, HasSubstr("recomputed_float64, recomputed_back_1"));
}

TEST(Acted, ColumnsOfZerosAndWhatIsNotFiniteProveNothing) {
  const auto zero = [](const ActedTransition&) { return 0.0; };
  const auto small = [](const ActedTransition& each) { return 0.04 * wave(static_cast<double>(each.t)); };
  EXPECT_EQ(judge_acted(record_of(zero)).verdict, VerdictKind::divergent);
  EXPECT_EQ(code_of(record_of(small, {{"back_1", zero}})), "unexplained");
  const auto once = [](const ActedTransition& each) { return each.t == 3 ? kNaN : each.acted; };
  const Mechanism found = judge_acted(record_of(once, {{"float64", as_acted}}));
  EXPECT_EQ(found.cause->code, "unexplained");
  EXPECT_THAT(found.first_divergence->sentence, HasSubstr("transition 3: "));
}

TEST(Acted, LinesWithPlacesThatAreNoneAreRefused) {
  const TempFolder folder;
  for (const char* place : {R"("rank": "1")", R"("step": -1)", R"("t": 1.5)", R"("rank": 1e15)", R"("step": "nan")"}) {
    write_text(folder / "a.jsonl", std::string(R"({"acted": -1, "recomputed": -1, )") + place + "}\n");
    EXPECT_THROW(read_acted(folder / "a.jsonl"), ConfigError) << place;
  }
  write_text(folder / "a.jsonl", R"({"acted": -1, "recomputed": -2, "recomputed_acted": -2, "recomputed_recomputed": -1})");
  EXPECT_TRUE(read_acted(folder / "a.jsonl").again.empty());
}

TEST(Acted, LinesAreReadWithWhatTheyHave) {
  const TempFolder folder;
  write_text(folder / "a.jsonl",
             "{\"acted\": -1.5, \"recomputed\": -1.25}\n\n"
             "{\"acted\": -2, \"recomputed\": -2, \"step\": 3, \"t\": 7, \"rank\": 1, \"row\": 9, "
             "\"recomputed_back_1\": -2, \"reward\": \"x\"}\n");
  const ActedRecord record = read_acted(folder / "a.jsonl");
  ASSERT_EQ(record.all.size(), 2U);
  EXPECT_EQ(record.all[0].step, 0);
  EXPECT_EQ(record.all[1].step, 3);
  EXPECT_EQ(record.all[1].t, 7);
  EXPECT_EQ(record.all[1].rank, 1);
  EXPECT_EQ(record.all[1].row, "9");
  ASSERT_EQ(record.again.size(), 1U);
  EXPECT_TRUE(std::isnan(record.again.at("back_1")[0]));
  EXPECT_EQ(record.again.at("back_1")[1], -2);
  write_text(folder / "b.jsonl", "{\"acted\": 1}\n[1\n");
  try {
    read_acted(folder / "b.jsonl");
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("b.jsonl:1:1: a line needs the numbers acted and recomputed"), HasSubstr("b.jsonl:2")));
  }
  EXPECT_THROW(read_acted(folder / "none"), ConfigError);
}

}  // namespace
}  // namespace lockstep
