#include "reports/plots/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double kLargestEnd = 8e307;       ///< twice that is still a number
constexpr double kLeastHeight = 1e-9;       ///< of an axis, against the larger of its ends
constexpr double kSmallestHeight = 1e-290;  ///< a power of ten below it has lost digits
constexpr double kMostTicks = 100;          ///< more than any axis is asked for

Ticks multiples(double low, double high, double step) {
  Ticks ticks;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  // Counted as a whole number: where steps are finer than the places of `first`, adding 1 to it changes
  // nothing.
  const auto count = static_cast<int>(std::clamp(last - first + 1, 0.0, kMostTicks));
  for (int i = 0; i < count; ++i) {
    const double multiple = first + i;
    ticks.values.push_back(multiple == 0 ? 0.0 : multiple * step);
  }
  while (ticks.decimals < 12) {
    const double shifted = step * std::pow(10.0, ticks.decimals);
    if (std::abs(shifted - std::round(shifted)) < 1e-6 * shifted) break;
    ++ticks.decimals;
  }
  const double largest = std::max(std::abs(low), std::abs(high));
  ticks.digits = std::clamp(static_cast<int>(std::ceil(std::log10(largest / step))) + 2, 6, 17);
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

double least_height(double low, double high) {
  return std::max(kLeastHeight * std::max(std::abs(low), std::abs(high)), kSmallestHeight);
}

}  // namespace

AxisRange drawable(double low, double high) {
  if (std::isnan(low) || std::isnan(high)) return {};
  low = std::clamp(low, -kLargestEnd, kLargestEnd);
  high = std::clamp(high, -kLargestEnd, kLargestEnd);
  if (!(high > low)) high = low + 1;
  const double least = least_height(low, high);
  if (high - low >= least) return {low, high};
  const double middle = low + (high - low) / 2;
  // Twice what is needed, since sums round; the larger end may not leave the largest that there is.
  return {std::max(middle - least, -kLargestEnd), std::min(middle + least, kLargestEnd)};
}

Ticks nice_ticks(double low, double high, int most) {
  if (!(std::isfinite(low) && std::isfinite(high) && high > low)) return {};
  low = std::clamp(low, -kLargestEnd, kLargestEnd);
  high = std::clamp(high, -kLargestEnd, kLargestEnd);
  if (!(high - low >= 0.5 * least_height(low, high))) return {{low, high}, 12, 17};
  return multiples(low, high, nice_step(low, high, most, 1e-300));
}

Ticks step_ticks(double high, int most) {
  if (!(std::isfinite(high) && high > 0)) return {{0}, 0};
  return multiples(0, high, nice_step(0, high, most, 1));
}

std::string tick_text(double value, const Ticks& ticks) {
  return std::abs(value) >= 1e5 || ticks.decimals > 5 ? fmt::format("{:.{}g}", value, ticks.digits)
                                                      : fmt::format("{:.{}f}", value, ticks.decimals);
}

}  // namespace lockstep
