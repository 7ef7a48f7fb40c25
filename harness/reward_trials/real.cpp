#include "harness/reward_trials/real.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/base/sealed_json.h"
#include "harness/launch/beat.h"
#include "harness/launch/run_to_end.h"

namespace lockstep::rewards {
namespace {

namespace fs = std::filesystem;

constexpr double kLoad_s = 120;

void write_run(const std::string& dir, const CaseRules& rules, const std::vector<Order>& orders) {
  nlohmann::json list = nlohmann::json::array();
  for (const Order& order : orders) list.push_back(to_json(order));
  nlohmann::json run = {{"reward_cases", {{"rules", to_json(rules)}, {"orders", std::move(list)}}}};
  seal(run);
  write_file_atomically(dir + "/run.json", run.dump() + "\n");
}

std::vector<Answer> answers_in(const std::string& path) {
  std::vector<Answer> answers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // cut short by the rank's end
    answers.push_back(answer_from_text(line));
  }
  return answers;
}

}  // namespace

RealRanks::RealRanks(std::string rank_program, std::string work, const volatile int* stop_requested)
    : rank_program_(std::move(rank_program)), work_(std::move(work)), stop_requested_(stop_requested) {
  fs::remove_all(work_);
  fs::create_directories(work_);
}

RealAnswers RealRanks::play(const CaseRules& rules, const std::vector<Order>& orders, double deadline_s, int stays) {
  const std::string id = fmt::format("cases-{}", ++runs_), dir = work_ + "/" + id;
  fs::create_directories(dir);
  write_run(dir, rules, orders);
  const BeatFile beats = BeatFile::create(dir + "/beat", rules.world);
  const bool loads = launcher_ == nullptr;
  if (loads) launcher_ = std::make_unique<LocalLauncher>(rank_program_);
  const auto only_the_silent = [&](std::size_t left) { return stays >= 0 && left + 1 == static_cast<std::size_t>(rules.world); };
  const RunEnded ended = run_to_end(*launcher_, {id, dir, rules.world, rules.world, 0, false},
                                    {deadline_s, loads ? kLoad_s : 0, stop_requested_},
                                    [&](const RunGoing& going) { return only_the_silent(going.exits.size()); });
  RealAnswers done;
  for (const LauncherEvent& exit : ended.exits) {
    if (exit.code != 0 && exit.signal == 0)
      done.problem += fmt::format("rank {} ended with status {}; ", std::max(exit.rank, 0), exit.code);
  }
  if (ended.late && !only_the_silent(ended.left_before_kill)) {
    done.problem += fmt::format("{} of {} ranks had not left after {:g} s; ",
                                static_cast<std::size_t>(rules.world) - ended.left_before_kill, rules.world, deadline_s);
  }
  done.seconds = ended.seconds;
  for (int rank = 0; rank < rules.world; ++rank)
    done.by_rank.push_back(answers_in(fmt::format("{}/rank-{}.answers", dir, rank)));
  fs::remove_all(dir);
  return done;
}

}  // namespace lockstep::rewards
