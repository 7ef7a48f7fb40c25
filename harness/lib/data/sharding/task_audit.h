#pragma once
// Was every task done once, by ranks that all had something to do, and in a time near the best?

#include "harness/lib/data/sharding/finding.h"
#include "harness/lib/data/sharding/tasks.h"

namespace lockstep::sharding {

/// What was seen of one round.
struct TaskRound {
  std::vector<Task> tasks;
  AssignOptions options;
  Assignment assigned;  ///< at the begin of the round
  struct Done {
    int rank = 0;
    Share share;
  };
  std::vector<Done> done;  ///< in order
  std::vector<int> dead;   ///< ranks that ended within the round
};

/// The best time in which the assignment's own shares can be done with `least` of them a rank, or a bound
/// below it.
struct BestFinish {
  double seconds = 0;
  bool exact = false;  ///< found by search; else no assignment is faster, and perhaps none as fast
};
/// Searches where there are at most 12 shares and that takes no more than `most_nodes` steps.
BestFinish best_finish(std::span<const Task> tasks, const AssignOptions& options, const Assignment& assigned,
                       int64_t most_nodes = 20000);

/// Greatest factor over the best that assign_tasks may need: 4/3 with one speed, 5/3 with several.
double allowed_factor(const AssignOptions& options);

/// The first of these:
///
///   empty_rank      a rank has nothing to do and leaves the others waiting at the first collective
///   task_twice      a share was done by two ranks, or twice
///   dead_rank_lost  what a dead rank had not done was done by nobody
///   task_lost       a share was done by nobody, and its rank lives
///   unbalanced      the last rank ends later than the allowed factor times what is possible: the best for
///   these shares, or what
///                   assign_tasks comes to
///   balance_unknown neither that nor the contrary can be shown
Finding audit_tasks(const TaskRound& round);

}  // namespace lockstep::sharding
