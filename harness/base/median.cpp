#include "harness/base/median.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace lockstep {

double median_of_sorted(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return median_of_sorted(values);
}

}  // namespace lockstep
