#pragma once
// The middle of some values.

#include <span>
#include <vector>

namespace lockstep {

/// Of an even number of values the mean of the two middle ones; NaN if there are none.
double median_of_sorted(std::span<const double> values);

/// The same of values in any order.
double median(std::vector<double> values);

}  // namespace lockstep
