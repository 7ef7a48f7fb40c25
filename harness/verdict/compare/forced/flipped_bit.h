#pragma once
// Which single bit of which value explains that one element of a gradient is wrong.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/compare/forced/values.h"

namespace lockstep {

struct FlippedBit {
  int rank = 0;
  std::string tensor;
  std::size_t element = 0;
  int bit = 0;
};

/// The element in which alone two tensors differ by more than `band` (the 2-norm of what rounding may
/// change), or nothing: equal within the band, or differing in more than one element.
std::optional<std::size_t> single_difference(const std::vector<double>& expected,
                                             const std::vector<double>& actual, double band);

/// A value with one bit of its representation (float32, or float64 if `wide`) turned.
double with_bit_turned(double value, int bit, bool wide);

/// An element of the mean over ranks that one flipped bit may have made wrong.
struct WrongElement {
  std::string tensor;
  std::size_t element = 0;
  double right = 0, wrong = 0;  ///< of the mean
  double uncertain = 0;         ///< how far rounding leaves it open
  double epsilon = 0;           ///< of the type in which the mean was computed
  bool wide = false;            ///< the ranks' values are float64; else float32
};

/// Every (rank, bit) that gives the right mean if it is turned back in the ranks' values, which hold the
/// flipped one.
std::vector<FlippedBit> flips_in_values(const WrongElement& element,
                                        const std::vector<std::vector<NamedTensor>>& local);

/// Every (rank, bit) whose flip in transit explains the wrong mean of the ranks' values, which are right
/// themselves. A message may be divided by the world size before or after it travels.
std::vector<FlippedBit> flips_in_messages(const WrongElement& element,
                                          const std::vector<std::vector<NamedTensor>>& local);

}  // namespace lockstep
