#include "harness/base/numbers.h"

#include <gtest/gtest.h>

#include <boost/math/constants/constants.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

/// Fifty digits in integer arithmetic: no function of the C library, of MKL or of LibTorch takes part.
using Exact = boost::multiprecision::cpp_bin_float_50;

Exact exact_normal(double radius, double angle) {
  const Exact length = sqrt(-2 * log(1 - Exact(radius)));
  return length * cos(2 * boost::math::constants::pi<Exact>() * Exact(angle));
}

/// Uniforms in [0, 1), multiples of 2^-bits, by the generator of Numerical Recipes.
class Uniforms {
 public:
  explicit Uniforms(int bits) : bits_(bits) {}
  double next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return std::ldexp(static_cast<double>(state_ >> (64 - bits_)), -bits_);
  }

 private:
  int bits_;
  uint64_t state_ = 20261121;
};

TEST(StandardNormal, IsTheExactOneUpToDoublesRounding) {
  Uniforms uniforms(53);
  for (int i = 0; i < 5000; ++i) {
    const double radius = uniforms.next(), angle = uniforms.next();
    const Exact exact = exact_normal(radius, angle);
    const double length = static_cast<double>(sqrt(-2 * log(1 - Exact(radius))));
    const double error = static_cast<double>(abs(Exact(standard_normal(radius, angle)) - exact));
    ASSERT_LE(error, 4e-16 * length) << radius << " " << angle;
  }
}

TEST(StandardNormal, HoldsAtTheEdges) {
  const double below_one = 1 - 0x1p-53;
  for (const double radius : {0x1p-53, 0x1p-24, 0.25, 0.5, 1 - 0x1p-24, below_one}) {
    for (const double angle : {0.0, 0x1p-53, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, below_one, 1.0}) {
      const double length = static_cast<double>(sqrt(-2 * log(1 - Exact(radius))));
      const double error =
          static_cast<double>(abs(Exact(standard_normal(radius, angle)) - exact_normal(radius, angle)));
      EXPECT_LE(error, 4e-16 * length) << radius << " " << angle;
    }
  }
  EXPECT_EQ(standard_normal(0, 0.3), 0);
  EXPECT_LT(standard_normal(below_one, 0), 8.6) << "the largest draw";
}

TEST(FillNormal, EveryDrawIsTheFloatNextToTheExactNumber) {
  Uniforms uniforms(24);
  std::vector<float> radius(4000), angle(radius.size()), out(radius.size());
  for (std::size_t i = 0; i < radius.size(); ++i) {
    radius[i] = static_cast<float>(uniforms.next());
    angle[i] = static_cast<float>(uniforms.next());
  }
  fill_normal(radius, angle, out);
  for (std::size_t i = 0; i < radius.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<float>(exact_normal(radius[i], angle[i]))) << i;
  }
}

TEST(FillNormal, HasTheMomentsOfANormal) {
  Uniforms uniforms(24);
  std::vector<float> radius(1 << 18), angle(radius.size()), out(radius.size());
  for (std::size_t i = 0; i < radius.size(); ++i) {
    radius[i] = static_cast<float>(uniforms.next());
    angle[i] = static_cast<float>(uniforms.next());
  }
  fill_normal(radius, angle, out);
  double mean = 0, square = 0, fourth = 0, within_one = 0;
  for (const double x : out) {
    mean += x;
    square += x * x;
    fourth += x * x * x * x;
    within_one += std::abs(x) < 1 ? 1 : 0;
  }
  const auto n = static_cast<double>(out.size());
  EXPECT_NEAR(mean / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 4 * std::sqrt(96 / n));
  EXPECT_NEAR(within_one / n, 0.6826894921, 4 * std::sqrt(0.2167 / n));
}

}  // namespace
}  // namespace lockstep
