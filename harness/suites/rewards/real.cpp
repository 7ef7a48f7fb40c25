#include "harness/suites/rewards/real.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>


namespace lockstep::rewards {
namespace {

namespace fs = std::filesystem;

nlohmann::json run_json(const CaseRules& rules, const std::vector<Order>& orders) {
  nlohmann::json list = nlohmann::json::array();
  for (const Order& order : orders) list.push_back(to_json(order));
  return {{"reward_cases", {{"rules", to_json(rules)}, {"orders", std::move(list)}}}};
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

RealAnswers RealRanks::play(const CaseRules& rules, const std::vector<Order>& orders, double deadline_s, int stays) {
  const auto world = static_cast<std::size_t>(rules.world);
  const std::string dir = runs_.folder("run");
  const auto only_the_silent = [&](std::size_t left) { return stays >= 0 && left + 1 == world; };
  RankRun asked;
  asked.world_size = rules.world;
  asked.failure_grace_s = asked.deadline_s = deadline_s;  // ranks go on by themselves when one of them ends
  const Case one = case_of(rules, orders.front());
  asked.kills = [&](int rank) { return one.fault == FaultKind::rank_ends && rank == one.fault_rank; };
  RunHooks hooks;
  hooks.on_look = [&](const OngoingRun& run) { return only_the_silent(run.ends.size()); };
  const EndedRun run = runs_.run(dir, run_json(rules, orders), asked, std::move(hooks));
  RealAnswers done;
  for (const RankEnd& end : run.ends) {
    if (end.code != 0 && end.signal == 0) done.problem += fmt::format("rank {} ended with status {}; ", std::max(end.rank, 0), end.code);
  }
  if (run.late && !only_the_silent(run.left_before_kill))
    done.problem += fmt::format("{} of {} ranks had not left after {:g} s; ", world - run.left_before_kill, rules.world, deadline_s);
  done.seconds = run.seconds;
  for (int rank = 0; rank < rules.world; ++rank)
    done.by_rank.push_back(answers_in(fmt::format("{}/rank-{}.answers", dir, rank)));
  fs::remove_all(dir);
  return done;
}

}  // namespace lockstep::rewards
