// The experiments of the laboratory of resuming, a slice of each.

#include "tests/harness/resume/support.h"

namespace lockstep::resume {
namespace {

using support::cases_of;
using support::findings_of;
using testing::HasSubstr;

TEST(ResumeLaboratory, FindsNothingInTheTrainerAndEveryKindThatIsLeftOut) {
  ResumeConfig config;
  config.stops = 3;
  config.pair_stops = {};
  const auto laboratory = make_stops(config);
  const LaboratoryResult result = support::run(*laboratory);
  EXPECT_EQ(result.faults, 0) << findings_of(result);
  EXPECT_EQ(result.undecided, 0) << findings_of(result);
  EXPECT_EQ(result.trials, 3 * (6 + 18));
  EXPECT_EQ(cases_of(result, "stopped once, saved whole", "same bits"), 3);
}

TEST(ResumeLaboratory, NamesEveryKindAndEveryPairOfThem) {
  ResumeConfig config;
  config.stops = 31;
  config.pair_stops = {31};
  const auto laboratory = make_stops(config);
  const LaboratoryResult pairs = support::run(*laboratory, "failure==mutant: two kinds are left out");
  EXPECT_EQ(pairs.cases, 18 * 17 / 2);
  EXPECT_EQ(pairs.faults + pairs.undecided, 0) << findings_of(pairs);
  EXPECT_GE(cases_of(pairs, "mutant: two kinds are left out", "named, each"), pairs.cases - 3);
  EXPECT_THAT(pairs.facts, testing::Contains(testing::Pair("kinds of state left out and named", "18 of 18")));
}

}  // namespace
}  // namespace lockstep::resume
