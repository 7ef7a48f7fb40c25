#include "harness/suites/collectives/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lockstep::collectives {
namespace {

std::vector<Answer> answers_in(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json read = nlohmann::json::parse(file, nullptr, false);
  try {
    return read.is_array() ? read.get<std::vector<Answer>>() : std::vector<Answer>{};
  } catch (const nlohmann::json::exception&) {
    return {};  // a rank that was killed, or that wrote nonsense, gave no answer
  }
}

}  // namespace

Answers Ranks::play(const Order& order, double deadline_s) {
  const std::string dir = runs_.folder("run");
  RankRun asked;
  asked.world_size = order.world;
  asked.deadline_s = deadline_s;
  const EndedRun run = runs_.run(dir, {{"collectives", order}}, asked);
  Answers done;
  if (run.failure && !run.late) done.problem = run.failure->message + "; ";
  if (run.late) done.problem = fmt::format("ranks had not left after {:g} s; ", deadline_s);
  for (int rank = 0; rank < order.world; ++rank) {
    done.by_rank.push_back(answers_in(fmt::format("{}/rank-{}.collectives.json", dir, rank)));
    if (done.by_rank.back().size() != order.asks.size() && done.problem.empty()) done.problem = fmt::format("rank {} gave no answer; ", rank);
  }
  std::filesystem::remove_all(dir);
  return done;
}

}  // namespace lockstep::collectives
