#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/cli/session/background.h"
#include "harness/cli/session/prepare.h"
#include "harness/cli/session/progress.h"
#include "harness/run/process_state.h"
#include "tests/support/temp_folder.h"

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

using testing::ElementsAre;
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

PlannedRun run_on_ranks(const std::string& id, double estimate_s, int ranks) {
  PlannedRun run;
  run.id = id;
  run.estimate_s = estimate_s;
  run.config.layout = {ranks, 3};
  return run;
}

TEST(TimeLeft, PacksWhatIsLeftOntoTheSlots) {
  Plan plan;
  plan.runs = {run_on_ranks("a", 10, 1), run_on_ranks("b", 10, 1), run_on_ranks("wide", 5, 8),
               run_on_ranks("old", 99, 1)};
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
  plan.runs = {run_on_ranks("a", 10, 1), run_on_ranks("b", 10, 1)};
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
  plan.runs = {run_on_ranks("a", 10, 1), run_on_ranks("b", 10, 1)};
  TimeLeft left(plan, 1);
  left.ended(0, 0.1, false);
  EXPECT_DOUBLE_EQ(left.pace(), 1);
  EXPECT_DOUBLE_EQ(left.left_s(), 10);
}

TEST(TimeLeft, WaitsForTheLongestChain) {
  Plan plan;
  plan.runs = {run_on_ranks("reference", 10, 1), run_on_ranks("forced", 4, 1)};
  plan.runs[1].needs = {"reference"};
  TimeLeft left(plan, 16);
  EXPECT_DOUBLE_EQ(left.left_s(), 14);
  plan.runs[0].exclusive = true;
  EXPECT_DOUBLE_EQ(TimeLeft(plan, 16).work_done(), 0);
}

RankFailure dead(const std::string& run) {
  return {run, FailureKind::died, 1, 17, "all_gather loss.actions", "killed by signal 9 (SIGKILL)", {"one", "two"}};
}

TEST(FailureBlock, SaysWhatWhereAndHowToRepeatIt) {
  EXPECT_EQ(failure_block(dead("8x3-global-s0-12345678"), "out/p", "lockstep run c.yaml --only x"),
            "\nFAILED 8x3-global-s0-12345678\n"
            "  died: killed by signal 9 (SIGKILL)\n"
            "  first: rank 1, after 17 steps, in all_gather loss.actions\n"
            "  its last lines:\n    | one\n    | two\n"
            "  files: out/p/runs/8x3-global-s0-12345678\n"
            "  again: lockstep run c.yaml --only x\n");
}

TEST(FailureBlocks, TakeTheCellsOwnCommand) {
  LaunchReport report;
  report.failures = {dead("a"), dead("b")};
  Results results;
  results.cells.resize(1);
  results.cells[0].rerun = "lockstep run c.yaml --only a";
  results.cells[0].failure = Failure{};
  results.cells[0].failure->run = "a";
  const std::string text = failure_blocks(report, "o", results, "lockstep run c.yaml");
  EXPECT_THAT(text, HasSubstr("again: lockstep run c.yaml --only a\n"));
  EXPECT_THAT(text, HasSubstr("again: lockstep run c.yaml\n"));
}

TEST(FailureBlocks, CountWhatIsTooMuchToShow) {
  LaunchReport report;
  for (int i = 0; i < 7; ++i) report.failures.push_back(dead("r" + std::to_string(i)));
  RankFailure waiting;
  waiting.run = "w";
  waiting.kind = FailureKind::not_started;
  waiting.message = "it needs r0, which failed";
  report.failures.push_back(waiting);
  const std::string text = failure_blocks(report, "o", {}, "again");
  EXPECT_THAT(text, HasSubstr("FAILED r4"));
  EXPECT_THAT(text, Not(HasSubstr("FAILED r5")));
  EXPECT_THAT(text, HasSubstr("2 more runs failed"));
  EXPECT_THAT(text, HasSubstr("1 runs were not started"));
  EXPECT_EQ(failure_blocks({}, "o", {}, "again"), "");
}

TEST(FailuresByRun, KeepEveryField) {
  LaunchReport report;
  report.failures = {dead("a")};
  const Failure failure = failures_by_run(report).at("a");
  EXPECT_EQ(failure.kind, FailureKind::died);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.step, 17);
  EXPECT_EQ(failure.operation, "all_gather loss.actions");
  EXPECT_EQ(failure.last_lines.size(), 2U);
}

TEST(OpeningText, StatesSeedsBuildAndConfigFirst) {
  Prepared prepared;
  prepared.plan.matrix.name = "parity";
  prepared.plan.matrix.seeds = {0, 1, 2};
  prepared.plan.matrix.cells.resize(2);
  prepared.plan.runs.resize(3);
  prepared.plan.runs[0].reused = true;
  prepared.identity = {"b0", "2.13.0", "avx2", "d0"};
  const std::string text = opening_text(prepared, 2);
  EXPECT_THAT(text, HasSubstr("parity: 2 cells, seeds 0..2\n"));
  EXPECT_THAT(text, HasSubstr("build b0 · LibTorch 2.13.0 · avx2 · data d0\n"));
  EXPECT_THAT(text,
              HasSubstr("resolved config " + plan_hash(prepared.plan) + " · 3 runs: 2 to do, 1 reused"));
}

TEST(PlanHash, ChangesWithAnyRun) {
  Plan plan;
  plan.runs.resize(2);
  plan.runs[0].hash = "a";
  const std::string before = plan_hash(plan);
  plan.runs[1].hash = "b";
  EXPECT_NE(plan_hash(plan), before);
}

TEST(SeedsText, ShortensRows) {
  EXPECT_EQ(seeds_text({0, 1, 2, 3}), "0..3");
  EXPECT_EQ(seeds_text({0, 2, 5}), "0, 2, 5");
  EXPECT_EQ(seeds_text({4}), "4");
}

TEST(ColourWanted, OnTerminalsAlone) {
  EXPECT_TRUE(colour_wanted(true, nullptr, nullptr, "xterm"));
  EXPECT_TRUE(colour_wanted(true, nullptr, nullptr, nullptr));
  EXPECT_FALSE(colour_wanted(false, nullptr, nullptr, "xterm"));
  EXPECT_FALSE(colour_wanted(true, nullptr, nullptr, "dumb"));
}

TEST(ColourWanted, HonoursTheUsersWish) {
  EXPECT_FALSE(colour_wanted(true, "1", nullptr, "xterm"));
  EXPECT_FALSE(colour_wanted(true, "1", "1", "xterm")) << "no means no";
  EXPECT_TRUE(colour_wanted(true, "", nullptr, "xterm")) << "an empty NO_COLOR is none";
  EXPECT_TRUE(colour_wanted(false, nullptr, "1", "dumb"));
  EXPECT_FALSE(colour_wanted(false, nullptr, "0", "xterm"));
}

using testing::IsEmpty;
using testing::ThrowsMessage;

PlannedRun needing(const std::string& id, const std::vector<std::string>& needs = {}, bool reused = false) {
  PlannedRun run;
  run.id = id;
  run.needs = needs;
  run.reused = reused;
  return run;
}

Plan a_plan() {
  Plan plan;
  plan.runs = {needing("late", {"middle"}), needing("first"), needing("middle", {"first", "old"}), needing("old", {}, true), needing("second")};
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
  for (int i = 0; i < 7; ++i) plan.runs.push_back(needing("r" + std::to_string(i)));
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

bool never() { return false; }

std::string problem_of(const std::string& folder) {
  try {
    read_session(folder);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// The detached process is a child of the test, and stays a zombie until that asks for it.
void reap(const Session& session) { ::waitpid(session.process, nullptr, 0); }

TEST(Session, ComesBackAsItWasWritten) {
  const TempFolder folder;
  Session session{"lockstep run a.yaml", "vm", 17, "", {}, 24, {}};
  write_session(folder.path(), session);
  Session back = read_session(folder.path());
  EXPECT_EQ(back.command, session.command);
  EXPECT_EQ(back.host, "vm");
  EXPECT_EQ(back.process, 17);
  EXPECT_EQ(back.runs, 24);
  EXPECT_FALSE(back.exit_code);
  session.exit_code = 5;
  write_session(folder.path(), session);
  EXPECT_EQ(read_session(folder.path()).exit_code, 5);
}

TEST(Session, IsRefusedWhereThereIsNone) {
  const TempFolder folder;
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("nothing has run or been judged there"));
  EXPECT_THAT(problem_of(folder / "none"), HasSubstr("is not a folder"));
  std::ofstream(session_file(folder.path())) << "[1, 2]\n";
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("is not a session file"));
}

TEST(Session, OfWhichAFieldIsOfAnotherTypeOrDamagedIsRefusedByName) {
  const TempFolder folder;
  for (const char* text : {R"({"command":5})", R"({"process":"x"})", R"({"arrays":{}})", R"({"arrays":[1]})", R"({"of_trials":1})", R"({"exit_code":null})", R"({"host":[]})", R"({"runs":1e9})"}) {
    std::ofstream(session_file(folder.path())) << text;
    EXPECT_THAT(problem_of(folder.path()), testing::AllOf(HasSubstr("session.json: '"), HasSubstr("cannot stand there"))) << text;
  }
  std::ofstream(session_file(folder.path())) << R"({"command":"a","exit_code":3})";
  EXPECT_EQ(read_session(folder.path()).exit_code, 3) << "an earlier lockstep's has no checksum";
  write_session(folder.path(), {"lockstep run a.yaml", "vm", 17, "", {}, 24, 1});
  std::string text = read_text(session_file(folder.path()));
  text.replace(text.find("\"exit_code\": 1"), 14, "\"exit_code\": 0");
  std::ofstream(session_file(folder.path())) << text;
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("session.json is damaged"));
  EXPECT_EQ(in_foreground(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] { return 5; }), 5) << "it is written anew";
}

TEST(Session, OfRunsThatNobodyNotedIsWhatTheirResultsSay) {
  const TempFolder folder;
  const auto write = [&](nlohmann::json results) {
    seal(results);
    std::ofstream(folder / "results.json") << results;
  };
  write({{"rerun", "lockstep run a.yaml"}, {"summary", {{"exit_code", 1}}}});
  EXPECT_EQ(session_text(folder.path()), "ended: by results.json; 0 runs have finished; exit status 1\n  lockstep run a.yaml\n");
  EXPECT_EQ(wait_for(folder.path(), never), 1);
  write({{"summary", nlohmann::json::object()}});
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("results.json: there is no 'exit_code'"));
  std::ofstream(folder / "results.json") << R"({"summary": {"exit_code": 0}})";
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("results.json has no checksum"));
}

TEST(Session, OfTheForegroundIsNotedWhileItRunsAndWhenItEnds) {
  const TempFolder folder;
  const Session session{"lockstep run a.yaml", "", 0, "", {}, 3, {}};
  EXPECT_EQ(in_foreground(folder.path(), session, [&] {
    EXPECT_THAT(session_text(folder.path()), HasSubstr("in the foreground; 0 of 3 runs have finished"));
    return 5;
  }), 5);
  EXPECT_EQ(wait_for(folder.path(), never), 5);
  EXPECT_EQ(in_foreground(folder.path(), session, [&] {
    EXPECT_FALSE(read_session(folder.path()).exit_code) << "of the earlier run";
    return 0;
  }), 0);
}

TEST(Session, OfADetachedProcessStaysItsOwn) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [&] {
    return in_foreground(folder.path(), {"another", "", 0, "", {}, 7, {}}, [] { return 5; });
  });
  EXPECT_EQ(wait_for(folder.path(), never), 5);
  reap(session);
  EXPECT_EQ(read_session(folder.path()).command, "lockstep run a.yaml");
}

TEST(Detach, RunsTheWorkElsewhereAndNotesItsOutputAndItsStatus) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] {
    std::printf("said by %d\n", static_cast<int>(::getsid(0) == ::getpid()));
    std::fprintf(stderr, "warned\n");
    return 5;
  });
  EXPECT_NE(session.process, ::getpid());
  EXPECT_EQ(read_session(folder.path()).process, session.process) << "it is noted before detach returns";
  EXPECT_EQ(wait_for(folder.path(), never), 5);
  reap(session);
  EXPECT_EQ(read_text(folder / "run.out"), "said by 1\n");
  EXPECT_EQ(read_text(folder / "run.err"), "warned\n");
  EXPECT_THAT(session_text(folder.path()), HasSubstr("ended: process"));
  EXPECT_THAT(session_text(folder.path()), HasSubstr("0 of 3 runs have finished; exit status 5\n  lockstep run a.yaml"));
}

TEST(Detach, IsLostWhereItsProcessDiesWithoutAStatus) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] {
    ::raise(SIGKILL);
    return 0;
  });
  reap(session);
  EXPECT_EQ(state_of(folder.path(), read_session(folder.path())), "lost");
  EXPECT_EQ(wait_for(folder.path(), never), std::nullopt);
  EXPECT_THAT(session_text(folder.path()), HasSubstr("run the same command again to resume"));
}

TEST(Session, OfAnotherNamespaceIsJudgedByNoProcessOfThisNumber) {
  Session session{"lockstep run a.yaml", "", 0, "", {}, 3, {}};
  session.be_this_process();
  EXPECT_EQ(state_of("", session), "running");
  ++session.started;
  EXPECT_EQ(state_of("", session), "lost") << "the number is another process's now";
  ++session.space;
  EXPECT_EQ(state_of("", session), "running") << "as far as can be seen from here";
}

TEST(Detach, IsRunningAsLongAsItsProcessIs) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] {
    for (;;) ::pause();
    return 0;
  });
  std::filesystem::create_directories(folder / "runs/a");
  std::ofstream(folder / "runs/a/done") << "{}";
  EXPECT_THAT(session_text(folder.path()), HasSubstr("running: process"));
  EXPECT_THAT(session_text(folder.path()), HasSubstr("1 of 3 runs have finished"));
  int asked = 0;
  EXPECT_EQ(wait_for(folder.path(), [&] { return ++asked > 2; }), std::nullopt) << "whoever waits gave up";
  ::kill(session.process, SIGKILL);
  reap(session);
}

TEST(Session, OfAnotherMachineIsTakenForRunning) {
  const TempFolder folder;
  EXPECT_EQ(state_of(folder.path(), {"x", "another-machine", 1, "", {}, 1, {}}), "running");
}

TEST(Status, SaysWhereTheStacksOfRanksThatHungAre) {
  const TempFolder folder;
  write_session(folder.path(), {"lockstep run a.yaml", "another-machine", 17, "", {}, 24, {}});
  std::filesystem::create_directories(folder / "runs/a");
  EXPECT_THAT(session_text(folder.path()), testing::Not(HasSubstr("hung")));
  write_stacks(folder / "runs/a", 3, {"#0 pause\n", {"pause"}});
  EXPECT_THAT(session_text(folder.path()), HasSubstr("rank 3 of a hung; its stacks: " + (folder / "runs/a/stacks-3.txt") + " (lockstep explain " +
                                                     (folder / "runs/a") + ")\n"));
  for (int rank = 4; rank < 10; ++rank) write_stacks(folder / "runs/a", rank, {"#0 pause\n", {"pause"}});
  EXPECT_THAT(session_text(folder.path()), HasSubstr("stacks of 2 more: "));
}

TEST(JobScript, NotesTheStatusOfWhatItRan) {
  const TempFolder folder;
  std::ofstream(folder / "job.sh") << job_script("(echo said; exit 3)", folder.path(), "a", {"--time=5"});
  const std::string script = read_text(folder / "job.sh");
  EXPECT_THAT(script, HasSubstr("#SBATCH --job-name=lockstep-a\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --time=5\n"));
  const int status = std::system(("bash " + (folder / "job.sh") + " 2>/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(read_text(folder / "run.out"), "said\n");
  Session session{"x", "vm", 0, "17", {}, 1, {}};
  write_session(folder.path(), session);
  EXPECT_EQ(read_session(folder.path()).exit_code, 3) << "noted by the script alone";
}

TEST(JobScript, WritesPathsAndOptionsAsSlurmReadsThem) {
  const std::string script = job_script("true", "/a b/50%#1", "two words", {"--comment=it's \"so\"", "-N4"});
  for (const char* line : {"#SBATCH --job-name=\"lockstep-two words\"\n", "#SBATCH --output=\"/a b/50%%#1/job.log\" --open-mode=append\n",
                           "#SBATCH \"--comment=it's \\\"so\\\"\"\n", "#SBATCH -N4\n"})
    EXPECT_THAT(script, HasSubstr(line));
  EXPECT_THROW(job_script("true", "/a\nb", "a", {}), ConfigError);
  EXPECT_THROW(job_script("true", "/a\\b", "a", {}), ConfigError);
}

TEST(Session, ThatCouldNotGoOnSaysWhy) {
  const TempFolder folder;
  write_session(folder.path(), {"x", "vm", 0, "17", {}, 1, 7});
  std::ofstream(folder / "job.log") << "started\nlockstep: the disk is full\n";
  EXPECT_EQ(last_words(folder.path()), "started\nlockstep: the disk is full\n");
}

/// Programs of Slurm's in PATH that note what they are asked, and answer as told.
class FakeSlurm {
 public:
  explicit FakeSlurm(const std::string& scancel) {
    put("sbatch", "echo \"$@\" >>" + asked_ + "; echo 17");
    put("scancel", "echo \"$@\" >>" + asked_ + "; " + scancel);
    ::setenv("PATH", (folder_.path() + ":" + before_).c_str(), 1);
  }
  ~FakeSlurm() { ::setenv("PATH", before_.c_str(), 1); }
  std::string asked() const { return read_text(asked_); }

 private:
  void put(const std::string& name, const std::string& line) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << line << "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  const TempFolder folder_;
  const std::string asked_ = folder_ / "asked", before_ = std::getenv("PATH");
};

TEST(Jobs, ComeAfterOneThatSlurmMayForget) {
  const TempFolder folder;
  const FakeSlurm slurm("exit 0");
  EXPECT_EQ(submit_script(folder / "a.sh", "#!/bin/sh\n"), "17");
  EXPECT_EQ(submit_script(folder / "b.sh", "#!/bin/sh\n", "17"), "17");
  EXPECT_EQ(slurm.asked(), "--parsable " + (folder / "a.sh") + "\n--parsable --dependency=afterany:17 --kill-on-invalid-dep=yes " +
                               (folder / "b.sh") + "\n");
}

TEST(Jobs, AreTakenBack) {
  const FakeSlurm slurm("exit 0");
  EXPECT_EQ(cancel_jobs({}), "");
  EXPECT_EQ(cancel_jobs({"17"}), "; the array 17 that had been submitted is cancelled");
  EXPECT_EQ(cancel_jobs({"17", "18"}), "; the arrays 17, 18 that had been submitted are cancelled");
  EXPECT_EQ(slurm.asked(), "17\n17 18\n");
}

TEST(Jobs, ThatCannotBeTakenBackAreSaid) {
  const FakeSlurm slurm("echo no controller; exit 1");
  EXPECT_EQ(cancel_jobs({"17", "18"}), "; the arrays 17, 18 had been submitted and scancel says no controller: scancel 17 18");
}

}  // namespace
}  // namespace lockstep
