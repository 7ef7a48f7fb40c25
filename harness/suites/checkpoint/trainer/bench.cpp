#include "harness/suites/checkpoint/trainer/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/run/run_folder.h"
#include "harness/verdict/config/canonical.h"

namespace lockstep::restarts {
namespace {

namespace fs = std::filesystem;

/// What of an earlier attempt the next one must not meet; the rest is what it goes on from.
void clear_ends(const std::string& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool stays = name == "checkpoints" || name.ends_with(".trace") || name.ends_with(".log");
    if (!stays) fs::remove_all(entry.path());
  }
}

nlohmann::json run_json(const RunConfig& config, const Planted& planted) {
  nlohmann::json run = {{"config", nlohmann::json::parse(canonical_json(config))}};
  nlohmann::json& told = run["planted"] = nlohmann::json::object();
  if (planted.record) told["record"] = true;
  if (planted.rank >= 0) told.update({{"rank", planted.rank}, {"operation", planted.operation}, {"signal", planted.signal}});
  if (!planted.not_saved.empty()) told["not_saved"] = planted.not_saved;
  if (!planted.not_restored.empty()) told["not_restored"] = planted.not_restored;
  if (planted.unchecked) told["unchecked"] = true;
  if (!planted.mistake.empty()) told["mistake"] = planted.mistake;
  return run;
}

}  // namespace

bool Ended::finished() const {
  return !hung && std::ranges::all_of(exits, [](const RankEnd& exit) { return exit.code == 0 && exit.signal == 0; });
}

std::string Ended::in_words() const {
  const std::string text = lockstep::in_words(exits);
  return hung ? "hung; " + text : text;
}

int64_t Going::most_steps() const {
  int64_t most = -1;
  for (int rank = 0; rank < heartbeats.world_size(); ++rank) most = std::max(most, heartbeats.step(rank));
  return most;
}

int64_t Going::fewest_steps() const {
  int64_t fewest = heartbeats.step(0);
  for (int rank = 1; rank < heartbeats.world_size(); ++rank) fewest = std::min(fewest, heartbeats.step(rank));
  return fewest;
}

bool Going::all_began() const { return fewest_steps() >= 0; }

Bench::Bench(std::string rank_program, std::string work, double deadline_s, const volatile int* stop_requested)
    : work_(std::move(work)), deadline_s_(deadline_s), runs_(std::move(rank_program), work_, stop_requested) {}

std::string Bench::empty(const std::string& name) { return runs_.folder(name); }

std::string Bench::copy(const std::string& from, const std::string& name) {
  std::string dir = empty(name);
  fs::copy(from, dir, fs::copy_options::recursive);
  return dir;
}

Ended Bench::attempt(const std::string& dir, const RunConfig& config, const Planted& planted, const Disturb& disturb) {
  constexpr double kHangGrace_s = 2;  // beyond the ranks' own timeout, as in `lockstep run`
  clear_ends(dir);
  RankRun asked;
  asked.world_size = config.layout.world_size;
  asked.processes = processes_of(config);
  asked.thresholds = thresholds_of(config.watch, config.timeout_s + kHangGrace_s, deadline_s_);
  asked.stop_grace_s = config.checkpoint.grace_s;
  asked.deadline_s = deadline_s_;
  int killed = planted.signal == SIGKILL ? planted.rank : -1;
  asked.kills = [&](int rank) { return rank == killed; };
  RunHooks hooks;
  hooks.on_look = [&](const OngoingRun& run) {
    const auto kill = [&](int rank) {
      killed = rank;
      ::kill(run.pids[static_cast<std::size_t>(rank)], SIGKILL);
    };
    if (disturb && run.ends.empty())
      disturb({run.heartbeats, run.pids, run.since_started_s, [&](int signal) { runs_.signal(signal); }, kill});
    return false;
  };
  EndedRun run = runs_.run(dir, run_json(config, planted), asked, std::move(hooks));
  return {std::move(run.ends), run.late || run.alarm.has_value(), run.seconds};
}

RankResult result_of(const std::string& dir, int rank) {
  if (!fs::exists(rank_result_path(dir, rank))) return {};
  try {
    return read_rank_result(rank_result_path(dir, rank));
  } catch (const std::runtime_error& error) {
    RankResult unread;
    unread.error = error.what();
    return unread;
  }
}

std::string trace_of(const std::string& dir, int rank) { return fmt::format("{}/rank-{}.trace", dir, rank); }

}  // namespace lockstep::restarts
