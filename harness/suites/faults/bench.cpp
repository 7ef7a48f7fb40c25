#include "harness/suites/faults/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/run/run_folder.h"
#include "harness/suites/faults/sweep.h"

namespace lockstep::faults {
namespace {

namespace fs = std::filesystem;

/// Before the first step LibTorch's threads, Gloo's connections and the preflight check take their time; the kind that hangs there
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
  return !run.late && std::ranges::all_of(results, [](const RankResult& result) { return result.status == "finished"; });
}

Bench::Bench(const Options& options) : options_(options), runs_(options.rank_program, options.work, options.stop_requested) {}

Played Bench::play(const Order& order, const Disturb& disturb) {
  if (!dir_.empty()) fs::remove_all(dir_);
  dir_ = runs_.folder(fmt::format("program-{}", ++rounds_));
  const Before before = look_round();
  RankRun asked;
  asked.world_size = order.world;
  if (options_.watches)
    asked.thresholds = {load_s(order), order.threshold_s, order.threshold_s, order.disk_threshold_s(), order.disk_threshold_s(), 0};
  asked.deadline_s = options_.deadline_s + long_run_s(order);
  // The program kills its own rank, where that is the fault, and another in its recovery; where there is no such program the suite does.
  const bool dies = order.kind.empty() || (order.wrong && order.kind.starts_with("kill"));
  asked.kills = [&](int rank) { return dies && (rank == order.rank || (order.kind == "killed_in_recovery" && rank == (order.rank + 1) % order.world)); };
  double acted_at = 0;
  std::vector<int> pids;
  RunHooks hooks;
  hooks.on_started = [&](const OngoingRun& run) { pids = run.pids; };
  hooks.on_look = [&](const OngoingRun& run) {
    if (!disturb) return false;
    if (acted_at == 0) acted_at = time_in(dir_ + "/acted");
    disturb({run.heartbeats, run.pids, acted_at});
    return false;
  };
  Played played;
  played.run = runs_.run(dir_, {{"fault_case", to_json(order)}}, asked, std::move(hooks));
  played.acted_at = time_in(dir_ + "/acted");
  std::vector<int64_t> saved, finished;
  for (int rank = 0; rank < order.world; ++rank) {
    played.results.push_back(result_in(dir_, rank));
    played.error_at.push_back(time_in(fmt::format("{}/rank-{}.error", dir_, rank)));
    saved.push_back(saved_in(dir_, rank));
    finished.push_back(played.run.heartbeats->step(rank));
  }
  played.saved_step = std::ranges::min(saved);
  played.finished_steps = std::ranges::min(finished);
  (void)flight_record(played.run);
  played.left_behind = left_behind(before, pids.empty() ? 0 : pids.front(), dir_);
  return played;
}

std::vector<std::string> Bench::record_of(int rank) const {
  std::vector<std::string> lines;
  std::ifstream file(fmt::format("{}/rank-{}.record", dir_, rank));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::faults
