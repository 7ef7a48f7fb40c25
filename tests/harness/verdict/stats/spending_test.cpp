#include "harness/verdict/stats/spending.h"

#include <gtest/gtest.h>

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "harness/verdict/config/seeds.h"

namespace lockstep {
namespace {

const SeedsAuto kUsual{.on = true, .first = 5, .step = 5, .most = 40, .budget_s = 0};

/// The share of experiments of normal values around 0 whose one-sided t test rejects at any look.
double rate_of_rejection(const std::vector<SpendingAnalysis>& looks, double part, int experiments) {
  std::vector<double> bounds;
  for (const SpendingAnalysis& look : looks) {
    const boost::math::students_t t(look.n - 1);
    bounds.push_back(boost::math::quantile(boost::math::complement(t, look.nominal * part)));
  }
  uint64_t next = 1;
  const auto uniform = [&next] { return (static_cast<double>(mix_key(next++) >> 11) + 1) * 0x1p-53; };
  int rejected = 0;
  for (int e = 0; e < experiments; ++e) {
    double mean = 0, squares = 0;  // Welford's
    int n = 0;
    for (std::size_t k = 0; k < looks.size(); ++k) {
      while (n < looks[k].n) {
        const double x = std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
        const double before = x - mean;
        mean += before / ++n;
        squares += before * (x - mean);
      }
      if (mean * std::sqrt(n * (n - 1.0) / squares) <= bounds[k]) continue;
      ++rejected;
      break;
    }
  }
  return static_cast<double>(rejected) / experiments;
}

TEST(Spending, SpendsAllOfAlphaAndNeverMore) {
  const std::vector<SpendingAnalysis> looks = spending_analyses(kUsual, 0.05);
  ASSERT_EQ(looks.size(), 8u);
  EXPECT_EQ(looks.front().n, 5);
  EXPECT_EQ(looks.back().n, 40);
  EXPECT_EQ(looks.back().spent, 0.05);
  EXPECT_EQ(looks.back().information, 1.0);
  double before = 0;
  for (const SpendingAnalysis& look : looks) {
    EXPECT_GT(look.spent, before);
    EXPECT_GT(look.nominal, 0);
    EXPECT_LT(look.nominal, 0.05);
    // What a look alone would reject is no less than what it adds to the looks before.
    EXPECT_GE(look.nominal, (look.spent - before) * 0.99);
    before = look.spent;
  }
}

TEST(Spending, OneLookHasAllOfAlpha) {
  const std::vector<SpendingAnalysis> looks = spending_analyses({true, 7, 3, 7, 0}, 0.05);
  ASSERT_EQ(looks.size(), 1u);
  EXPECT_NEAR(looks[0].nominal, 0.05, 1e-4);
}

TEST(Spending, KeepsItsPromiseOverTwentyThousandExperiments) {
  constexpr int kExperiments = 20000;
  for (const SeedsAuto& seeds : {kUsual, SeedsAuto{true, 2, 1, 12, 0}, SeedsAuto{true, 5, 5, 20, 0}}) {
    const std::vector<SpendingAnalysis> looks = spending_analyses(seeds, 0.05);
    // Four standard deviations of the share that was drawn.
    const double luck = 4 * std::sqrt(0.05 * 0.95 / kExperiments);
    const double side = rate_of_rejection(looks, 1, kExperiments);
    EXPECT_LT(side, 0.05 + luck) << seeds.first;
    EXPECT_GT(side, 0.04) << "a level that is too careful costs seeds";
    EXPECT_LT(rate_of_rejection(looks, 0.5, kExperiments), 0.025 + luck) << seeds.first;
  }
}

TEST(Spending, LookingAtTheFullLevelEachTimeWouldLie) {
  std::vector<SpendingAnalysis> looks = spending_analyses(kUsual, 0.05);
  for (SpendingAnalysis& look : looks) look.nominal = 0.05;
  EXPECT_GT(rate_of_rejection(looks, 1, 20000), 0.12);
}

}  // namespace
}  // namespace lockstep
