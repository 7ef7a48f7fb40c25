#include "harness/suites/checkpoint/resume/segments.h"

#include <fmt/format.h>

#include <mutex>

#include "harness/lib/checkpoint/memory_storage.h"

namespace lockstep::resume {

SegmentsDone run_segments(const toy::Config& config, const std::vector<Segment>& segments, double deadline_s) {
  SegmentsDone done;
  checkpoint::MemoryStorage disk;
  disk.put_folder("/run");
  std::mutex mutex;
  int64_t stands_at = 0;
  for (const Segment& segment : segments) {
    toy::RunOptions options;
    options.config = config;
    options.root = "/run/checkpoints";
    options.until = segment.until;
    options.asynchronous = segment.asynchronous;
    options.deadline_s = deadline_s;
    done.ends.push_back(toy::run_threads(options, segment.ranks, disk, [&](int rank, const toy::StepRecord& record) {
      const std::lock_guard lock(mutex);
      std::vector<toy::StepRecord>& ranks = done.steps[record.step];
      ranks.resize(static_cast<std::size_t>(segment.ranks));
      ranks[static_cast<std::size_t>(rank)] = record;
    }));
    for (const toy::RunEnd& end : done.ends.back()) {
      if (end.problem.empty() && end.began_at == stands_at && end.ended_at == segment.until) continue;
      done.problem = !end.problem.empty() ? end.problem
                                          : fmt::format("a run that was to go from step {} to {} went from {} to {}",
                                                        stands_at, segment.until, end.began_at, end.ended_at);
      return done;
    }
    stands_at = segment.until;
  }
  return done;
}

int64_t first_difference(const Steps& expected, const Steps& seen, int64_t from, int64_t until) {
  for (int64_t step = from; step <= until; ++step) {
    const auto one = expected.find(step), other = seen.find(step);
    if (one == expected.end() || other == seen.end() || one->second.size() != other->second.size()) return step;
    for (std::size_t rank = 0; rank < one->second.size(); ++rank) {
      if (toy::bits_of(one->second[rank]) != toy::bits_of(other->second[rank])) return step;
    }
  }
  return -1;
}

std::vector<std::string> end_differences(const std::vector<toy::RunEnd>& expected,
                                         const std::vector<toy::RunEnd>& seen) {
  std::vector<std::string> all;
  if (expected.size() != seen.size())
    all.push_back(fmt::format("{} ranks expected, {} seen", expected.size(), seen.size()));
  for (std::size_t rank = 0; all.empty() && rank < expected.size(); ++rank) {
    for (const std::string& each : checkpoint::state_differences(expected[rank].state, seen[rank].state))
      all.push_back(fmt::format("rank {}: {}", rank, each));
  }
  return all;
}

toy::TrainerState trainer_state_of(const toy::RunEnd& end, const toy::Config& config, int rank, int ranks) {
  toy::Config plain = config;
  plain.planted = {};
  toy::TrainerState now = toy::initial_state(plain, rank, ranks);
  checkpoint::LoadOutcome held;
  held.state = end.state;
  // Whole, as every rank has them while it trains.
  toy::from_checkpoint(held, plain, rank, ranks, now);
  return now;
}

}  // namespace lockstep::resume
