#pragma once
// Two layers of weights, and rows that are computed from their number.
// D = inputs, H = hidden units, P = parameters in all, flat: w1 [H, D], b1 [H], w2 [H], b2 [1].

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::toy {

inline constexpr int kInputs = 6, kHidden = 4;
inline constexpr int64_t kParameters = kHidden * kInputs + kHidden + kHidden + 1;
/// A gradient's unit in sums: 2^-24. Whole numbers have the same sum in any order, so that no number of ranks and no
/// resumption inside an update changes a bit.
inline constexpr double kUnit = 1.0 / (1 << 24);

/// A named tensor within the flat parameters.
struct Block {
  std::string_view name;
  std::vector<int64_t> shape;
  int64_t begin = 0, elements = 0;
};
const std::vector<Block>& blocks();

std::vector<float> initial_parameters(uint64_t seed);

struct Row {
  std::array<float, kInputs> input;
  float target = 0;
};
/// Row `id` of the training data; of the evaluation's, ids below 0.
Row row(uint64_t seed, int64_t id);

/// What a row comes to: its loss, and its gradient in kUnit.
struct RowResult {
  double loss = 0;
  std::array<int64_t, kParameters> gradient{};
  float largest = 0;  ///< of the gradient, in absolute value
};
/// `kept`: what dropout leaves of each hidden unit, times its scale.
RowResult forward_backward(std::span<const float> parameters, const std::array<float, kInputs>& input, float target,
                           const std::array<float, kHidden>& kept);

/// The loss alone, without dropout.
double row_loss(std::span<const float> parameters, const std::array<float, kInputs>& input, float target);

}  // namespace lockstep::toy
