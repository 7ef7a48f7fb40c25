#pragma once
// Sums of floating-point numbers without rounding: no order of adding, and so no layout, can change them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// What of a sum's digits is in use: [lowest, end).
struct DigitRange {
  int64_t lowest = 0, end = 0;
  bool empty() const { return lowest >= end; }
  /// The smallest range that holds both.
  DigitRange with(const DigitRange& other) const;
};

/// One sum of numbers of one type an element, kept as digits of 40 bits in signed 64-bit integers (Kulisch's long
/// accumulator). Up to 2^22 numbers an element, on all ranks together, leave no digit's 64 bits: they are added
/// as integers, in any order and in any grouping, and rounded once.
class ExactSum {
 public:
  /// `dtype`: float32 or float64. Throws std::invalid_argument for others.
  ExactSum(int64_t elements, at::ScalarType dtype);

  int64_t elements() const { return elements_; }
  at::ScalarType dtype() const { return dtype_; }
  void clear();
  /// Elements [first, end) begin anew.
  void zero(int64_t first, int64_t end);

  /// Adds a contiguous tensor to the elements from `first` on. Its values must be finite: all_finite tells.
  void add(int64_t first, const at::Tensor& values);
  /// The same with a number: rounded to the sum's type first.
  void add(int64_t element, double value);

  DigitRange used() const { return used_; }
  /// All digits that a sum of that type has.
  static DigitRange whole(at::ScalarType dtype);
  /// Those digits, to be summed over ranks: [end - lowest, elements] int64.
  at::Tensor digits(const DigitRange& range) const;
  /// The inverse: replaces the sum by what these digits are.
  void set_digits(const DigitRange& range, const at::Tensor& digits);

  /// Writes the sums of the elements from `first` on into a contiguous tensor, each rounded once, to the nearest, ties to
  /// even; a sum of zeros is +0. Beyond the largest number it is infinite.
  void round_to(int64_t first, at::Tensor values) const;
  double rounded(int64_t element) const;

 private:
  template <typename Float>
  void add_values(int64_t first, const Float* values, int64_t count);
  template <typename Float>
  Float rounded_as(int64_t element) const;
  void round_few_digits(int64_t first, float* out, int64_t count) const;
  std::vector<int64_t>::iterator plane(int64_t digit) { return digits_.begin() + digit * elements_; }

  int64_t elements_;
  at::ScalarType dtype_;
  int64_t width_;               ///< digits of an element
  std::vector<int64_t> digits_;  ///< [width, elements]: numbers of like size touch the same few rows of memory
  DigitRange used_;
};

/// False if an element is infinite or no number.
bool all_finite(const at::Tensor& values);

}  // namespace lockstep
