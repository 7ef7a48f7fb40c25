#pragma once

#include <string>

// A confidence interval.

namespace lockstep {

struct Interval {
  double low = 0, high = 0;
  double level = 0.95;
};

// Levels of intervals as people read them, the same in sentences and reports.

/// "95 %" of 0.95, "99.9 %" of 0.999.
std::string level_words(double level);

}  // namespace lockstep
