#pragma once
// From values to places on an axis.

#include <string>
#include <vector>

namespace lockstep {

/// Maps [low, high] linearly to [from, to].
struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  double operator()(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

struct Ticks {
  std::vector<double> values;
  int decimals = 0;  ///< that all of them need
};

/// Round values within [low, high] in steps of 1, 2, 2.5 or 5 times a power of ten: at most `most`, at
/// least 2.
Ticks nice_ticks(double low, double high, int most);

/// Round whole numbers within [0, high], for steps.
Ticks step_ticks(double high, int most);

}  // namespace lockstep
