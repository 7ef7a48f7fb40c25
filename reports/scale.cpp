#include "reports/scale.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

Ticks multiples(double low, double high, double step) {
  Ticks ticks;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double i = first; i <= last; ++i) ticks.values.push_back(i == 0 ? 0.0 : i * step);
  while (ticks.decimals < 12) {
    const double shifted = step * std::pow(10.0, ticks.decimals);
    if (std::abs(shifted - std::round(shifted)) < 1e-6 * shifted) break;
    ++ticks.decimals;
  }
  return ticks;
}

double nice_step(double low, double high, int most, double smallest) {
  const double raw = std::max((high - low) / std::max(1, most - 1), smallest);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    const double step = factor * power;
    if (step < raw * (1 - 1e-9)) continue;
    if (smallest >= 1 && step != std::floor(step)) continue;
    return step;
  }
  return 10 * power;
}

}  // namespace

Ticks nice_ticks(double low, double high, int most) {
  if (!(std::isfinite(low) && std::isfinite(high) && high > low)) return {};
  return multiples(low, high, nice_step(low, high, most, 1e-300));
}

Ticks step_ticks(double high, int most) {
  if (!(std::isfinite(high) && high > 0)) return {{0}, 0};
  return multiples(0, high, nice_step(0, high, most, 1));
}

}  // namespace lockstep
