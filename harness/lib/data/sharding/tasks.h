#pragma once
// Tasks partitioned to ranks: each once, at least so many a rank, balanced by measured cost.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::sharding {

struct Task {
  std::string name;
  double cost_s = 1;     ///< measured, all of its episodes
  int64_t episodes = 1;  ///< that it can be cut into; each takes the same part of its cost
};

/// One part of a task; `parts` of them are the task.
struct Share {
  int task = 0;
  int64_t part = 0, parts = 1;
  bool operator==(const Share&) const = default;
};

struct AssignOptions {
  int ranks = 1;
  int least = 1;  ///< shares that every rank must get
};

/// Shares by rank.
using Assignment = std::vector<std::vector<Share>>;

/// Tasks are cut into episodes, the dearest first, where they are fewer than ranks times `least`, and as long
/// as the last rank ends later than 4/3 of the time that all ranks would need if work were a fluid. Then the
/// dearest share goes to the rank that would have done it first, and the last ones to ranks that have too
/// few. Where tasks cannot be cut any more and `least` is at most 1, ranks end within 4/3 - 1/(3 ranks) of the best for
/// these shares (Graham 1969). Throws ConfigError: no tasks, a cost that is not above 0, too few episodes to give every
/// rank its least.
Assignment assign_tasks(std::span<const Task> tasks, const AssignOptions& options);

/// Seconds until the last rank has done its shares.
double finish_s(std::span<const Task> tasks, const Assignment& assigned);

/// Seconds that no assignment can be faster than: all of the cost over all ranks.
double fluid_s(std::span<const Task> tasks, const AssignOptions& options);

}  // namespace lockstep::sharding
