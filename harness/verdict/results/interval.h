#pragma once
// A confidence interval.

namespace lockstep {

struct Interval {
  double low = 0, high = 0;
  double level = 0.95;
};

}  // namespace lockstep
