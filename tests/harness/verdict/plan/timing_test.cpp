#include "harness/verdict/plan/planned_run.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/base/json.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/plan/plan_history.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kTimed = kHead +
                           "data: {source: synthetic}\nsteps: 50\nschedule: warmup\nwarmup_steps: 10\n"
                           "lr: 0.002\naxes: {layout: [8x3]}\n"
                           "timing: {layouts: [1x24, 8x3], steps: 40, repeats: 3}\n";

std::vector<PlannedRun> timed_runs(const Plan& plan) {
  std::vector<PlannedRun> runs;
  for (const PlannedRun& run : plan.runs) {
    if (run.role == RunRole::timing) runs.push_back(run);
  }
  return runs;
}

TEST(Timing, PlansEachLayoutSoOftenOnRealRanksWithoutATrace) {
  const std::vector<PlannedRun> runs = timed_runs(make_plan(parse(kTimed), "", {}));
  ASSERT_EQ(runs.size(), 6U);
  std::set<std::string> ids;
  std::map<std::string, int> names;
  for (const PlannedRun& run : runs) {
    EXPECT_TRUE(ids.insert(run.id).second) << run.id;
    ++names[run.cell];
    EXPECT_TRUE(run.exclusive);
    EXPECT_FALSE(run.reused);
    EXPECT_EQ(run.config.trace, TraceLevel::off);
    EXPECT_EQ(run.config.steps, 40);
    EXPECT_TRUE(run.config.eval_every.is_never());
    EXPECT_EQ(run.config.lr, 0.002) << "the matrix's base";
    EXPECT_EQ(run.config.warmup_steps, 0);
    EXPECT_EQ(run.config.backend, run.config.layout.world_size == 1 ? Backend::emulated : Backend::gloo);
    EXPECT_EQ(run.hash, config_hash(run.config));
    EXPECT_TRUE(run.needs.empty());
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"timing 1x24", 3}, {"timing 8x3", 3}}));
}

TEST(Timing, PlansNothingThatWasNotAskedFor) {
  EXPECT_THAT(timed_runs(make_plan(parse(kHead + "layout: 8x3\n"), "", {})), IsEmpty());
  EXPECT_THAT(timed_runs(make_plan(parse(kTimed, only("8x3")), "", {})), IsEmpty())
      << "a cell that is run again times nothing";
}

TEST(Timing, IsNeverReused) {
  const TempFolder folder;
  const BuildIdentity identity{"b", "t", "i", "d"};
  Plan plan = make_plan(parse(kTimed), folder.path(), identity);
  for (const PlannedRun& run : plan.runs) {
    const std::string dir = folder / ("runs/" + run.id);
    std::filesystem::create_directories(dir);
    write_text(dir + "/run.json", "{}");
    nlohmann::json done{{"config_hash", run.hash},
                        {"build", "b"},
                        {"libtorch", "t"},
                        {"isa", "i"},
                        {"data", "d"},
                        {"seconds", 2.0},
                        {"files", nlohmann::json::parse(evidence_json(dir))}};
    seal(done);
    write_text(dir + "/done", done.dump());
  }
  plan = make_plan(parse(kTimed), folder.path(), identity);
  for (const PlannedRun& run : plan.runs) {
    EXPECT_EQ(run.reused, run.role != RunRole::timing) << run.id;
    EXPECT_EQ(run.estimate_s, 2.0);
    if (run.role == RunRole::timing) {
      EXPECT_THAT(run.why, HasSubstr("never reused"));
    }
  }
  EXPECT_THAT(plan_text(plan, 2), HasSubstr("timing 8x3"));
}

TEST(Timing, TakesAllCoresInTheEstimate) {
  Plan plan;
  PlannedRun run;
  run.estimate_s = 10;
  plan.runs = {run, run};
  EXPECT_EQ(estimate_total_s(plan, 4), 10);
  plan.runs[0].exclusive = plan.runs[1].exclusive = true;
  EXPECT_EQ(estimate_total_s(plan, 4), 20);
}

TEST(Timing, RefusesLayoutsThatCannotBePartitioned) {
  EXPECT_THAT(problems_of("# Is it so?\nname: x\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n"
                          "accumulation: 3\ntiming: {layouts: [8x3, 6x4]}\n"),
              ElementsAre(HasSubstr("cell 'timing 6x4': accumulation 3 does not divide the 4 rows")));
}

TEST(Timing, NeedsAReferenceThatIsWritten) {
  EXPECT_THAT(
      problems_of("# Is it so?\nname: x\nquestion: certificate\nlayout: 3x8\ntiming: {layouts: [3x8]}\n"),
      ElementsAre(HasSubstr("timed runs use the reference's config")));
}

TEST(TraceOff, IsComparedByItsResultsBetweenEqualLayoutsAlone) {
  const std::string paired =
      "# Is it so?\nname: x\nquestion: mechanism\nreference: {same_as: cell, trace: hash}\ncertify_steps: 0\n"
      "trace: off\nlayout: 3x8\n";
  EXPECT_THAT(problems_of(paired), IsEmpty());
  EXPECT_THAT(problems_of("# Is it so?\nname: x\nquestion: mechanism\nreference: {layout: 1x24}\n"
                          "certify_steps: 0\nforced_steps: []\ntrace: off\nlayout: 3x8\n"),
              ElementsAre(HasSubstr("trace: off keeps nothing to compare between two layouts")));
}

}  // namespace
}  // namespace lockstep
