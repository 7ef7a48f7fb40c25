#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <optional>
#include <string>

#include "harness/plan/config/run_config.h"

// Which GPU a rank takes among those that it sees, and why there is none for it. It knows no CUDA.

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

// A backend for tensors of the host around one that works in another memory: copies in, waits, copies back. It knows no CUDA.

struct Staging {
  c10::intrusive_ptr<c10d::Backend> inner;
  c10::Device device;
  /// Returns when all copies and collectives that this thread began on `device` have ended.
  std::function<void()> synchronize;
  std::chrono::milliseconds timeout{60000};
};

/// Each call ends before it returns, with its work done: order and bits are the inner backend's. It takes what Comm and
/// c10d's Reducer call: all-reduce of one tensor, all-gather, broadcast.
c10::intrusive_ptr<c10d::Backend> make_staged_backend(Staging staging);

}  // namespace lockstep
