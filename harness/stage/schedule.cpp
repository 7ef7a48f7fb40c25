#include "harness/stage/schedule.h"

#include <algorithm>
#include <numeric>

namespace lockstep::stage {

std::vector<Family> families_of(int actors) {
  std::vector<Family> all;
  std::vector<int> order(static_cast<std::size_t>(actors));
  std::iota(order.begin(), order.end(), 0);
  const bool two = actors == 2;
  do {
    all.push_back({order, order[0], order[1], false, two});
    if (two) continue;
    all.push_back({order, order[0], order[1], true, false});
    all.push_back({order, order[1], order[2], false, false});
  } while (std::ranges::next_permutation(order).found);
  return all;
}

}  // namespace lockstep::stage
