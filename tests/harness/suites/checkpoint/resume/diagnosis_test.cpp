// Which kind of state was lost, told from records alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/suites/checkpoint/resume/diagnosis.h"
#include "harness/suites/checkpoint/resume/segments.h"

namespace lockstep::resume {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kRanks = 3;
constexpr int64_t kStop = 23;

std::vector<LostKind> told(const std::set<std::string, std::less<>>& left_out) {
  toy::Config config, broken;
  broken.planted.left_out = left_out;
  const SegmentsDone control = run_segments(config, {{kRanks, kStop}}, 20);
  const SegmentsDone resumed = run_segments(broken, {{kRanks, kStop}, {kRanks, kStop + 20}}, 20);
  EXPECT_EQ(control.problem + resumed.problem, "");
  std::vector<toy::TrainerState> states;
  for (int rank = 0; rank < kRanks; ++rank)
    states.push_back(trainer_state_of(control.last()[static_cast<std::size_t>(rank)], config, rank, kRanks));
  Diagnosis diagnosis(config, states);
  for (int64_t step = kStop + 1; step <= kStop + 20; ++step) diagnosis.take(resumed.steps.at(step));
  return diagnosis.lost();
}

TEST(Diagnosis, IsSilentWhereNothingIsLost) { EXPECT_THAT(told({}), IsEmpty()); }

TEST(Diagnosis, SaysWhichSampleWasExpectedAndSeen) {
  const std::vector<LostKind> lost = told({"sampler_cursor"});
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].step, kStop + 1);
  // 7 steps of 8 rows and one of 4 are an epoch of 60: step 24 is the last of the third.
  EXPECT_EQ(lost[0].sentence, "sampler cursor: sample 56 expected, 0 seen");
}

TEST(Diagnosis, TellsTheStaleCopyFromTheRateThatItOverwrites) {
  const std::vector<LostKind> stale = told({"cached_controls"});
  ASSERT_THAT(stale, SizeIs(1));
  EXPECT_EQ(stale[0].kind, "cached_controls");
  EXPECT_THAT(stale[0].sentence, HasSubstr("the schedule has overwritten it"));
  const std::vector<LostKind> lost = told({"control_values"});
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].kind, "control_values");
}

TEST(Diagnosis, TellsTheOptimizersCountFromItsMoments) {
  EXPECT_THAT(told({"optimizer_step"}), ElementsAre(testing::Field(&LostKind::kind, "optimizer_step")));
  EXPECT_THAT(told({"moments"}), ElementsAre(testing::Field(&LostKind::kind, "moments")));
}

TEST(Diagnosis, IsNotMisledByAnotherLoss) {
  EXPECT_THAT(told({"sampler_cursor", "averaged_weights"}), SizeIs(2));
  EXPECT_THAT(told({"moments", "optimizer_step"}), SizeIs(2));
  const std::vector<LostKind> all = told({"parameters", "accumulation", "loss_scale", "stream/jitter"});
  EXPECT_THAT(all, SizeIs(4));
}

}  // namespace
}  // namespace lockstep::resume
