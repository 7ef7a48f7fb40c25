#include "harness/verdict/questions/mechanism/judge.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <stdexcept>

namespace lockstep {
namespace {

using testing::HasSubstr;

/// Two runs of two ranks with the same results, by folder.
struct Pair {
  std::map<std::string, RankResult> results;
  Pair() {
    for (const std::string run : {"a", "b"}) {
      for (int rank = 0; rank < 2; ++rank) {
        RankResult& result = at(run, rank);
        result.steps_done = 3;
        result.parameters_hash = "0123456789abcdef";
        result.curves["loss"] = {{0, 1, 2}, {3.5 + rank, 2.5, std::nan("")}};
        result.curves["gradient_norm"] = {{0, 1, 2}, {1, 1.5, 2}};
        if (rank == 0) result.metrics = {{"accuracy_24", 0.5}};
      }
    }
  }
  RankResult& at(const std::string& run, int rank) {
    return results[run + "/rank-" + std::to_string(rank) + ".result.json"];
  }
  Mechanism compare() const {
    return compare_results("a", "b", 2, [this](const std::string& path) {
      const auto found = results.find(path);
      if (found == results.end()) throw std::runtime_error(path + ": cannot read it");
      return found->second;
    });
  }
};

TEST(CompareResults, EqualBitsAreIdenticalAndTheSentenceSaysWhatWasCompared) {
  const Mechanism mechanism = Pair().compare();
  EXPECT_EQ(mechanism.verdict, VerdictKind::identical);
  EXPECT_EQ(mechanism.compared_steps, 3);
  EXPECT_FALSE(mechanism.first_divergence);
  EXPECT_THAT(mechanism.sentence,
              HasSubstr("No trace was kept (trace: off): the final parameters' "
                        "fingerprint, 1 final metrics and 12 values of curves were compared"));
}

TEST(CompareResults, NamesTheFirstStepOfACurveThatDiffersByOneBit) {
  Pair pair;
  double& value = pair.at("b", 1).curves["gradient_norm"].values[1];
  value = std::nextafter(value, 2);
  pair.at("b", 0).curves["loss"].values[2] = 1;
  pair.at("b", 0).parameters_hash = "fedcba9876543210";
  const Mechanism mechanism = pair.compare();
  EXPECT_EQ(mechanism.verdict, VerdictKind::divergent);
  ASSERT_TRUE(mechanism.first_divergence);
  EXPECT_EQ(mechanism.first_divergence->step, 1);
  EXPECT_EQ(mechanism.first_divergence->rank, 1);
  EXPECT_EQ(mechanism.first_divergence->where, "gradient_norm");
}

TEST(CompareResults, FindsParametersThatNoCurveShows) {
  Pair pair;
  pair.at("b", 1).parameters_hash = "fedcba9876543210";
  const Mechanism mechanism = pair.compare();
  EXPECT_EQ(mechanism.verdict, VerdictKind::divergent);
  EXPECT_EQ(mechanism.first_divergence->where, "final parameters");
  EXPECT_EQ(mechanism.first_divergence->rank, 1);
}

TEST(CompareResults, FindsAMetricThatDiffers) {
  Pair pair;
  pair.at("b", 0).metrics["accuracy_24"] = 0.75;
  EXPECT_EQ(pair.compare().first_divergence->where, "accuracy_24");
}

TEST(CompareResults, RefusesRunsWithoutAFingerprintOrAResult) {
  Pair pair;
  pair.at("a", 1).parameters_hash.clear();
  EXPECT_THROW(pair.compare(), std::runtime_error);
  Pair torn;
  torn.results.erase("b/rank-1.result.json");
  EXPECT_THROW(torn.compare(), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
