#include "harness/reward_trials/real.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/base/sealed_json.h"
#include "harness/launch/beat.h"

namespace lockstep::rewards {
namespace {

namespace fs = std::filesystem;

constexpr double kLook_s = 0.002, kLoad_s = 120;

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
  launcher_->start({id, dir, rules.world, rules.world, 0, false});
  RealAnswers done;
  double started_s = monotonic_s(), give_up_s = started_s + deadline_s + (loads ? kLoad_s : 0);
  int ended = 0;
  bool killed = false;
  while (ended < rules.world) {
    for (const LauncherEvent& event : launcher_->poll(kLook_s)) {
      if (event.kind == LauncherEvent::Kind::ready || event.run != id) continue;
      if (event.kind == LauncherEvent::Kind::refused) throw MachineError("ranks cannot be started: " + event.message);
      if (event.kind == LauncherEvent::Kind::started) {
        started_s = monotonic_s();
        give_up_s = started_s + deadline_s;
      }
      if (event.kind != LauncherEvent::Kind::exit) continue;
      ++ended;
      if (event.code != 0 && event.signal == 0)
        done.problem += fmt::format("rank {} ended with status {}; ", std::max(event.rank, 0), event.code);
    }
    const bool only_the_silent = stays >= 0 && ended == rules.world - 1;
    const bool late = monotonic_s() > give_up_s;
    if (killed || !(only_the_silent || late || *stop_requested_ != 0)) continue;
    if (late && !only_the_silent)
      done.problem += fmt::format("{} of {} ranks had not left after {:g} s; ", rules.world - ended, rules.world, deadline_s);
    killed = true;
    launcher_->stop(id, SIGKILL);
  }
  done.seconds = monotonic_s() - started_s;
  for (int rank = 0; rank < rules.world; ++rank)
    done.by_rank.push_back(answers_in(fmt::format("{}/rank-{}.answers", dir, rank)));
  fs::remove_all(dir);
  return done;
}

}  // namespace lockstep::rewards
