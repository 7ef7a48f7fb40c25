#include "harness/restarts/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/base/atomic_file.h"
#include "harness/base/sealed_json.h"
#include "harness/config/canonical.h"
#include "harness/launch/run_folder.h"
#include "harness/launch/run_to_end.h"

namespace lockstep::restarts {
namespace {

namespace fs = std::filesystem;

constexpr double kLoad_s = 120;
/// From the first rank that failed to the SIGKILL of the others, as in lockstep's own launcher.
constexpr double kGrace_s = 1;

bool failed(const LauncherEvent& exit) { return exit.signal != 0 || (exit.code != 0 && exit.code < 128); }

/// What of an earlier attempt the next one must not meet; the rest is what it goes on from.
void clear_ends(const std::string& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool stays = name == "checkpoints" || name.ends_with(".trace") || name.ends_with(".log");
    if (!stays) fs::remove_all(entry.path());
  }
}

void write_run(const std::string& dir, const RunConfig& config, const Planted& planted) {
  nlohmann::json run = {{"config", nlohmann::json::parse(canonical_json(config))}};
  nlohmann::json& told = run["planted"] = nlohmann::json::object();
  if (planted.record) told["record"] = true;
  if (planted.rank >= 0) told.update({{"rank", planted.rank}, {"operation", planted.operation}, {"signal", planted.signal}});
  if (!planted.not_saved.empty()) told["not_saved"] = planted.not_saved;
  if (!planted.not_restored.empty()) told["not_restored"] = planted.not_restored;
  if (planted.unchecked) told["unchecked"] = true;
  if (!planted.mistake.empty()) told["mistake"] = planted.mistake;
  seal(run);
  write_file_atomically(dir + "/run.json", run.dump(2) + "\n");
}

}  // namespace

bool Ended::finished() const {
  return !hung && std::ranges::all_of(exits, [](const RankExit& exit) { return exit.code == 0 && exit.signal == 0; });
}

std::string Ended::in_words() const {
  std::string text = hung ? "hung" : "";
  for (const RankExit& exit : exits) {
    const std::string how =
        exit.signal != 0 ? fmt::format("killed by signal {}", exit.signal) : fmt::format("status {}", exit.code);
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", std::max(exit.rank, 0), how);
  }
  return text;
}

int64_t Going::most_steps() const {
  int64_t most = -1;
  for (int rank = 0; rank < beats.world_size(); ++rank) most = std::max(most, beats.step(rank));
  return most;
}

int64_t Going::fewest_steps() const {
  int64_t fewest = beats.step(0);
  for (int rank = 1; rank < beats.world_size(); ++rank) fewest = std::min(fewest, beats.step(rank));
  return fewest;
}

bool Going::all_began() const { return fewest_steps() >= 0; }

Bench::Bench(std::string rank_program, std::string work, double deadline_s, const volatile int* stop_requested)
    : rank_program_(std::move(rank_program)),
      work_(std::move(work)),
      deadline_s_(deadline_s),
      stop_requested_(stop_requested) {
  fs::remove_all(work_);
  fs::create_directories(work_);
}

std::string Bench::empty(const std::string& name) {
  std::string dir = work_ + "/" + name;
  fs::remove_all(dir);
  fs::create_directories(dir);
  return dir;
}

std::string Bench::copy(const std::string& from, const std::string& name) {
  std::string dir = empty(name);
  fs::copy(from, dir, fs::copy_options::recursive);
  return dir;
}

Ended Bench::attempt(const std::string& dir, const RunConfig& config, const Planted& planted, const Disturb& disturb) {
  clear_ends(dir);
  write_run(dir, config, planted);
  const int world = config.layout.world_size, processes = processes_of(config);
  const BeatFile beats = BeatFile::create(dir + "/beat", world);
  const bool loads = launcher_ == nullptr;
  if (loads) launcher_ = std::make_unique<LocalLauncher>(rank_program_);
  const std::string id = fmt::format("attempt-{}", ++attempts_);
  double rest_until_s = std::numeric_limits<double>::infinity();
  std::size_t looked = 0;
  const auto look = [&](const RunGoing& going) {
    for (; looked < going.exits.size(); ++looked) {
      if (failed(going.exits[looked])) rest_until_s = std::min(rest_until_s, going.since_started_s + kGrace_s);
    }
    if (disturb && !going.pids.empty() && going.exits.empty()) {
      disturb({beats, going.pids, going.since_started_s, [&](int signal) { launcher_->stop(id, signal); }});
    }
    return going.since_started_s > rest_until_s;
  };
  const RunEnded run = run_to_end(*launcher_, {id, dir, world, processes, 0, false},
                                  {deadline_s_, loads ? kLoad_s : 0, stop_requested_}, look);
  Ended ended{{}, run.late, run.seconds};
  for (const LauncherEvent& exit : run.exits) ended.exits.push_back({exit.rank, exit.code, exit.signal});
  return ended;
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
