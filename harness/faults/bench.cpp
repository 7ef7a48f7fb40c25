#include "harness/faults/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/base/atomic_file.h"
#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/base/sealed_json.h"
#include "harness/faults/sweep.h"
#include "harness/flight/dump.h"
#include "harness/flight/judge.h"
#include "harness/launch/priority.h"
#include "harness/launch/run_folder.h"

namespace lockstep::faults {
namespace {

namespace fs = std::filesystem;

constexpr double kLoad_s = 120, kNever = std::numeric_limits<double>::infinity();
/// As in lockstep's own launch: from a failure, and from the word on a hung rank, to the SIGKILL of the rest.
constexpr double kGrace_s = 1, kTold_s = 1, kLastWord_s = 0.25;
/// Before the first step LibTorch's threads, Gloo's connections and the roll call take their time; the kind that hangs there
/// has a threshold of its own.
double load_s(const Order& order) {
  return order.kind == "blocked_in_store" || order.kind == "half_open" ? 4 * order.threshold_s : 10;
}

/// A run that ends by itself may have so many steps that they take longer than any fault.
double long_run_s(const Order& order) {
  constexpr double kStep_s = 0.2;  // on a machine with other work, stragglers and all
  constexpr int64_t kMost = 100'000;
  return order.steps <= kMost ? kStep_s * static_cast<double>(order.steps) : 0;
}

/// The step of the file that the rank saved last; -1: none.
int64_t saved_in(const std::string& dir, int rank) {
  std::ifstream file(fmt::format("{}/state-{}", dir, rank), std::ios::binary);
  int64_t step = -1;
  file.read(reinterpret_cast<char*>(&step), sizeof step);
  return file ? step : -1;
}

double time_in(const std::string& path) {
  std::ifstream file(path);
  double seconds = 0;
  return file >> seconds ? seconds : 0;
}

RankResult result_in(const std::string& dir, int rank) {
  try {
    return read_rank_result(rank_result_path(dir, rank));
  } catch (const std::runtime_error&) {
    return {};  // none, or one that the rank died over: its end says so
  }
}

}  // namespace

bool Played::finished() const {
  return !late && std::ranges::all_of(results, [](const RankResult& result) { return result.status == "finished"; });
}

struct Bench::Round {
  std::string id, dir;
  const Order& order;
  Played played;
  BeatFile beats;
  HangWatch watch;
  RunEnds facts;
  std::vector<int> pids;
  double started_at, give_up_at, kill_at = kNever;
  bool started = false, killed = false;

  Round(std::string id_, std::string dir_, const Order& order_, double now)
      : id(std::move(id_)),
        dir(std::move(dir_)),
        order(order_),
        beats(BeatFile::create(dir + "/beat", order.world)),
        watch(order.world, {load_s(order), order.threshold_s, order.threshold_s, order.disk_threshold_s(), order.disk_threshold_s(), 0},
              now),
        started_at(now),
        give_up_at(now) {
    facts.run = id;
    facts.dir = dir;
    facts.world_size = order.world;
    facts.beat = &beats;
    played.ended_at.resize(static_cast<std::size_t>(order.world));
  }
};

Bench::Bench(Options options) : options_(std::move(options)) {
  fs::remove_all(options_.work);
  fs::create_directories(options_.work);
}

Played Bench::play(const Order& order, const Disturb& disturb) {
  if (!dir_.empty()) fs::remove_all(dir_);
  const std::string id = fmt::format("program-{}", ++rounds_);
  dir_ = options_.work + "/" + id;
  fs::create_directories(dir_);
  nlohmann::json run = {{"fault_case", to_json(order)}};
  seal(run);
  write_file_atomically(dir_ + "/run.json", run.dump() + "\n");
  const bool loads = launcher_ == nullptr;
  if (loads) launcher_ = std::make_unique<LocalLauncher>(options_.rank_program);
  const Before before = look_round();
  Round round(id, dir_, order, monotonic_s());
  round.give_up_at += options_.deadline_s + (loads ? kLoad_s : 0);
  launcher_->start({id, dir_, order.world, order.world, 0, false});
  const Urgent urgent;
  while (static_cast<int>(round.facts.ends.size()) < order.world) {
    take_events(round);
    if (round.started) look_after(round, disturb);
  }
  finish(round);
  round.played.left_behind = left_behind(before, round.pids.empty() ? 0 : round.pids.front(), dir_);
  return std::move(round.played);
}

void Bench::take_events(Round& round) {
  for (const LauncherEvent& event : launcher_->poll(round.watch.next_look_s(monotonic_s()))) {
    if (event.kind == LauncherEvent::Kind::ready || event.run != round.id) continue;
    if (event.kind == LauncherEvent::Kind::refused) throw MachineError("ranks cannot be started: " + event.message);
    const double now = monotonic_s();
    if (event.kind == LauncherEvent::Kind::started) {
      round.pids = event.pids;
      round.started = true;
      round.started_at = now;
      round.give_up_at = now + options_.deadline_s + long_run_s(round.order);
      round.watch.started(event.pids, now);
      continue;
    }
    const int rank = std::max(event.rank, 0);
    round.facts.ends.push_back({event.rank, event.code, event.signal, round.killed && event.signal == SIGKILL});
    round.played.ended_at[static_cast<std::size_t>(rank)] = now;
    round.watch.ended(rank);
    RunEnds one = round.facts;
    one.ends = {round.facts.ends.back()};
    const auto failure = name_failure(one);
    const bool only_it_is_left = round.played.alarm && static_cast<int>(round.facts.ends.size()) == round.order.world - 1;
    if (only_it_is_left) round.kill_at = std::min(round.kill_at, now + kLastWord_s);
    if (!failure || round.kill_at != kNever) continue;
    if (event.signal == 0 && event.code == 0) launcher_->tell(round.id, fmt::format("rank {} left: {}", rank, failure->message));
    round.played.failure_at = now;
    round.kill_at = now + kGrace_s;
  }
}

void Bench::look_after(Round& round, const Disturb& disturb) {
  if (round.killed) return;
  const double now = monotonic_s();
  Played& played = round.played;
  if (disturb) {
    if (played.acted_at == 0) played.acted_at = time_in(round.dir + "/acted");
    disturb({round.beats, round.pids, played.acted_at});
  }
  const auto stalled = options_.watches ? round.watch.look(round.beats, now) : std::nullopt;
  if (stalled && !played.alarm && round.facts.ends.empty()) {
    played.alarm = stalled;
    played.alarm_at = now;
    launcher_->tell(round.id, fmt::format("rank {} hangs: {}", stalled->standstill.rank, stalled->message));
    round.kill_at = now + kTold_s;
  } else if (stalled && !played.alarm && round.kill_at == kNever) {
    // Others have ended well: this one alone is left.
    played.alarm = stalled;
    played.alarm_at = now;
    round.kill_at = now;
  }
  played.late = played.late || (now > round.give_up_at && *options_.stop_requested == 0);
  if (now < round.kill_at && now < round.give_up_at && *options_.stop_requested == 0) return;
  round.killed = true;
  launcher_->stop(round.id, SIGKILL);
}

void Bench::finish(Round& round) {
  Played& played = round.played;
  played.seconds = monotonic_s() - round.started_at;
  played.ends = round.facts.ends;
  played.acted_at = time_in(round.dir + "/acted");
  for (int rank = 0; rank < round.order.world; ++rank) {
    played.results.push_back(result_in(round.dir, rank));
    played.error_at.push_back(time_in(fmt::format("{}/rank-{}.error", round.dir, rank)));
  }
  played.saved_step = saved_in(round.dir, 0);
  for (int rank = 1; rank < round.order.world; ++rank) played.saved_step = std::min(played.saved_step, saved_in(round.dir, rank));
  played.finished_steps = round.beats.step(0);
  for (int rank = 1; rank < round.order.world; ++rank) played.finished_steps = std::min(played.finished_steps, round.beats.step(rank));
  // As lockstep's own launch does it: of ranks that were killed while they wrote down how they ended.
  remove_left_temporaries(round.dir, [](std::string_view name) { return name.starts_with("rank-"); });
  played.failure = name_failure(round.facts);
  if (flight::write_records(round.dir, round.order.world) > 0)
    played.flight = flight::in_words(flight::judge(flight::read_records(round.dir + "/flight")));
}

std::vector<std::string> Bench::record_of(int rank) const {
  std::vector<std::string> lines;
  std::ifstream file(fmt::format("{}/rank-{}.record", dir_, rank));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::faults
