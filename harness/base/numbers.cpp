#include "harness/base/numbers.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

#include <fmt/format.h>

namespace lockstep {

std::string short_number(double value) { return fmt::format("{:.6g}", value); }

std::string exact_number(double value) { return fmt::format("{}", value); }

std::string expected_found(const std::string& expected, const std::string& actual) {
  double a = 0, b = 0;
  const auto whole = [](const std::string& text, double& number) {
    const char* end = text.data() + text.size();
    return std::from_chars(text.data(), end, number).ptr == end;
  };
  if (whole(expected, a) && whole(actual, b) && short_number(a) != short_number(b)) {
    return fmt::format("expected {}, found {}", short_number(a), short_number(b));
  }
  return fmt::format("expected {}, found {}", expected, actual);
}

double median_of_sorted(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return median_of_sorted(values);
}

namespace {

/// ln of a normal number x in (0, 1]: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh s by its
/// series in s = (m - 1) / (m + 1), |s| < 0.172; what the series leaves out is below 2^-56 of the sum.
inline double natural_log(double x) {
  constexpr int64_t kRootHalf = 0x3FE6A09E667F3BCD, kFraction = (int64_t{1} << 52) - 1;
  const int64_t above = std::bit_cast<int64_t>(x) - kRootHalf;
  const double exponent = static_cast<double>(static_cast<int32_t>(above >> 52));
  const double m = std::bit_cast<double>((above & kFraction) + kRootHalf);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double sum = 1.0 / 21.0;
  sum = sum * z + 1.0 / 19.0;
  sum = sum * z + 1.0 / 17.0;
  sum = sum * z + 1.0 / 15.0;
  sum = sum * z + 1.0 / 13.0;
  sum = sum * z + 1.0 / 11.0;
  sum = sum * z + 1.0 / 9.0;
  sum = sum * z + 1.0 / 7.0;
  sum = sum * z + 1.0 / 5.0;
  sum = sum * z + 1.0 / 3.0;
  return exponent * std::numbers::ln2 + 2.0 * (s + s * z * sum);
}

/// cos(2 pi turns) for turns in [0, 1): the nearest quarter turn is taken off, exactly, and what is left, at
/// most an eighth, goes into the series of the cosine or the sine.
inline double cosine_of_turns(double turns) {
  const auto quarter = static_cast<int32_t>(4.0 * turns + 0.5);
  const double x = 2.0 * std::numbers::pi * (turns - 0.25 * static_cast<double>(quarter)), z = x * x;
  double cosine = 1.0 / 6402373705728000.0;  // 18!, and so on
  cosine = 1.0 / 20922789888000.0 - z * cosine;
  cosine = 1.0 / 87178291200.0 - z * cosine;
  cosine = 1.0 / 479001600.0 - z * cosine;
  cosine = 1.0 / 3628800.0 - z * cosine;
  cosine = 1.0 / 40320.0 - z * cosine;
  cosine = 1.0 / 720.0 - z * cosine;
  cosine = 1.0 / 24.0 - z * cosine;
  cosine = 1.0 / 2.0 - z * cosine;
  cosine = 1.0 - z * cosine;
  double sine = 1.0 / 355687428096000.0;  // 17!, and so on
  sine = 1.0 / 1307674368000.0 - z * sine;
  sine = 1.0 / 6227020800.0 - z * sine;
  sine = 1.0 / 39916800.0 - z * sine;
  sine = 1.0 / 362880.0 - z * sine;
  sine = 1.0 / 5040.0 - z * sine;
  sine = 1.0 / 120.0 - z * sine;
  sine = 1.0 / 6.0 - z * sine;
  sine = x - x * z * sine;
  // Quarters 0 to 4: cos, -sin, -cos, sin, cos.
  const double value = (quarter & 1) != 0 ? sine : cosine;
  return quarter == 1 || quarter == 2 ? -value : value;
}

inline double normal(double radius, double angle) {
  return std::sqrt(-2.0 * natural_log(1.0 - radius)) * cosine_of_turns(angle);
}

}  // namespace

double standard_normal(double radius, double angle) { return normal(radius, angle); }

void fill_normal(std::span<const float> radius, std::span<const float> angle, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(normal(static_cast<double>(radius[i]), static_cast<double>(angle[i])));
  }
}

}  // namespace lockstep
