#pragma once
// What most ranks say.

#include <algorithm>
#include <functional>

namespace lockstep {

/// The first of those that occur most often, in the view of `by`; `values` is not empty. Quadratic where none is held by
/// more than half: for one value a rank.
template <class Range, class Projection = std::identity>
const auto& most_frequent(const Range& values, Projection by = {}) {
  // What more than half say is left when each value is struck out against another one (Boyer and Moore 1991).
  auto most = std::ranges::begin(values);
  std::ptrdiff_t ahead = 0;
  for (auto at = most; at != std::ranges::end(values); ++at) {
    if (ahead == 0) most = at;
    ahead += std::invoke(by, *at) == std::invoke(by, *most) ? 1 : -1;
  }
  const auto times = [&](const auto& value) { return std::ranges::count(values, std::invoke(by, value), by); };
  if (2 * times(*most) > std::ranges::distance(values)) return *std::ranges::find(values, std::invoke(by, *most), by);
  return *std::ranges::max_element(values, {}, times);
}

}  // namespace lockstep
