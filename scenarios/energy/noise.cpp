#include "scenarios/energy/noise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "harness/base/normal.h"
#include "harness/trainers/core/streams.h"

namespace lockstep {

at::Tensor normal_rows(std::span<const uint64_t> keys, int64_t each) {
  const auto rows = static_cast<int64_t>(keys.size());
  const auto a_row = static_cast<std::size_t>(each);
  at::Tensor normals = at::empty({rows, each}, at::kFloat);
  float* out = normals.mutable_data_ptr<float>();
  std::vector<float> uniform(2 * a_row);
  for (const uint64_t key : keys) {
    fill_uniform(key, uniform);
    fill_normal({uniform.data(), a_row}, {uniform.data() + a_row, a_row}, {out, a_row});
    out += each;
  }
  return normals;
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
