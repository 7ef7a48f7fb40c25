#include "harness/collectives/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/base/sealed_json.h"
#include "harness/launch/beat.h"
#include "harness/launch/run_to_end.h"

namespace lockstep::collectives {

namespace fs = std::filesystem;

namespace {

constexpr double kLoad_s = 120;

std::vector<Answer> answers_in(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json read = nlohmann::json::parse(file, nullptr, false);
  return read.is_array() ? read.get<std::vector<Answer>>() : std::vector<Answer>{};
}

}  // namespace

Ranks::Ranks(std::string rank_program, std::string work, const volatile int* stop_requested)
    : rank_program_(std::move(rank_program)), work_(std::move(work)), stop_requested_(stop_requested) {
  fs::remove_all(work_);
  fs::create_directories(work_);
}

Answers Ranks::play(const Order& order, double deadline_s) {
  const std::string id = fmt::format("collectives-{}", ++runs_), dir = work_ + "/" + id;
  fs::create_directories(dir);
  nlohmann::json run = {{"collectives", order}};
  seal(run);
  write_file_atomically(dir + "/run.json", run.dump() + "\n");
  const BeatFile beats = BeatFile::create(dir + "/beat", order.world);
  const bool loads = launcher_ == nullptr;
  if (loads) launcher_ = std::make_unique<LocalLauncher>(rank_program_);
  const RunEnded ended = run_to_end(*launcher_, {id, dir, order.world, order.world, 0, false}, {deadline_s, loads ? kLoad_s : 0, stop_requested_},
                                    [](const RunGoing&) { return false; });
  Answers done;
  for (const LauncherEvent& exit : ended.exits) {
    if (exit.code != 0 || (exit.signal != 0 && !ended.killed))
      done.problem += fmt::format("rank {} ended with status {}, signal {}; ", std::max(exit.rank, 0), exit.code, exit.signal);
  }
  if (ended.late) done.problem += fmt::format("ranks had not left after {:g} s; ", deadline_s);
  for (int rank = 0; rank < order.world; ++rank) {
    done.by_rank.push_back(answers_in(fmt::format("{}/rank-{}.collectives.json", dir, rank)));
    if (done.by_rank.back().size() != order.asks.size() && done.problem.empty()) done.problem = fmt::format("rank {} gave no answer; ", rank);
  }
  fs::remove_all(dir);
  return done;
}

}  // namespace lockstep::collectives
