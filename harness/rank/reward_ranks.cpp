#include "harness/rank/reward_ranks.h"

#include <unistd.h>

#include <ATen/Parallel.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/comm/gloo_group.h"
#include "harness/launch/beat.h"
#include "harness/reward_cases/order.h"

namespace lockstep {
namespace {

constexpr double kMeet_s = 60;

[[noreturn]] void misbehave(rewards::FaultKind fault) {
  if (fault == rewards::FaultKind::rank_ends) ::raise(SIGKILL);
  // Alive, and silent: sockets stay open.
  for (;;) ::pause();
}

}  // namespace

int play_reward_cases(const std::string& run_dir, int rank, const nlohmann::json& reward_cases) {
  try {
    at::set_num_threads(1);
    const rewards::CaseRules rules = rewards::rules_from_json(reward_cases.at("rules"));
    BeatFile beats = BeatFile::open(run_dir + "/beat", rules.world);
    int64_t played = 0;
    bool silence = false;
    PeerSigns signs;
    signs.count = [&] {
      uint64_t sum = 0;
      for (int other = 0; other < rules.world; ++other) {
        if (other != rank) sum += beats.changes(other);
      }
      return sum;
    };
    signs.report = [&] { beats.report(rank, played, "rewards"); };
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
    // Who gives up first and ends would be taken for a rank that ended by those who still wait for the silent one.
    if (silence) std::promise<void>().get_future().wait_for(std::chrono::duration<double>(rules.deadline_s));
    answers.close();
    // A function that hangs has a thread of its own, which nobody waits for.
    if (!answers) return 1;
    std::fflush(nullptr);
    ::_exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d failed: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace lockstep
