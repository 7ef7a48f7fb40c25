#include "harness/resume/legs.h"

#include <fmt/format.h>

#include <mutex>

#include "harness/checkpoint/memory_storage.h"

namespace lockstep::resume {

LegsDone run_legs(const light::Config& config, const std::vector<Leg>& legs, double deadline_s) {
  LegsDone done;
  checkpoint::MemoryStorage disk;
  disk.put_folder("/run");
  std::mutex mutex;
  int64_t stands_at = 0;
  for (const Leg& leg : legs) {
    light::RunOptions options;
    options.config = config;
    options.root = "/run/checkpoints";
    options.until = leg.until;
    options.asynchronous = leg.asynchronous;
    options.deadline_s = deadline_s;
    done.ends.push_back(light::run_threads(options, leg.ranks, disk, [&](int rank, const light::StepRecord& record) {
      const std::lock_guard lock(mutex);
      std::vector<light::StepRecord>& ranks = done.steps[record.step];
      ranks.resize(static_cast<std::size_t>(leg.ranks));
      ranks[static_cast<std::size_t>(rank)] = record;
    }));
    for (const light::RunEnd& end : done.ends.back()) {
      if (end.problem.empty() && end.began_at == stands_at && end.ended_at == leg.until) continue;
      done.problem = !end.problem.empty() ? end.problem
                                          : fmt::format("a run that was to go from step {} to {} went from {} to {}",
                                                        stands_at, leg.until, end.began_at, end.ended_at);
      return done;
    }
    stands_at = leg.until;
  }
  return done;
}

int64_t first_difference(const Steps& expected, const Steps& seen, int64_t from, int64_t until) {
  for (int64_t step = from; step <= until; ++step) {
    const auto one = expected.find(step), other = seen.find(step);
    if (one == expected.end() || other == seen.end() || one->second.size() != other->second.size()) return step;
    for (std::size_t rank = 0; rank < one->second.size(); ++rank) {
      if (light::bits_of(one->second[rank]) != light::bits_of(other->second[rank])) return step;
    }
  }
  return -1;
}

std::vector<std::string> end_differences(const std::vector<light::RunEnd>& expected,
                                         const std::vector<light::RunEnd>& seen) {
  std::vector<std::string> all;
  if (expected.size() != seen.size())
    all.push_back(fmt::format("{} ranks expected, {} seen", expected.size(), seen.size()));
  for (std::size_t rank = 0; all.empty() && rank < expected.size(); ++rank) {
    for (const std::string& each : checkpoint::state_differences(expected[rank].state, seen[rank].state))
      all.push_back(fmt::format("rank {}: {}", rank, each));
  }
  return all;
}

light::TrainerState trainer_state_of(const light::RunEnd& end, const light::Config& config, int rank, int ranks) {
  light::Config plain = config;
  plain.planted = {};
  light::TrainerState now = light::initial_state(plain, rank, ranks);
  checkpoint::LoadOutcome held;
  held.state = end.state;
  // Whole, as every rank has them while it trains.
  light::from_checkpoint(held, plain, rank, ranks, now);
  return now;
}

}  // namespace lockstep::resume
