#pragma once
// What most ranks say.

#include <algorithm>
#include <functional>

namespace lockstep {

/// The first of those that occur most often, in the view of `by`; `values` is not empty. Quadratic: for one value a rank.
template <class Range, class Projection = std::identity>
const auto& most_frequent(const Range& values, Projection by = {}) {
  const auto times = [&](const auto& value) { return std::ranges::count(values, std::invoke(by, value), by); };
  return *std::ranges::max_element(values, {}, times);
}

}  // namespace lockstep
