#pragma once
// The order in which Gloo's ring all-reduce adds, so that emulated ranks get the bits of real ones.

#include <cstddef>
#include <vector>

namespace lockstep {

/// Sums `inputs` (P buffers of `elements` values) into `output` in the order of Gloo's segmented ring: with B
/// = elements
/// * sizeof(T), segments = roundUp(max(ceil(B / 1 MiB), 2P), P), chunk c of the P chunks is
/// x_c + (x_{c+1} + (... + (x_{c-2} + x_{c-1}))), indices mod P. Instantiated for float, double and int64_t.
template <typename T>
void ring_sum(const std::vector<const T*>& inputs, std::size_t elements, T* output);

}  // namespace lockstep
