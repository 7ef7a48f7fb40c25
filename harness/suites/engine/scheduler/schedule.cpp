#include "harness/suites/engine/scheduler/schedule.h"

#include <algorithm>
#include <numeric>

namespace lockstep::scheduler {

std::vector<Family> families_of(int processes) {
  std::vector<Family> all;
  std::vector<int> order(static_cast<std::size_t>(processes));
  std::iota(order.begin(), order.end(), 0);
  const bool two = processes == 2;
  do {
    all.push_back({order, order[0], order[1], false, two});
    if (two) continue;
    all.push_back({order, order[0], order[1], true, false});
    all.push_back({order, order[1], order[2], false, false});
  } while (std::ranges::next_permutation(order).found);
  return all;
}

}  // namespace lockstep::scheduler
