#pragma once
// Schedules of processes on a scheduler, tried by families: who stops and who goes on is fixed, where it stops is not.

#include <cstdint>
#include <vector>

#include "harness/suites/engine/scheduler/scheduler.h"

namespace lockstep::scheduler {

/// Who begins, and who is stopped where.
struct Schedule {
  std::vector<int> order;  ///< of processes
  std::vector<Preemption> preemptions = {};
};

/// All schedules in which one process stops at one operation.
struct Family {
  std::vector<int> order;
  int stops = 0, goes_on = 0;
  bool soon = false;
  bool doubles = false;  ///< also stop the other one, at each of its operations
};

/// Every order of the processes; the first of them stops for the second one; of three, the second one for the third as well.
std::vector<Family> families_of(int processes);

/// The single preemption before operation `at`, and all double ones that begin with it. `play` takes a schedule and returns
/// what came of it, which tells by `preempted` what took place; `each` takes the schedule, that, and whether it is a double
/// one, and returns false to end it. False: the process has no such operation.
template <class SharedRun, class Each>
bool play_family(const Family& family, int64_t at, SharedRun play, Each each) {
  const Schedule single{family.order, {{family.stops, at, family.goes_on, family.soon}}};
  const auto end = play(single);
  if (!end.preempted[0]) return false;
  if (!each(single, end, false) || !family.doubles) return true;
  for (int64_t other = 0;; ++other) {
    Schedule both = single;
    both.preemptions.push_back({family.goes_on, other, family.stops});
    const auto double_end = play(both);
    if (!double_end.preempted[1] || !each(both, double_end, true)) return true;
  }
}

}  // namespace lockstep::scheduler
