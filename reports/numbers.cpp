#include "reports/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/base/text.h"

namespace lockstep {
namespace {

std::string with_minus_sign(std::string text) {
  if (!text.empty() && text.front() == '-') text.replace(0, 1, "−");
  return text;
}

}  // namespace

int decimals_for(double unit) {
  if (!std::isfinite(unit) || unit <= 0) return 3;
  return std::clamp(1 - static_cast<int>(std::floor(std::log10(unit))), 0, 9);
}

std::string signed_number(double value, int decimals) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "+infinite" : "−infinite";
  if (std::abs(value) >= 1e7) return with_minus_sign(fmt::format("{:+.2e}", value));
  const double unit = std::pow(10.0, -decimals);
  if (std::abs(value) < unit / 2) value = 0.0;
  return with_minus_sign(fmt::format("{:+.{}f}", value, decimals));
}

std::string compact_number(double value) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "infinite" : "−infinite";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e6 || size < 1e-3) return with_minus_sign(fmt::format("{:.2e}", value));
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return with_minus_sign(fmt::format("{:.{}f}", value, std::clamp(4 - std::max(before, 1), 0, 3)));
}

std::string interval_words(const Interval& interval, int decimals) {
  if (std::isnan(interval.low) || std::isnan(interval.high)) return "not a number";
  return "[" + signed_number(interval.low, decimals) + ", " + signed_number(interval.high, decimals) + "]";
}

std::string figures_words(const Outcome& outcome, int decimals) {
  const MetricDifference& d = outcome.primary;
  const std::string mean = signed_number(d.mean, decimals);
  if (outcome.n < 2) return mean + ", one seed: no interval";
  return fmt::format("{}, {} interval {}, {}", mean, level_words(d.interval.level),
                     interval_words(d.interval, decimals), counted(outcome.n, "paired seed"));
}

std::string band_share(double band_used) {
  if (std::isnan(band_used)) return "not a number";
  if (std::isinf(band_used)) return "infinite ×";
  if (band_used <= 0) return "0";
  if (band_used < 0.01) return "< 1 %";
  if (band_used <= 1) return fmt::format("{:.0f} %", 100 * band_used);
  if (band_used < 10) return fmt::format("{:.1f} ×", band_used);
  if (band_used < 1e4) return fmt::format("{:.0f} ×", band_used);
  return fmt::format("{:.1e} ×", band_used);
}

std::string band_words(double band_used, std::string_view of) {
  if (band_used == 0) return fmt::format("0 % of {}", of);
  const bool is_part = band_used > 0 && band_used <= 1;
  return fmt::format("{} {}{}", band_share(band_used), is_part ? "of " : "", of);
}

std::string used_words(const Mechanism& mechanism) {
  return band_words(mechanism.band_used);
}

std::string probability_words(double p) {
  if (std::isnan(p)) return "not a number";
  if (p < 0.001) return p <= 0 ? "0" : "< 0.001";
  if (p > 0.999) return p >= 1 ? "1" : "> 0.999";
  return fmt::format("{:.{}f}", p, p < 0.1 || p > 0.99 ? 3 : 2);
}

std::string seeds_words(const std::vector<int64_t>& seeds) {
  std::string out;
  for (std::size_t i = 0; i < seeds.size();) {
    std::size_t last = i;
    while (last + 1 < seeds.size() && seeds[last + 1] == seeds[last] + 1) ++last;
    if (!out.empty()) out += ", ";
    out += std::to_string(seeds[i]);
    if (last == i + 1) out += ", " + std::to_string(seeds[last]);
    if (last > i + 1) out += "–" + std::to_string(seeds[last]);
    i = last + 1;
  }
  return out;
}

double share_of_band(const GradientSignature& signature) {
  if (signature.difference == 0) return 0;
  if (signature.band <= 0) return std::numeric_limits<double>::infinity();
  return signature.difference / signature.band;
}

}  // namespace lockstep
