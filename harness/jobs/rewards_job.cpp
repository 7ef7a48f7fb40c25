#include "harness/jobs/jobs.h"

#include <unistd.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/base/errors.h"
#include "harness/jobs/orders/rewards/order.h"
#include "harness/run/watch.h"
#include "harness/trainers/comm/gloo.h"

namespace lockstep {
namespace {

constexpr double kMeet_s = 60;

[[noreturn]] void misbehave(rewards::FaultKind fault) {
  if (fault == rewards::FaultKind::rank_ends) ::raise(SIGKILL);
  // Alive, and silent: sockets stay open.
  for (;;) ::pause();
}

}  // namespace

int rewards_job(const RankTask& task, const nlohmann::json& run) {
  const nlohmann::json& reward_cases = run.at("reward_cases");
  const std::string& run_dir = task.run_dir;
  const int rank = std::max(task.rank, 0);
  at::set_num_threads(1);
  const rewards::CaseRules rules = rewards::rules_from_json(reward_cases.at("rules"));
  HeartbeatFile heartbeats = HeartbeatFile::open(run_dir + "/" + task.heartbeats, rules.world);
  int64_t played = 0;
  bool silence = false;
  PeerSigns signs;
  signs.count = [&] {
    uint64_t sum = 0;
    for (int other = 0; other < rules.world; ++other) {
      if (other != rank) sum += heartbeats.changes(other);
    }
    return sum;
  };
  signs.report = [&] { heartbeats.report(rank, played, "rewards"); };
  const GlooOptions options{run_dir + "/store", rank, rules.world, "127.0.0.1", kMeet_s};
  const std::unique_ptr<checkpoint::Group> group = std::move(make_gloo_groups(options, {"rewards"}, signs).front());
  std::ofstream answers(run_dir + "/rank-" + std::to_string(rank) + ".answers");
  for (const nlohmann::json& each : reward_cases.at("orders")) {
    const rewards::Order order = rewards::order_from_json(each);
    const rewards::Case one = rewards::case_of(rules, order);
    const rewards::Played done = rewards::play(one, {rewards::plant_of(rules, order), misbehave}, *group);
    answers << rewards::to_text(rewards::answer_of(done)) << std::endl;
    ++played;
    silence = done.failure.code == "rank-silent";
  }
  // Who gives up first and ends would be mistaken for a rank that ended by those who still wait for the silent one.
  if (silence) std::promise<void>().get_future().wait_for(std::chrono::duration<double>(rules.deadline_s));
  answers.close();
  if (!answers) throw MachineError(run_dir + ": the answers cannot be written");
  // A function that hangs has a thread of its own, which nobody waits for.
  end_rank(task, rules.world);
}

}  // namespace lockstep
