#include "harness/cli/session/progress.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

ProgressView a_view(int running) {
  ProgressView view;
  view.state = {31, 66, 12400, 39600, 20, 0.5, 0, 75};
  for (int i = 0; i < running; ++i) {
    view.running.push_back({"8x3-global-s" + std::to_string(i) + "-5545f92e", "8 emulated", 120, 400, 12.4});
  }
  view.groups = {{"reference", 10, 10}, {"cell", 21, 56}};
  return view;
}

TEST(ProgressTable, ShowsWhatGoesAndWhatIsLeft) {
  EXPECT_THAT(
      progress_table(a_view(2), 80, 24, false),
      ElementsAre("  RUN                     RANKS       STEP     LEFT",
                  "  8x3-global-s0-5545f92e  8 emulated  120/400  12 s",
                  "  8x3-global-s1-5545f92e  8 emulated  120/400  12 s", "  reference 10/10 · cell 21/56",
                  "[██████       ] 31/66 runs · about 75 s left · 12,400/39,600 steps · 620 steps/s"));
}

TEST(ProgressTable, ShowsWhatARunIsWatchedBy) {
  ProgressView view = a_view(2);
  view.running[1].shown = "success 0.43";
  const std::vector<std::string> lines = progress_table(view, 80, 24, false);
  EXPECT_EQ(lines[1], "  8x3-global-s0-5545f92e  8 emulated  120/400  12 s");
  EXPECT_EQ(lines[2], "  8x3-global-s1-5545f92e  8 emulated  120/400  12 s  success 0.43");
}

TEST(ProgressTable, CountsWhatHasNoLine) {
  const auto lines = progress_table(a_view(20), 100, 14, false);
  EXPECT_THAT(lines, SizeIs(7)) << "half of the screen";
  EXPECT_EQ(lines[4], "  and 17 more");
}

TEST(ProgressTable, IsTheBarAloneWhereThereIsNoRoom) {
  EXPECT_THAT(progress_table(a_view(2), 80, 5, false), SizeIs(1));
  EXPECT_THAT(progress_table(a_view(2), 49, 24, false), SizeIs(1));
  EXPECT_THAT(progress_table(a_view(2), 80, 0, false), SizeIs(1)) << "a terminal of unknown height";
  EXPECT_THAT(progress_table(a_view(0), 80, 24, false), SizeIs(1)) << "nothing goes yet";
}

TEST(ProgressTable, CutsLongNamesAndNeverALineLongerThanTheTerminal) {
  ProgressView view = a_view(2);
  view.running[0].run = std::string(120, 'x') + "-s0";
  for (int width = 50; width <= 130; width += 7) {
    for (const std::string& line : progress_table(view, width, 24, false)) {
      const auto columns =
          std::count_if(line.begin(), line.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, width) << line;
    }
  }
  EXPECT_THAT(progress_table(view, 80, 24, false)[1], HasSubstr("x…"));
}

TEST(ProgressTable, IsPlainWithoutColour) {
  EXPECT_EQ(progress_table(a_view(1), 80, 24, true)[0].substr(0, 4), "\x1b[2m");
  for (const std::string& line : progress_table(a_view(1), 80, 24, false)) {
    EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  }
}

PlannedRun a_run(const std::string& id, double estimate_s, int ranks) {
  PlannedRun run;
  run.id = id;
  run.estimate_s = estimate_s;
  run.config.layout = {ranks, 3};
  return run;
}

TEST(TimeLeft, PacksWhatIsLeftOntoTheSlots) {
  Plan plan;
  plan.runs = {a_run("a", 10, 1), a_run("b", 10, 1), a_run("wide", 5, 8), a_run("old", 99, 1)};
  plan.runs[3].reused = true;
  TimeLeft left(plan, 2);
  EXPECT_DOUBLE_EQ(left.left_s(), 15) << "a and b beside each other, the wide one has both slots";
  EXPECT_DOUBLE_EQ(left.work_done(), 0);
  left.progress(0, 0.5, 5);
  left.progress(1, 0.5, 5);
  EXPECT_DOUBLE_EQ(left.left_s(), 10);
  EXPECT_NEAR(left.work_done(), 1.0 / 3, 1e-12);
}

TEST(TimeLeft, FollowsTheMeasuredPace) {
  Plan plan;
  plan.runs = {a_run("a", 10, 1), a_run("b", 10, 1)};
  TimeLeft left(plan, 1);
  left.ended(0, 30, true);
  EXPECT_DOUBLE_EQ(left.pace(), 3);
  EXPECT_DOUBLE_EQ(left.left_s(), 30);
  EXPECT_DOUBLE_EQ(left.run_left_s(1), 30);
  left.progress(1, 0.5, 5);
  EXPECT_DOUBLE_EQ(left.run_left_s(1), 5) << "its own pace";
  EXPECT_DOUBLE_EQ(left.run_left_s(0), 0);
}

TEST(TimeLeft, LearnsNothingFromWhatFailed) {
  Plan plan;
  plan.runs = {a_run("a", 10, 1), a_run("b", 10, 1)};
  TimeLeft left(plan, 1);
  left.ended(0, 0.1, false);
  EXPECT_DOUBLE_EQ(left.pace(), 1);
  EXPECT_DOUBLE_EQ(left.left_s(), 10);
}

TEST(TimeLeft, WaitsForTheLongestChain) {
  Plan plan;
  plan.runs = {a_run("reference", 10, 1), a_run("forced", 4, 1)};
  plan.runs[1].needs = {"reference"};
  TimeLeft left(plan, 16);
  EXPECT_DOUBLE_EQ(left.left_s(), 14);
  plan.runs[0].exclusive = true;
  EXPECT_DOUBLE_EQ(TimeLeft(plan, 16).work_done(), 0);
}

}  // namespace
}  // namespace lockstep
