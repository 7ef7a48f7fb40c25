#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numbers>
#include <numeric>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/run_folder.h"
#include "tests/support/fake_files.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

/// Ids in the order in which they start when each finishes before the next is asked for.
std::vector<std::string> order_alone(JobQueue queue) {
  std::vector<std::string> order;
  while (const auto job = queue.next()) {
    order.push_back(queue.job(*job).id);
    queue.finished(*job);
  }
  EXPECT_TRUE(queue.done());
  return order;
}

TEST(JobQueue, StartsTheLongestFirst) {
  EXPECT_THAT(order_alone(JobQueue({{"short", {}, 1, 1}, {"long", {}, 9, 1}, {"middle", {}, 5, 1}}, 1)),
              ElementsAre("long", "middle", "short"));
}

TEST(JobQueue, CountsWhatWaitsForAJobAsItsLength) {
  EXPECT_THAT(
      order_alone(JobQueue({{"alone", {}, 5, 1}, {"needed", {}, 1, 1}, {"last", {"needed"}, 6, 1}}, 1)),
      ElementsAre("needed", "last", "alone"));
}

TEST(JobQueue, StartsNothingBeforeItsNeeds) {
  JobQueue queue({{"a", {}, 1, 1}, {"b", {"a"}, 9, 1}}, 2);
  const auto a = queue.next();
  ASSERT_TRUE(a);
  EXPECT_EQ(queue.job(*a).id, "a");
  EXPECT_FALSE(queue.next()) << "b needs a, though a slot is free";
  queue.finished(*a);
  const auto b = queue.next();
  ASSERT_TRUE(b);
  EXPECT_EQ(queue.job(*b).id, "b");
  EXPECT_FALSE(queue.done());
  queue.finished(*b);
  EXPECT_TRUE(queue.done());
}

TEST(JobQueue, TakesNeedsThatAreNoJobsAsDone) {
  EXPECT_THAT(order_alone(JobQueue({{"b", {"reused"}, 1, 1}}, 1)), ElementsAre("b"));
}

TEST(JobQueue, FillsGapsWithShorterJobs) {
  JobQueue queue({{"one", {}, 9, 1}, {"wide", {}, 8, 3}, {"small", {}, 1, 1}}, 3);
  const auto one = queue.next(), small = queue.next();
  ASSERT_TRUE(one && small);
  EXPECT_EQ(queue.job(*one).id, "one");
  EXPECT_EQ(queue.job(*small).id, "small");
  EXPECT_FALSE(queue.next());
  queue.finished(*one);
  EXPECT_FALSE(queue.next()) << "two slots are free, wide takes three";
  queue.finished(*small);
  EXPECT_TRUE(queue.next());
}

TEST(JobQueue, GivesAllSlotsToAJobThatWantsMore) {
  JobQueue queue({{"wide", {}, 9, 8}, {"small", {}, 1, 1}}, 2);
  const auto wide = queue.next();
  ASSERT_TRUE(wide);
  EXPECT_EQ(queue.slots_of(*wide), 2);
  EXPECT_FALSE(queue.next());
}

TEST(JobQueue, RunsAnExclusiveJobAlone) {
  JobQueue queue({{"alone", {}, 5, 1, true}, {"long", {}, 9, 1}, {"short", {}, 1, 1}}, 4);
  std::vector<std::size_t> going;
  while (!queue.done()) {
    while (const auto job = queue.next()) going.push_back(*job);
    for (const std::size_t job : going) {
      if (queue.job(job).exclusive) {
        EXPECT_EQ(queue.running(), 1);
      }
    }
    EXPECT_FALSE(going.empty());
    queue.finished(going.back());
    going.pop_back();
  }
}

TEST(JobQueue, GivesUpWhatNeededAFailedJobAndNothingElse) {
  JobQueue queue({{"a", {}, 9, 1}, {"b", {"a"}, 1, 1}, {"c", {"b"}, 1, 1}, {"d", {}, 1, 1}}, 1);
  const auto a = queue.next();
  std::vector<std::string> given_up;
  for (const std::size_t job : queue.failed(*a)) given_up.push_back(queue.job(job).id);
  EXPECT_THAT(given_up, UnorderedElementsAre("b", "c"));
  const auto d = queue.next();
  ASSERT_TRUE(d);
  EXPECT_EQ(queue.job(*d).id, "d");
  queue.finished(*d);
  EXPECT_TRUE(queue.done());
}

TEST(JobQueue, StartsNothingOnceStopped) {
  JobQueue queue({{"a", {}, 1, 1}, {"b", {}, 1, 1}}, 1);
  const auto a = queue.next();
  queue.stop();
  EXPECT_FALSE(queue.done()) << "a still runs";
  queue.finished(*a);
  EXPECT_FALSE(queue.next());
  EXPECT_TRUE(queue.done());
}

TEST(JobQueue, IsDoneWithNothingToDo) { EXPECT_TRUE(JobQueue({}, 4).done()); }

TEST(JobQueueDeathTest, RefusesCircles) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(JobQueue({{"a", {"b"}, 1, 1}, {"b", {"a"}, 1, 1}}, 1), "circle");
}

// Jobs drawn from a seed, and a clock that runs them through a queue.

/// Widths 1 to 8, durations log-normal (sigma 1); every `chained`-th job (0: none) reads one drawn before it.
std::vector<Job> drawn_jobs(std::size_t count, uint64_t seed, std::size_t chained = 0) {
  std::mt19937_64 engine(seed);
  const auto uniform = [&] { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; };
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < count; ++i) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    Job job;
    job.id = "job " + std::to_string(i);
    job.estimate_s = std::exp(normal);
    job.slots = 1 + static_cast<int>(engine() % 8);
    if (chained > 0 && i > 0 && i % chained == 0) job.needs = {"job " + std::to_string(engine() % i)};
    jobs.push_back(std::move(job));
  }
  return jobs;
}

/// When the last job ends if each takes as long as `duration` says.
double run_through(JobQueue queue, const std::function<double(const Job&)>& duration) {
  using End = std::pair<double, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  double now = 0;
  while (!queue.done()) {
    while (const auto job = queue.next()) ends.emplace(now + duration(queue.job(*job)), *job);
    now = ends.top().first;
    queue.finished(ends.top().second);
    ends.pop();
  }
  return now;
}

/// The jobs as their order sees them.
std::vector<JobShape> shapes_of(const std::vector<Job>& jobs, int slots) {
  std::vector<JobShape> shapes;
  for (const Job& job : jobs) shapes.push_back({job.estimate_s, std::min(job.slots, slots), 0, {}});
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    for (const std::string& need : jobs[i].needs) {
      shapes[static_cast<std::size_t>(std::stoul(need.substr(4)))].needed_by.push_back(i);
      ++shapes[i].needs;
    }
  }
  return shapes;
}

constexpr int kDraws = 100;

const auto as_estimated = [](const Job& job) { return job.estimate_s; };

class Makespan : public testing::TestWithParam<int> {};

TEST_P(Makespan, IsWithinThreeInAHundredOfTheLowerBound) {
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<Job> jobs = drawn_jobs(200, seed);
    const double ratio = run_through(JobQueue(jobs, GetParam()), as_estimated) /
                         makespan_bound(shapes_of(jobs, GetParam()), GetParam());
    EXPECT_LE(ratio, 1.03) << "seed " << seed;
    EXPECT_GE(ratio, 1 - 1e-9) << "seed " << seed << ": the bound is none";
  }
}

TEST_P(Makespan, IsSoOnAverageWhereJobsReadOthers) {
  double sum = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<Job> jobs = drawn_jobs(200, seed, 3);
    const double ratio = run_through(JobQueue(jobs, GetParam()), as_estimated) /
                         makespan_bound(shapes_of(jobs, GetParam()), GetParam());
    // The bound knows chains and widths, and not what they cost together.
    EXPECT_LE(ratio, 1.06) << "seed " << seed;
    sum += ratio;
  }
  EXPECT_LE(sum / kDraws, 1.015);
}

// Estimates are never right: with each off by up to a quarter the order must not fall apart.
TEST_P(Makespan, SuffersLittleFromWrongEstimates) {
  double worst = 0, sum = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<Job> jobs = drawn_jobs(200, seed);
    std::vector<Job> taken = jobs;
    std::mt19937_64 engine(seed);
    for (Job& job : taken) job.estimate_s *= 0.75 + 0.5 * static_cast<double>(engine() >> 11) * 0x1p-53;
    const auto as_taken = [&](const Job& job) {
      return taken[static_cast<std::size_t>(std::stoul(job.id.substr(4)))].estimate_s;
    };
    const double ratio = run_through(JobQueue(jobs, GetParam()), as_taken) /
                         makespan_bound(shapes_of(taken, GetParam()), GetParam());
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(sum / kDraws, 1.03);
  EXPECT_LE(worst, 1.1);
}

INSTANTIATE_TEST_SUITE_P(Slots, Makespan, testing::Values(2, 8, 16));

TEST(MakespanBound, IsReachedByNoOrderOfFewJobsFromBelow) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const std::vector<JobShape> jobs = shapes_of(drawn_jobs(6, seed, 4), 8);
    std::vector<std::size_t> order(jobs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    double best = simulated_makespan(jobs, 8, order);
    while (std::next_permutation(order.begin(), order.end())) {
      best = std::min(best, simulated_makespan(jobs, 8, order));
    }
    EXPECT_LE(makespan_bound(jobs, 8), best * (1 + 1e-12)) << "seed " << seed;
    EXPECT_LE(simulated_makespan(jobs, 8, job_order(jobs, 8)), best * 1.01) << "seed " << seed;
  }
}

TEST(MakespanBound, KnowsThatWideJobsDoNotFitBesideEachOther) {
  // Five of eight slots each: 10/8 by their area, and yet one after the other.
  EXPECT_DOUBLE_EQ(makespan_bound(std::vector<JobShape>{{1, 5, 0, {}}, {1, 5, 0, {}}}, 8), 2);
  EXPECT_DOUBLE_EQ(makespan_bound(std::vector<JobShape>{{3, 1, 0, {1}}, {4, 1, 1, {}}}, 8), 7);
}

TEST(JobOrder, IsTheSameForTheSameJobs) {
  const std::vector<JobShape> jobs = shapes_of(drawn_jobs(200, 7), 16);
  EXPECT_EQ(job_order(jobs, 16), job_order(jobs, 16));
}

TEST(JobOrder, TakesTheWidestFirstWhereThatEndsEarlier) {
  // Narrow ones first would leave the wide one alone at the end.
  const std::vector<JobShape> jobs = {{2, 1, 0, {}}, {2, 1, 0, {}}, {2, 1, 0, {}},
                                      {2, 1, 0, {}}, {1, 3, 0, {}}, {1, 3, 0, {}}};
  EXPECT_DOUBLE_EQ(simulated_makespan(jobs, 4, job_order(jobs, 4)), 4);
}

TEST(JobOrder, KnowsWhatWaits) {
  EXPECT_THAT(seconds_to_the_end(std::vector<JobShape>{{1, 1, 0, {1, 2}}, {2, 1, 1, {2}}, {3, 1, 2, {}}}),
              ElementsAre(6, 5, 3));
  EXPECT_TRUE(job_order({}, 4).empty());
}

PlannedRun a_run() {
  PlannedRun run;
  run.id = "1x24-global-s0";
  run.role = RunRole::reference;
  run.cell = "1x24 global";
  run.hash = config_hash(run.config);
  return run;
}

TEST(RunFolder, StatesTheConfigAndWhereItRan) {
  const TempFolder folder;
  ASSERT_EQ(::setenv("OMP_SCHEDULE", "static", 1), 0);
  prepare_run_folder(folder / "runs/a", a_run(), {"b", "2.13.0", "avx2", "d"});
  ::unsetenv("OMP_SCHEDULE");
  const auto json = nlohmann::json::parse(read_text(folder / "runs/a/run.json"));
  EXPECT_EQ(json.at("config"), nlohmann::json::parse(canonical_json(RunConfig{})));
  EXPECT_EQ(json.at("config_hash"), config_hash(RunConfig{}));
  EXPECT_EQ(json.at("role"), "reference");
  EXPECT_EQ(json.at("cell"), "1x24 global");
  const auto& facts = json.at("provenance");
  EXPECT_EQ(facts.at("build"), "b");
  EXPECT_EQ(facts.at("libtorch"), "2.13.0");
  EXPECT_EQ(facts.at("threads_per_rank"), "1");
  EXPECT_THAT(facts.at("bits_depend_on").get<std::string>(), testing::HasSubstr("threads_per_rank"));
  EXPECT_EQ(facts.at("env.OMP_SCHEDULE"), "static");
  EXPECT_FALSE(facts.at("started").get<std::string>().empty());
  for (const auto& [key, value] : facts.items()) EXPECT_TRUE(value.is_string()) << key;
}

TEST(RunFolder, RemovesWhatAnEarlierAttemptLeft) {
  const TempFolder folder;
  prepare_run_folder(folder / "runs/a", a_run(), {});
  write_text(folder / "runs/a/rank-7.trace", "old");
  prepare_run_folder(folder / "runs/a", a_run(), {});
  EXPECT_FALSE(std::filesystem::exists(folder / "runs/a/rank-7.trace"));
  EXPECT_TRUE(std::filesystem::exists(folder / "runs/a/run.json"));
}

TEST(RunFolder, KeepsCheckpointsTracesAndLogsOfARunThatGoesOn) {
  const TempFolder folder;
  const std::string dir = folder / "runs/a";
  PlannedRun run = a_run();
  run.config.checkpoint.every = 10;
  run.hash = config_hash(run.config);
  const BuildIdentity identity{"b", "2.13.0", "avx2", "d"};
  prepare_run_folder(dir, run, identity, "data");
  EXPECT_FALSE(goes_on(dir, run, identity, "data")) << "it has no checkpoint";
  std::filesystem::create_directories(dir + "/checkpoints/epoch_0_step_10");
  for (const char* name : {"rank-0.trace", "rank-0.log", "rank-0.result.json", "store", "rank-0.trace.new"})
    write_text(dir + "/" + name, "old");
  EXPECT_TRUE(goes_on(dir, run, identity, "data"));
  prepare_run_folder(dir, run, identity, "data");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre("checkpoints", "rank-0.trace", "rank-0.log", "run.json"));
}

TEST(RunFolder, IsMadeAnewWhereTheRunIsAnotherOneOrHasNoCheckpoints) {
  const TempFolder folder;
  const std::string dir = folder / "runs/a";
  PlannedRun run = a_run();
  run.config.checkpoint.every = 10;
  run.hash = config_hash(run.config);
  const BuildIdentity identity{"b", "2.13.0", "avx2", "d"};
  prepare_run_folder(dir, run, identity, "data");
  std::filesystem::create_directories(dir + "/checkpoints/epoch_0_step_10");
  EXPECT_FALSE(goes_on(dir, run, {"another program", "2.13.0", "avx2", "d"}, "data"));
  EXPECT_FALSE(goes_on(dir, run, identity, "other data"));
  PlannedRun other = run;
  other.hash = "another config";
  EXPECT_FALSE(goes_on(dir, other, identity, "data"));
  PlannedRun plain = run;
  plain.config.checkpoint = {};
  EXPECT_FALSE(goes_on(dir, plain, identity, "data"));
  write_text(dir + "/done", "it finished");
  EXPECT_FALSE(goes_on(dir, run, identity, "data"));
  std::filesystem::remove(dir + "/done");
  EXPECT_TRUE(goes_on(dir, run, identity, "data"));
  prepare_run_folder(dir, other, identity, "data");
  EXPECT_FALSE(std::filesystem::exists(dir + "/checkpoints"));
}

TEST(RunFolder, SaysWhichFolderCannotBeMade) {
  const TempFolder folder;
  write_text(folder / "runs", "a file");
  EXPECT_THAT([&] { prepare_run_folder(folder / "runs/a", a_run(), {}); },
              testing::ThrowsMessage<MachineError>(testing::HasSubstr(folder / "runs/a")));
}

TEST(RunFolder, IsEmptiedBeforeItsRunIsDescribed) {
  const TempFolder folder;
  support::FakeFiles files;
  prepare_run_folder(folder / "runs/a", a_run(), {}, "", files);
  files.operations.resize(9);
  // Each new folder's name is durable before anything is put into it.
  EXPECT_THAT(files.operations, ElementsAre("remove all a", "make a", "open folder", "sync folder", "close folder", "open folder", "sync folder",
                                            "close folder", "create run.json.tmp"));
}

TEST(RunFolder, SaysWhatCannotBeRemovedMadeOrWritten) {
  const TempFolder folder;
  const std::string dir = folder / "runs/a";
  std::filesystem::create_directories(dir);  // its folder is made anew each time
  const std::pair<std::size_t, std::string> wanted[] = {
      {0, dir + ": cannot remove what an earlier attempt left: Input/output error"},
      {1, dir + ": cannot be created: Input/output error"},
      {3, folder / "runs/" + ": cannot sync: Input/output error"},
      {5, dir + "/run.json: cannot create: Input/output error"},
      {7, dir + "/run.json: cannot sync: Input/output error"}};
  for (const auto& [at, said] : wanted) {
    support::FakeFiles files;
    files.fail(at, EIO);
    try {
      prepare_run_folder(dir, a_run(), {}, "", files);
      ADD_FAILURE() << "nothing was thrown: " << said;
    } catch (const MachineError& error) {
      EXPECT_EQ(error.what(), said);
    }
  }
}

// A run that is not marked is run again; a mark that says less than there is would be worse.
TEST(RunFolder, IsNotFinishedByAMarkThatCouldNotBeWritten) {
  const TempFolder folder;
  support::FakeFiles files;
  files.fail(1, ENOSPC);
  EXPECT_THROW(write_done(folder.path(), a_run(), {}, 1.5, files), MachineError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RunFolder, KeepsTheHashesThatDecideReuse) {
  const TempFolder folder;
  write_text(folder / "rank-0.trace", std::string(70000, '0'));
  write_text(folder / "rank-0.log", "not judged");
  write_done(folder.path(), a_run(), {"b", "t", "i", "d"}, 1.5);
  const auto json = nlohmann::json::parse(read_text(folder / "done"));
  EXPECT_EQ(json.at("config_hash"), config_hash(RunConfig{}));
  EXPECT_EQ(json.at("build"), "b");
  EXPECT_EQ(json.at("libtorch"), "t");
  EXPECT_EQ(json.at("isa"), "i");
  EXPECT_EQ(json.at("data"), "d");
  EXPECT_EQ(json.at("seconds"), 1.5);
  EXPECT_EQ(seal_problem(json), "");
  const auto& files = json.at("files");
  EXPECT_EQ(files.size(), 1U);
  EXPECT_EQ(files.at("rank-0.trace").at("bytes"), 70000);
  EXPECT_EQ(files.at("rank-0.trace").at("xxh3").size(), 2U);
}

TEST(RunFolder, SealsTheDescriptionOfTheRun) {
  const TempFolder folder;
  prepare_run_folder(folder / "runs/a", a_run(), {}, "da7a");
  std::string problem;
  const auto run = read_sealed(folder / "runs/a/run.json", problem);
  ASSERT_TRUE(run) << problem;
  EXPECT_EQ(run->at("data_hash"), "da7a");
  prepare_run_folder(folder / "runs/a", a_run(), {});
  EXPECT_FALSE(read_sealed(folder / "runs/a/run.json", problem)->contains("data_hash")) << "not known";
}

TEST(PlannedData, IsWhatRanksMustHaveRead) {
  EXPECT_NO_THROW(require_planned_data("a", "a", 2));
  EXPECT_NO_THROW(require_planned_data("", "b", 2)) << "a run that was not planned on any";
  EXPECT_THAT(
      [&] { require_planned_data("a", "b", 2); },
      testing::ThrowsMessage<MachineError>(testing::HasSubstr(
          "the data changed while the matrix ran: its hash was a when the runs were planned, and rank 2 read b")));
}

TEST(LastLines, GivesTheEndAndNoControlCharacters) {
  const TempFolder folder;
  write_text(folder / "log", "one\ntwo \x1b[31mred\nthree without an end");
  EXPECT_THAT(last_lines(folder / "log", 2), ElementsAre("two red", "three without an end"));
  EXPECT_THAT(last_lines(folder / "none", 2), ElementsAre());
  write_text(folder / "long", std::string(200000, 'x') + "\nend\n");
  const auto lines = last_lines(folder / "long", 20);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_LT(lines[0].size(), 500U);
  EXPECT_EQ(lines[1], "end");
}

TEST(Protocol, KeepsCommands) {
  ParentCommand start;
  start.op = ParentCommand::Op::start;
  start.run = "8x3 \"local\"\n";
  start.dir = "/out/runs/a";
  start.world_size = 8;
  start.processes = 8;
  start.command_started = 12.25;
  start.executed = true;
  const std::string line = to_line(start);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const ParentCommand read = command_from_line(line);
  EXPECT_EQ(read.run, start.run);
  EXPECT_EQ(read.dir, start.dir);
  EXPECT_EQ(read.processes, 8);
  EXPECT_TRUE(read.executed);
  EXPECT_EQ(read.command_started, 12.25);
  ParentCommand kill;
  kill.op = ParentCommand::Op::kill;
  kill.run = "a";
  kill.signal = 15;
  EXPECT_EQ(command_from_line(to_line(kill)).signal, 15);
  EXPECT_EQ(command_from_line(to_line(ParentCommand{})).op, ParentCommand::Op::quit);
}

TEST(Protocol, KeepsEvents) {
  const LauncherEvent started{LauncherEvent::Kind::started, "a", {4, 5, 6}, -1, 0, 0, {}};
  EXPECT_EQ(event_from_line(to_line(started)).pids, (std::vector<int>{4, 5, 6}));
  const LauncherEvent died{LauncherEvent::Kind::exit, "a", {}, 2, 0, 9, {}};
  EXPECT_EQ(event_from_line(to_line(died)).signal, 9);
  EXPECT_EQ(event_from_line(to_line(died)).rank, 2);
  const LauncherEvent left{LauncherEvent::Kind::exit, "a", {}, -1, 3, 0, {}};
  EXPECT_EQ(event_from_line(to_line(left)).code, 3);
  EXPECT_EQ(event_from_line(to_line(left)).rank, -1);
  const LauncherEvent refused{LauncherEvent::Kind::refused, "a", {}, -1, 0, 0, "fork: no\xff memory"};
  EXPECT_EQ(event_from_line(to_line(refused)).message.substr(0, 8), "fork: no");
  EXPECT_EQ(event_from_line(to_line(LauncherEvent{})).kind, LauncherEvent::Kind::ready);
}

TEST(Protocol, KeepsWhatARankOnAnotherHostReports) {
  HeartbeatNote note;
  note.step = 7;
  note.changes = 40;
  note.operation = "all_reduce grad";
  note.entered = {3, 9};
  note.resident_bytes = 1 << 20;
  note.shown = 5;
  note.process = {'T', "futex_wait"};
  note.times = {1.5, 0.25, 0.5};
  LauncherEvent event;
  event.kind = LauncherEvent::Kind::heartbeat;
  event.run = "a";
  event.rank = 2;
  event.heartbeat = note;
  ParentCommand command;
  command.op = ParentCommand::Op::heartbeat;
  command.run = "a";
  command.rank = 2;
  command.heartbeat = note;
  const LauncherEvent heard = event_from_line(to_line(event));
  EXPECT_EQ(heard.kind, LauncherEvent::Kind::heartbeat);
  EXPECT_EQ(command_from_line(to_line(command)).op, ParentCommand::Op::heartbeat);
  EXPECT_EQ(heard.rank, 2);
  EXPECT_EQ(command_from_line(to_line(command)).rank, 2);
  for (const HeartbeatNote& read : {heard.heartbeat, command_from_line(to_line(command)).heartbeat}) {
    EXPECT_EQ(read.step, 7);
    EXPECT_EQ(read.changes, 40U);
    EXPECT_EQ(read.operation, "all_reduce grad");
    EXPECT_EQ(read.entered, note.entered);
    EXPECT_EQ(read.resident_bytes, 1 << 20);
    EXPECT_EQ(read.shown, 5U);
    EXPECT_TRUE(read.process.stopped());
    EXPECT_EQ(read.times.without_core_s, 0.25);
    EXPECT_EQ(read.times.all_without_core_s, 0.5);
    EXPECT_EQ(read.process.waits_in, "futex_wait");
  }
  EXPECT_THROW(event_from_line(R"({"event":"beat","run":"a","rank":0,"step":1})"), std::runtime_error);
  LauncherEvent lost;
  lost.kind = LauncherEvent::Kind::node_lost;
  lost.message = "node n3 is gone";
  EXPECT_EQ(event_from_line(to_line(lost)).message, "node n3 is gone");
}

TEST(Protocol, RefusesWhatItDoesNotKnow) {
  for (const char* line :
       {"", "no json", "[1]", "{}", R"({"op":"jump"})", R"({"op":"start","run":"a"})",
        R"({"op":"kill","run":3,"signal":9})", R"({"op":"kill","run":"a","signal":"9"})",
        R"({"op":"start","run":"a","dir":"d","world":3,"processes":2,"executed":false,"command_started":0})",
        R"({"op":"start","run":"a","dir":"d","world":2,"processes":2,"executed":1,"command_started":0})"}) {
    EXPECT_THROW(command_from_line(line), std::runtime_error) << line;
  }
  for (const char* line :
       {"no json", "{}", R"({"event":"jump","run":"a"})", R"({"event":"exit","run":"a","rank":1})",
        R"({"event":"started","run":"a","pids":3})"}) {
    EXPECT_THROW(event_from_line(line), std::runtime_error) << line;
  }
}

TEST(LineSocket, JoinsAndPartsLines) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  LineSocket reader(ends[0]);
  EXPECT_TRUE(reader.receive());
  EXPECT_FALSE(reader.line());
  {
    LineSocket writer(ends[1]);
    EXPECT_TRUE(writer.send("one\ntw"));
    EXPECT_TRUE(reader.receive());
    EXPECT_EQ(reader.line(), "one");
    EXPECT_FALSE(reader.line());
    EXPECT_TRUE(writer.send("o\nthree\n"));
  }
  EXPECT_FALSE(reader.receive()) << "the writer has gone";
  EXPECT_EQ(reader.line(), "two");
  EXPECT_EQ(reader.line(), "three");
  EXPECT_FALSE(reader.send("anybody?\n"));
}

}  // namespace
}  // namespace lockstep
