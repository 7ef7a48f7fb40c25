#pragma once
// Keyed draws as tensors: each row's numbers depend on that row's key alone.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Standard normals [rows, each] float32 by Box and Muller from each row's own stream, 2 * each draws a row.
at::Tensor normal_rows(std::span<const uint64_t> keys, int64_t each);

/// A permutation of 0 … n - 1 that is not the identity (unless n < 2), by sorting uniforms; a rejected one is
/// drawn again from the stream's next n numbers.
std::vector<int64_t> keyed_shuffle(uint64_t key, int64_t n);

}  // namespace lockstep
