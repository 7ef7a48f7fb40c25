#pragma once
// Which GPU a rank takes among those that it sees, and why there is none for it. It knows no CUDA.

#include <optional>
#include <string>

#include "harness/verdict/config/names.h"

namespace lockstep {

struct GpusSeen {
  int devices = 0;
  std::optional<std::string> visible;  ///< CUDA_VISIBLE_DEVICES, if it is set
};

/// With the CUDA_VISIBLE_DEVICES of this process.
GpusSeen gpus_seen(int devices);

/// Why so many ranks of one host cannot take these GPUs, and what to do; empty: they can. NCCL wants one for each.
std::string gpus_problem(Transport transport, int ranks, const GpusSeen& seen);

/// The index of the GPU of the `local_rank`-th rank of a host: its own on NCCL, else one in turn. -1 with a `problem`.
int gpu_of_rank(Transport transport, int local_rank, const GpusSeen& seen, std::string& problem);

}  // namespace lockstep
