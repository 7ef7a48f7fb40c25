#include "harness/cli/session/array.h"

#include <gmock/gmock.h>

#include <fstream>

#include "harness/base/errors.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;

PlannedRun a_run(const std::string& id, const std::vector<std::string>& needs = {}, bool reused = false) {
  PlannedRun run;
  run.id = id;
  run.needs = needs;
  run.reused = reused;
  return run;
}

Plan a_plan() {
  Plan plan;
  plan.runs = {a_run("late", {"middle"}), a_run("first"), a_run("middle", {"first", "old"}), a_run("old", {}, true), a_run("second")};
  return plan;
}

TEST(Array, ComesAfterWhatItsRunsNeed) {
  const ArrayParts parts = array_parts(a_plan(), 1000);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_THAT(parts[0], ElementsAre(ElementsAre("first"), ElementsAre("second")));
  EXPECT_THAT(parts[1], ElementsAre(ElementsAre("middle")));
  EXPECT_THAT(parts[2], ElementsAre(ElementsAre("late")));
  EXPECT_THAT(array_parts(Plan{}, 1000), IsEmpty());
}

TEST(Array, SharesRunsOutWhereThereAreMoreThanTasks) {
  Plan plan;
  for (int i = 0; i < 7; ++i) plan.runs.push_back(a_run("r" + std::to_string(i)));
  EXPECT_THAT(array_parts(plan, 3), ElementsAre(ElementsAre(ElementsAre("r0", "r3", "r6"), ElementsAre("r1", "r4"), ElementsAre("r2", "r5"))));
}

TEST(Array, TellsATaskItsRuns) {
  const TempFolder folder;
  write_parts(folder.path(), array_parts(a_plan(), 1));
  EXPECT_THAT(read_part(folder.path(), "0.0"), ElementsAre("first", "second"));
  EXPECT_THAT(read_part(folder.path(), "2.0"), ElementsAre("late"));
  for (const char* part : {"3.0", "0.1", "", "1", "1.", "1.x", "1.0x", "-1.0"})
    EXPECT_THAT([&] { read_part(folder.path(), part); }, ThrowsMessage<ConfigError>(HasSubstr("no such part"))) << part;
  EXPECT_THROW(read_part(folder / "nothing", "0.0"), ConfigError);
}

TEST(Array, LeavesOutWhatNeedsARunThatDidNotFinish) {
  Plan plan = a_plan();
  std::vector<std::string> left_out;
  EXPECT_THAT(plan_of_part(plan, {"middle", "second"}, left_out).runs, ElementsAre(testing::Field(&PlannedRun::id, "second")));
  EXPECT_THAT(left_out, ElementsAre("middle"));
  plan.runs[1].reused = true;
  left_out.clear();
  EXPECT_EQ(plan_of_part(plan, {"middle", "second"}, left_out).runs.size(), 2U);
  EXPECT_THAT(left_out, IsEmpty());
}

TEST(Array, IsWishedForAmongTheOptionsOfSbatch) {
  const ArrayWish none = array_wish({"-N4", "--time=60"});
  EXPECT_FALSE(none.wanted);
  EXPECT_THAT(none.options, ElementsAre("-N4", "--time=60"));
  const ArrayWish four = array_wish({"-N1", "--array=%4"});
  EXPECT_TRUE(four.wanted);
  EXPECT_EQ(four.at_once, 4);
  EXPECT_THAT(four.options, ElementsAre("-N1"));
  EXPECT_TRUE(array_wish({"--array"}).wanted);
  for (const char* bad : {"--array=", "--array=0-7", "--array=0-7%2", "--array=%", "--array=%0", "--array=%-1", "--array=%2x"})
    EXPECT_THAT([&] { array_wish({bad}); }, ThrowsMessage<ConfigError>(HasSubstr("lockstep numbers them"))) << bad;
}

TEST(Array, HasAScriptThatQueuesItsTasksAgain) {
  const std::string script = array_script("lockstep run c.yaml", "/out", "play", 1, 24, array_wish({"--array=%4", "--time=9"}));
  for (const char* words : {"#SBATCH --array=0-23%4\n", "#SBATCH --requeue\n", "#SBATCH --time=9\n", "--part 1.$SLURM_ARRAY_TASK_ID &",
                            "scontrol requeue \"$task\"", "task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"})
    EXPECT_THAT(script, HasSubstr(words));
  EXPECT_THAT(array_script("x", "/out", "play", 0, 2, array_wish({"--array"})), Not(HasSubstr("%1\n")));
}

}  // namespace
}  // namespace lockstep
