#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/compare/compare.h"
#include "harness/verdict/trace/trace_error.h"
#include "tests/support/fake_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::FakeRun;
using support::tensor_of;

FakeRun run_of(int64_t steps, int world_size = 8) {
  FakeRun run;
  run.world_size = world_size;
  run.steps = support::steps_up_to(steps);
  return run;
}

TEST(Certify, CountsTheStepsThatAgree) {
  TempFolder folder;
  support::write_fake_run(folder / "emulated", run_of(60));
  support::write_fake_run(folder / "real", run_of(50));
  const Certification result = certify(folder / "emulated", folder / "real", 50);
  EXPECT_TRUE(result.wanted);
  EXPECT_EQ(result.asked, 50);
  EXPECT_EQ(result.steps, 50);
  EXPECT_FALSE(result.divergence.has_value());
}

TEST(Certify, CountsNoMoreThanAsked) {
  TempFolder folder;
  support::write_fake_run(folder / "emulated", run_of(60));
  support::write_fake_run(folder / "real", run_of(50));
  EXPECT_EQ(certify(folder / "emulated", folder / "real", 20).steps, 20);
}

TEST(Certify, StopsAtTheFirstDifferingBit) {
  TempFolder folder;
  support::write_fake_run(folder / "emulated", run_of(60));
  FakeRun real = run_of(50);
  real.fault = [](support::FakeStep& it) {
    if (it.step >= 31) tensor_of(it.reduced_gradients, "head.weight")[2] *= 1.0000002F;
  };
  support::write_fake_run(folder / "real", real);
  const Certification result = certify(folder / "emulated", folder / "real", 50);
  EXPECT_EQ(result.steps, 31);
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_EQ(result.divergence->step, 31);
  EXPECT_EQ(result.divergence->where, "head.weight");
}

TEST(Certify, RefusesAnotherLayout) {
  TempFolder folder;
  support::write_fake_run(folder / "emulated", run_of(5));
  support::write_fake_run(folder / "real", run_of(5, 3));
  EXPECT_THROW(certify(folder / "emulated", folder / "real", 5), TraceError);
}

}  // namespace
}  // namespace lockstep
