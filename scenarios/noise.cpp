#include "scenarios/noise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numbers>
#include <numeric>

#include "harness/train/streams.h"

namespace lockstep {

at::Tensor normal_rows(std::span<const uint64_t> keys, int64_t each) {
  const auto rows = static_cast<int64_t>(keys.size());
  at::Tensor uniform = at::empty({rows, 2, each}, at::kFloat);
  float* out = uniform.mutable_data_ptr<float>();
  for (const uint64_t key : keys) {
    fill_uniform(key, {out, static_cast<std::size_t>(2 * each)});
    out += 2 * each;
  }
  const at::Tensor radius = at::sqrt(-2.0 * at::log(1.0 - uniform.select(1, 0)));
  const at::Tensor angle = at::cos(2.0 * std::numbers::pi * uniform.select(1, 1));
  return radius * angle;
}

std::vector<int64_t> keyed_shuffle(uint64_t key, int64_t n) {
  std::vector<int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  if (n < 2) {
    return order;
  }
  std::vector<float> draws;
  while (std::is_sorted(order.begin(), order.end())) {
    draws.resize(draws.size() + static_cast<std::size_t>(n));
    fill_uniform(key, draws);
    const float* last = draws.data() + draws.size() - static_cast<std::size_t>(n);
    std::stable_sort(order.begin(), order.end(), [last](int64_t a, int64_t b) { return last[a] < last[b]; });
  }
  return order;
}

}  // namespace lockstep
