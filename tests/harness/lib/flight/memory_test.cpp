#include "harness/lib/flight/ring.h"

#include <gtest/gtest.h>

#include "harness/base/hashing.h"

namespace lockstep::flight {
namespace {

constexpr double kBase = 200e6;

/// A run of `steps` whose memory is `at(step)`, and jumps about by half a megabyte.
std::optional<Leak> leak_of(int64_t steps, double (*at)(double step)) {
  MemorySeries series;
  for (int64_t step = 0; step < steps; ++step) {
    const double noise = 5e5 * unit_interval(mix64(static_cast<uint64_t>(step)));
    series.add(step, static_cast<int64_t>(kBase + at(static_cast<double>(step)) + noise));
  }
  return leak_in(series.steps(), series.bytes());
}

TEST(Memory, FindsALeakAndItsSize) {
  const auto leak = leak_of(5000, [](double step) { return 3e4 * step; });
  ASSERT_TRUE(leak);
  EXPECT_NEAR(leak->bytes_a_step, 3e4, 300);
}

TEST(Memory, IsSilentOnRunsThatFillUpAndStay) {
  EXPECT_FALSE(leak_of(5000, [](double) { return 0.0; }));
  EXPECT_FALSE(leak_of(5000, [](double step) { return step < 300 ? 3e5 * step : 9e7; })) << "it takes shape";
  EXPECT_FALSE(leak_of(5000, [](double step) { return step < 2500 ? 0.0 : 5e7; })) << "one larger batch";
  EXPECT_FALSE(leak_of(5000, [](double step) { return 2e7 * (static_cast<int64_t>(step) / 100 % 2); })) << "to and fro";
  EXPECT_FALSE(leak_of(30, [](double step) { return 3e6 * step; })) << "too short to say";
}

TEST(Memory, KeepsFewPointsOfALongRun) {
  MemorySeries series;
  for (int64_t step = 0; step < 100000; ++step) series.add(step, step);
  EXPECT_LE(series.steps().size(), 512U);
  EXPECT_GE(series.steps().size(), 256U);
  EXPECT_EQ(series.steps()[2] - series.steps()[1], series.steps()[1] - series.steps()[0]);
}

}  // namespace
}  // namespace lockstep::flight
