#include "harness/launch/watch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>

namespace lockstep {
namespace {

/// Operations in which a rank waits for others; in any other it is others that wait for it.
bool is_collective(const std::string& operation) {
  constexpr std::array<std::string_view, 5> kCollectives = {"all_reduce", "all_gather", "broadcast",
                                                            "barrier", "reduce_gradients"};
  return std::any_of(kCollectives.begin(), kCollectives.end(),
                     [&](std::string_view name) { return operation.rfind(name, 0) == 0; });
}

}  // namespace

RunWatch::RunWatch(int world_size, double now) : ranks_(static_cast<std::size_t>(world_size)) {
  for (Seen& seen : ranks_) seen.changed_at = now;
}

void RunWatch::look(const BeatFile& beat, double now) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const int rank = static_cast<int>(r);
    const uint64_t changes = beat.changes(rank);
    if (changes == ranks_[r].changes) continue;
    ranks_[r].changes = changes;
    ranks_[r].step = beat.step(rank);
    ranks_[r].operation = beat.operation(rank);
    ranks_[r].changed_at = now;
  }
}

void RunWatch::ended(int rank) { ranks_[static_cast<std::size_t>(rank)].ended = true; }

std::vector<const RunWatch::Seen*> RunWatch::slowest() const {
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (const Seen& seen : ranks_) {
    if (!seen.ended) lowest = std::min(lowest, seen.step);
  }
  std::vector<const Seen*> result;
  for (const Seen& seen : ranks_) {
    if (!seen.ended && seen.step == lowest) result.push_back(&seen);
  }
  return result;
}

double RunWatch::standstill_s(double now) const {
  double shortest = std::numeric_limits<double>::infinity();
  for (const Seen* seen : slowest()) shortest = std::min(shortest, now - seen->changed_at);
  return std::max(0.0, shortest);
}

double RunWatch::deadline(double limit_s) const {
  double latest = 0;
  for (const Seen* seen : slowest()) latest = std::max(latest, seen->changed_at);
  return latest + limit_s;
}

int RunWatch::behind() const {
  const std::vector<const Seen*> candidates = slowest();
  if (candidates.empty()) return -1;
  std::map<std::string, int> counts;
  for (const Seen* seen : candidates) ++counts[seen->operation];
  const auto key = [&](const Seen* seen) {
    return std::tuple(is_collective(seen->operation), counts[seen->operation], seen->changed_at);
  };
  const Seen* worst = *std::min_element(candidates.begin(), candidates.end(),
                                        [&](const Seen* a, const Seen* b) { return key(a) < key(b); });
  return static_cast<int>(worst - ranks_.data());
}

}  // namespace lockstep
