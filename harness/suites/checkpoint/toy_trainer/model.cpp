#include "harness/suites/checkpoint/toy_trainer/model.h"

#include <algorithm>
#include <cmath>

#include "harness/base/hashing.h"

namespace lockstep::toy {
namespace {

constexpr uint64_t kWeights = 1, kInputsOf = 2, kNoiseOf = 3;
constexpr int64_t kB1 = kHidden * kInputs, kW2 = kB1 + kHidden, kB2 = kW2 + kHidden;

float in_one(uint64_t bits) { return static_cast<float>(2 * unit_interval(bits) - 1); }

struct Forward {
  std::array<float, kHidden> active{}, hidden{};
  float error = 0;
};

Forward forward(std::span<const float> parameters, const std::array<float, kInputs>& input, float target,
                const std::array<float, kHidden>& kept) {
  Forward result;
  float output = parameters[kB2];
  for (std::size_t unit = 0; unit < kHidden; ++unit) {
    float sum = parameters[kB1 + unit];
    for (std::size_t at = 0; at < kInputs; ++at) sum += parameters[unit * kInputs + at] * input[at];
    result.active[unit] = sum > 0 ? kept[unit] : 0.1F * kept[unit];
    result.hidden[unit] = sum * result.active[unit];
    output += parameters[kW2 + unit] * result.hidden[unit];
  }
  result.error = output - target;
  return result;
}

}  // namespace

const std::vector<Block>& blocks() {
  static const std::vector<Block> kBlocks{{"w1", {kHidden, kInputs}, 0, kB1},
                                          {"b1", {kHidden}, kB1, kHidden},
                                          {"w2", {kHidden}, kW2, kHidden},
                                          {"b2", {1}, kB2, 1}};
  return kBlocks;
}

std::vector<float> initial_parameters(uint64_t seed) {
  std::vector<float> values(kParameters);
  for (std::size_t at = 0; at < values.size(); ++at) values[at] = 0.5F * in_one(keyed(seed, kWeights, at));
  return values;
}

Row row(uint64_t seed, int64_t id) {
  Row made;
  for (std::size_t at = 0; at < kInputs; ++at) {
    const float spread = 0.5F + 0.5F * static_cast<float>(at);
    made.input[at] = spread * in_one(keyed(seed, kInputsOf, id, at)) + 0.25F * static_cast<float>(at);
    made.target += (at % 2 == 0 ? 0.6F : -0.4F) * made.input[at];
  }
  made.target = std::abs(made.target) + 0.3F * in_one(keyed(seed, kNoiseOf, id));
  return made;
}

RowResult forward_backward(std::span<const float> parameters, const std::array<float, kInputs>& input, float target,
                           const std::array<float, kHidden>& kept) {
  const Forward here = forward(parameters, input, target, kept);
  std::array<float, kParameters> gradient{};
  for (std::size_t unit = 0; unit < kHidden; ++unit) {
    const float back = here.error * parameters[kW2 + unit] * here.active[unit];
    for (std::size_t at = 0; at < kInputs; ++at) gradient[unit * kInputs + at] = back * input[at];
    gradient[kB1 + unit] = back;
    gradient[kW2 + unit] = here.error * here.hidden[unit];
  }
  gradient[kB2] = here.error;
  RowResult result;
  result.loss = 0.5 * static_cast<double>(here.error) * static_cast<double>(here.error);
  for (std::size_t at = 0; at < gradient.size(); ++at) {
    result.gradient[at] = std::llrint(static_cast<double>(gradient[at]) / kUnit);
    result.largest = std::max(result.largest, std::abs(gradient[at]));
  }
  return result;
}

double row_loss(std::span<const float> parameters, const std::array<float, kInputs>& input, float target) {
  const Forward here = forward(parameters, input, target, {1, 1, 1, 1});
  return 0.5 * static_cast<double>(here.error) * static_cast<double>(here.error);
}

}  // namespace lockstep::toy
