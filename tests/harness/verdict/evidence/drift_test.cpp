// How far two runs lie apart by step, from what they kept.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/verdict/evidence/noise.h"
#include "harness/verdict/trace/trace_error.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

/// A run that kept its one parameter of two elements before steps 1 and 5, and a moment that no distance counts.
std::string write_run(const std::string& dir, const std::vector<float>& at_1, const std::vector<float>& at_5,
                      const std::string& parameter = "context_encoder.in.weight") {
  std::filesystem::create_directories(dir);
  TraceHeader header;
  header.config_hash = "hash";
  header.world_size = 1;
  header.trainer = "energy";
  TraceWriter trace(dir + "/rank-0.trace", header);
  for (int64_t step = 0; step < 6; ++step) {
    trace.begin_step(step);
    if (step == 1 || step == 5) {
      const std::vector<float>& values = step == 1 ? at_1 : at_5;
      const std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
      const TensorView view{values.data(), DType::float32, shape, {}};
      trace.tensor(Phase::snapshot, parameter, view, Sharing::replicated, {}, Keep::whole);
      const std::vector<float> moment{static_cast<float>(dir.size()) * 1000};
      const std::vector<int64_t> one{1};
      trace.tensor(Phase::snapshot, "first_moment/weight", {moment.data(), DType::float32, one, {}}, Sharing::replicated,
                   {}, Keep::whole);
    }
    trace.end_step();
  }
  trace.finish();
  return dir;
}

RunEvidence curves(double loss, double accuracy) {
  RunEvidence run;
  run.curves["loss"] = {{0, 1}, {3.0, loss}};
  run.curves["accuracy_24"] = {{1}, {accuracy}};
  return run;
}

TEST(DriftOf, IsTheDistanceInSharesOfTheLengthAndTheDifferencesOfCurves) {
  const TempFolder folder;
  const RunEvidence a = curves(2.0, 0.5), b = curves(2.25, 0.5), c = curves(2.0, 0.25);
  const std::string reference = write_run(folder / "a", {3, 4}, {3, 4});
  const std::vector<DriftPair> pairs{{&a, &b, reference, write_run(folder / "bb", {3, 4}, {3, 4.5})},
                                     {&a, &c, reference, write_run(folder / "ccc", {3, 4}, {3, 4})}};
  const std::vector<CurveBand> drift = drift_of(pairs, RunConfig{}, "accuracy_24");
  ASSERT_EQ(drift.size(), 4u);
  EXPECT_EQ(drift[0].metric, "parameters");
  EXPECT_THAT(drift[0].steps, ElementsAre(1, 5));
  EXPECT_THAT(drift[0].low, ElementsAre(0, 0));
  EXPECT_THAT(drift[0].high, ElementsAre(0, DoubleNear(0.1, 1e-12))) << "0.5 of a length of 5";
  EXPECT_THAT(drift[1].high, ElementsAre(0, 0)) << "this run has no such parameter";
  EXPECT_EQ(drift[2].metric, "loss");
  EXPECT_THAT(drift[2].high, ElementsAre(0, 0.25));
  EXPECT_THAT(drift[2].low, ElementsAre(0, 0));
  EXPECT_EQ(drift[3].metric, "accuracy_24");
  EXPECT_THAT(drift[3].steps, ElementsAre(1));
  EXPECT_THAT(drift[3].high, ElementsAre(0.25));
  const std::string words = drift_sentence(drift);
  EXPECT_EQ(words,
            "Differences by rounding alone up to step 5: parameters at most 1.0e-01 of their norm, "
            "parameters without a gradient 0, training loss at most "
            "2.5e-01, 24-way accuracy at most 2.5e-01.");
}

TEST(DriftOf, ParametersThatRoundingAloneMovesStandApart) {
  const TempFolder folder;
  const RunEvidence a = curves(2.0, 0.5);
  const std::string bias = "energy_head.energy.bias";
  const std::vector<DriftPair> pairs{{&a, &a, write_run(folder / "a", {3, 4}, {3, 4}, bias),
                                      write_run(folder / "b", {3, 4}, {3, 4.5}, bias)}};
  const std::vector<CurveBand> drift = drift_of(pairs, RunConfig{}, "accuracy_24");
  ASSERT_EQ(drift.size(), 4u);
  EXPECT_EQ(drift[0].metric, "parameters");
  EXPECT_THAT(drift[0].high, ElementsAre(0, 0));
  EXPECT_EQ(drift[1].metric, "parameters without a gradient");
  EXPECT_THAT(drift[1].high, ElementsAre(0, DoubleNear(0.1, 1e-12)));
}

TEST(DriftOf, AnotherModelHasNoDistanceAndADamagedTraceIsNamed) {
  const TempFolder folder;
  const RunEvidence none;
  const std::string reference = write_run(folder / "a", {3, 4}, {3, 4});
  const std::string other = write_run(folder / "b", {3, 4, 5}, {3, 4, 5});
  EXPECT_THAT(drift_of({{&none, &none, reference, other}}, RunConfig{}, "accuracy_24"), IsEmpty());
  EXPECT_EQ(drift_sentence({}), "");
  EXPECT_THROW(drift_of({{&none, &none, reference, folder / "nowhere"}}, RunConfig{}, "loss"), TraceError);
}

}  // namespace
}  // namespace lockstep
