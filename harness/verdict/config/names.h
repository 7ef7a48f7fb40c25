#pragma once

#include <string_view>

// How much of each tensor a trace keeps.

namespace lockstep {

/// Nothing is written | a fingerprint | and four statistics | and every value.
enum class TraceLevel { off, hash, stats, full };

// What carries the collectives of real ranks.

/// gloo: Gloo over the memory of the host | nccl: c10d's ProcessGroupNCCL, one GPU a rank | gloo_cuda: Gloo over tensors in GPU
/// memory, any number of ranks on one GPU. The latter two by a plugin (harness/trainers/comm/gpu_plugin.h).
enum class Transport { gloo, nccl, gloo_cuda };

/// As configs, results and reports write it.
std::string_view word_of(Transport transport);

}  // namespace lockstep
