#pragma once
// The two functions of the plugin, for both of its sides. One hands over C++ objects of LibTorch: both sides are of one version.

#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/version.h>

#include "harness/plan/config/run_config.h"

// "2.13.0", without what tells builds apart ("+cpu", "+cu130"): a CUDA build's headers are the same.
#define LOCKSTEP_WORD_OF(number) #number
#define LOCKSTEP_VERSION_OF(major, minor, patch) LOCKSTEP_WORD_OF(major) "." LOCKSTEP_WORD_OF(minor) "." LOCKSTEP_WORD_OF(patch)
#define LOCKSTEP_TORCH_VERSION LOCKSTEP_VERSION_OF(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH)

namespace lockstep {

/// What a plugin must be built with to fit: to be raised whenever what follows changes.
inline constexpr const char* kGpuPluginStamp = "lockstep-gpu 2, LibTorch " LOCKSTEP_TORCH_VERSION;
inline constexpr const char* kGpuPluginStampName = "lockstep_gpu_plugin_stamp";
inline constexpr const char* kGpuBackendName = "lockstep_gpu_backend";
inline constexpr const char* kGpuProblemName = "lockstep_gpu_problem";

struct GpuBackendRequest {
  Transport transport = Transport::nccl;
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0, world_size = 1;
  int local_rank = 0;   ///< its place among the ranks of its host, by which it takes its GPU
  std::string address;  ///< of the interface by which the others reach this rank; Gloo
  double timeout_s = 60;
};

/// A backend for tensors in the host's memory; null with a `problem`.
using MakeGpuBackend = c10::intrusive_ptr<c10d::Backend> (*)(const GpuBackendRequest& request, std::string& problem);
/// Why so many ranks of this host cannot take its GPUs over the transport; empty: they can.
using AskGpuProblem = void (*)(Transport transport, int ranks, std::string& problem);

}  // namespace lockstep
