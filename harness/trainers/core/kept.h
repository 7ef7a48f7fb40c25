#pragma once
// What a forward pass keeps for its backward pass, and what the process holds.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Bytes of the storages that the graph behind `loss` has saved, each once, but for those of `parameters`:
/// exact, and the same at every run. Walks the graph, so it is asked once and not at every step.
int64_t kept_bytes(const at::Tensor& loss, const std::vector<at::Tensor>& parameters);

/// Resident memory of this process, from /proc/self/statm; 0 where there is none.
int64_t resident_bytes();

}  // namespace lockstep
