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

/// The ends of an axis.
struct AxisRange {
  double low = 0, high = 1;
};

/// The nearest range that an axis can run over, which mostly is the one given. An empty one gets the height
/// 1; one whose ends are all but equal is widened about its middle, to a billionth of the larger of them, for
/// finer differences are lost in pixels and labels alike; ends so large that their distance is infinite are
/// moved closer. 0 to 1 if an end is not a number.
AxisRange drawable(double low, double high);

struct Ticks {
  std::vector<double> values;
  int decimals = 0;  ///< that all of them need
  int digits = 6;    ///< significant ones that tell them apart, at least 6
};

/// Round values within [low, high] in steps of 1, 2, 2.5 or 5 times a power of ten: at most `most` and one
/// more, at least 2. The two ends where the range is too narrow for that; none if it is empty or not finite.
Ticks nice_ticks(double low, double high, int most);

/// Round whole numbers within [0, high], for steps.
Ticks step_ticks(double high, int most);

/// One of the ticks' values in as many digits as tell it from the others.
std::string tick_text(double value, const Ticks& ticks);

}  // namespace lockstep
