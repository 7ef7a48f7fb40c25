#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

// The middle of some values.

namespace lockstep {

/// Of an even number of values the mean of the two middle ones; NaN if there are none.
double median_of_sorted(std::span<const double> values);

/// The same of values in any order.
double median(std::vector<double> values);

// Normal draws in lockstep's own arithmetic.

/// A standard normal by Box and Muller (1958): sqrt(-2 ln(1 - radius)) * cos(2 pi angle), from two uniforms
/// in [0, 1) that are multiples of 2^-53. Its error is at most 4e-16 of the square root.
///
/// Sums, products, quotients and square roots alone, each rounded as IEEE 754 says: a library's logarithm and
/// cosine may give other bits on another processor, and MKL's may give other bits when several threads make
/// its first call at once.
double standard_normal(double radius, double angle);

/// out[i] = standard_normal(radius[i], angle[i]), rounded once to float32. All three have one size.
void fill_normal(std::span<const float> radius, std::span<const float> angle, std::span<float> out);

/// Are they the same bits? Two NaNs can be equal; 0 and -0 are not.
inline bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// Names of two doubles that are asked for everywhere.

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Numbers as texts; NaN and infinities as words.

/// Six digits, for reading.
std::string short_number(double value);

/// All digits that the double has.
std::string exact_number(double value);

/// "expected A, found B" for a sentence: numbers in six digits where six tell them apart, anything else as it
/// is.
std::string expected_found(const std::string& expected, const std::string& actual);

// What most ranks say.

/// The first of those that occur most often, in the view of `by`; `values` is not empty. Quadratic where none is held by
/// more than half: for one value a rank.
template <class Range, class Projection = std::identity>
const auto& most_frequent(const Range& values, Projection by = {}) {
  // What more than half say is left when each value is struck out against another one (Boyer and Moore 1991).
  auto most = std::ranges::begin(values);
  std::ptrdiff_t ahead = 0;
  for (auto at = most; at != std::ranges::end(values); ++at) {
    if (ahead == 0) most = at;
    ahead += std::invoke(by, *at) == std::invoke(by, *most) ? 1 : -1;
  }
  const auto times = [&](const auto& value) { return std::ranges::count(values, std::invoke(by, value), by); };
  if (2 * times(*most) > std::ranges::distance(values)) return *std::ranges::find(values, std::invoke(by, *most), by);
  return *std::ranges::max_element(values, {}, times);
}

// Draws that depend on a key and a counter alone, so that the same question gets the same bits everywhere.

/// SplitMix64 (Steele, Lea and Flood 2014) read at any place: draw i is a mix of key + (i + 1) * odd
/// constant.
class KeyedDraws {
 public:
  explicit KeyedDraws(uint64_t key) : key_(key) {}

  uint64_t bits(uint64_t counter) const {
    uint64_t z = key_ + (counter + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  /// In [0, count); count is below 2^32. The upper 32 bits are scaled: each value's share is off by at most
  /// count / 2^32.
  uint32_t below(uint64_t counter, uint32_t count) const {
    return static_cast<uint32_t>(((bits(counter) >> 32) * count) >> 32);
  }

 private:
  uint64_t key_;
};

}  // namespace lockstep
