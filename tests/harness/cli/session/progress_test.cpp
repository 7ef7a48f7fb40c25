#include "harness/cli/session/progress.h"

#include <gmock/gmock.h>

#include <sstream>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

PlannedRun a_run(const std::string& id, double estimate_s, bool reused = false) {
  PlannedRun run;
  run.id = id;
  run.config.steps = 100;
  run.estimate_s = estimate_s;
  run.reused = reused;
  return run;
}

class ProgressTest : public testing::Test {
 protected:
  ProgressTest() { plan_.runs = {a_run("a", 1), a_run("b", 3), a_run("old", 9, true)}; }
  Plan plan_;
  std::ostringstream out_, err_;
  Console console_{out_, err_};
  double now_ = 50;
};

TEST_F(ProgressTest, CountsWhatIsDoneByItsEstimatedWork) {
  Progress progress(plan_, console_, [this] { return now_; });
  EXPECT_EQ(progress.state().runs, 2);
  EXPECT_EQ(progress.state().steps, 200);
  progress.on_event({RunEvent::Kind::reused, "old"});
  progress.on_event({RunEvent::Kind::started, "a"});
  progress.on_event({RunEvent::Kind::progress, "a", 50, 100});
  EXPECT_DOUBLE_EQ(progress.state().work_done, 0.125);
  EXPECT_EQ(progress.state().steps_done, 50);
  progress.on_event({RunEvent::Kind::finished, "a", 100, 100, 1.5});
  EXPECT_DOUBLE_EQ(progress.state().work_done, 0.25);
  EXPECT_EQ(progress.state().runs_done, 1);
  EXPECT_EQ(progress.state().steps_done, 100);
  RankFailure failure{"b", FailureKind::died, 1, 7, "train", "killed by signal 9", {}};
  progress.on_event({RunEvent::Kind::failed, "b", 0, 0, 1, &failure});
  EXPECT_EQ(progress.state().failed, 1);
  EXPECT_DOUBLE_EQ(progress.state().work_done, 1);
}

TEST_F(ProgressTest, SaysALineAnEventWhereThereIsNoTerminal) {
  {
    Progress progress(plan_, console_, [this] { return now_; });
    progress.on_event({RunEvent::Kind::started, "a"});
    progress.on_event({RunEvent::Kind::progress, "a", 50, 100});
    progress.on_event({RunEvent::Kind::finished, "a", 100, 100, 1.54});
    RankFailure failure{"b", FailureKind::died, 1, 7, "train", "killed by signal 9", {}};
    progress.on_event({RunEvent::Kind::failed, "b", 0, 0, 1, &failure});
  }
  EXPECT_EQ(err_.str(),
            "started   a\nfinished  a  1.5 s\n"
            "failed    b  died (rank 1, after 7 steps, train): killed by signal 9\n");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, RepaintsAtMostTenTimesASecond) {
  console_.err_terminal = true;
  Progress progress(plan_, console_, [this] { return now_; });
  progress.on_event({RunEvent::Kind::started, "a"});
  for (int64_t step = 1; step <= 50; ++step) {
    now_ += 0.01;
    progress.on_event({RunEvent::Kind::progress, "a", step, 100});
  }
  const std::string painted = err_.str();
  const auto repaints = std::count(painted.begin(), painted.end(), '\r');
  EXPECT_GE(repaints, 4);
  EXPECT_LE(repaints, 7);
  EXPECT_THAT(painted, Not(HasSubstr("\n")));
}

TEST_F(ProgressTest, RepaintsATableInPlace) {
  console_.err_terminal = true;
  console_.err_width = 80;
  console_.err_height = 24;
  Progress progress(plan_, console_, [this] { return now_; }, 2);
  progress.on_event({RunEvent::Kind::started, "a"});
  EXPECT_THAT(err_.str(), HasSubstr("RUN"));
  EXPECT_THAT(err_.str(), HasSubstr("\x1b[K\n  cell 0/2\x1b[K\n"));
  err_.str("");
  now_ += 0.05;
  progress.on_event({RunEvent::Kind::progress, "a", 10, 100});
  EXPECT_EQ(err_.str(), "") << "not yet";
  now_ += 0.1;
  progress.on_event({RunEvent::Kind::progress, "a", 50, 100});
  EXPECT_EQ(err_.str().substr(0, 5), "\r\x1b[3A") << "up to the first of four lines";
  EXPECT_THAT(err_.str(), HasSubstr("  50/100  "));
  err_.str("");
  now_ += 1;
  progress.on_event({RunEvent::Kind::finished, "a", 100, 100, 1.5});
  EXPECT_THAT(err_.str(), testing::EndsWith("\x1b[K\x1b[J"))
      << "nothing goes: the bar alone, and nothing below";
}

TEST_F(ProgressTest, ForecastsWhatIsLeftAtTheMeasuredPace) {
  Progress progress(plan_, console_, [this] { return now_; }, 1);
  console_.err_terminal = true;
  progress.on_event({RunEvent::Kind::started, "a"});
  now_ += 4;
  progress.on_event({RunEvent::Kind::finished, "a", 100, 100, 4});
  EXPECT_DOUBLE_EQ(progress.state().left_s, 12) << "four times as long as estimated";
}

TEST_F(ProgressTest, TakesTheBarAwayForLinesThatStay) {
  console_.err_terminal = true;
  Progress progress(plan_, console_, [this] { return now_; });
  progress.on_event({RunEvent::Kind::started, "a"});
  RankFailure failure{"a", FailureKind::hung, 0, 3, "train", "no progress", {}};
  progress.on_event({RunEvent::Kind::failed, "a", 0, 0, 1, &failure});
  EXPECT_THAT(err_.str(), HasSubstr("\r\x1b[Kfailed    a  hung"));
  progress.finish();
  EXPECT_THAT(err_.str(), testing::EndsWith("\r\x1b[K"));
}

TEST(ProgressLine, ShowsABarAndWhatIsLeft) {
  const ProgressState state{31, 66, 12400, 39600, 20, 0.5, 0};
  EXPECT_EQ(
      progress_line(state, 100),
      "[███████████████               ] 31/66 runs · about 20 s left · 12,400/39,600 steps · 620 steps/s");
}

TEST(ProgressLine, LeavesOutWhatHasNoRoom) {
  const ProgressState state{31, 66, 12400, 39600, 20, 0.5, 2};
  EXPECT_EQ(progress_line(state, 45), "31/66 runs · 2 failed · about 20 s left");
  EXPECT_EQ(progress_line(state, 12), "31/66 runs");
}

TEST(ProgressLine, ForecastsNothingFromNothing) {
  EXPECT_THAT(progress_line({0, 66, 10, 39600, 0.1, 0.001, 0}, 100), Not(HasSubstr("left")));
}

TEST(DurationText, ChoosesItsUnits) {
  EXPECT_EQ(duration_text(0.2), "0 s");
  EXPECT_EQ(duration_text(89), "89 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

}  // namespace
}  // namespace lockstep
