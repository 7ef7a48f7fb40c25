#include "harness/trainers/comm/gpu/devices.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep {
namespace {

std::string visible_text(const GpusSeen& seen) { return seen.visible ? " (CUDA_VISIBLE_DEVICES=" + *seen.visible + ")" : ""; }

std::string gpus_text(int count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

}  // namespace

GpusSeen gpus_seen(int devices) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return {devices, visible == nullptr ? std::nullopt : std::optional<std::string>(visible)};
}

std::string gpus_problem(Transport transport, int ranks, const GpusSeen& seen) {
  if (seen.devices <= 0) {
    return "CUDA sees no GPU here" +
           (seen.visible ? ": CUDA_VISIBLE_DEVICES=" + *seen.visible + " may hide them" : std::string(": is the NVIDIA driver loaded (nvidia-smi)?")) +
           "; backend: gloo needs none";
  }
  if (transport != Transport::nccl || ranks <= seen.devices) return "";
  return "NCCL wants a GPU for each rank of a host, and " + std::to_string(ranks) + " ranks of this one see " + gpus_text(seen.devices) +
         visible_text(seen) + ": take at most " + std::to_string(seen.devices) + " a host, or backend: gloo_cuda, whose ranks share GPUs";
}

int gpu_of_rank(Transport transport, int local_rank, const GpusSeen& seen, std::string& problem) {
  const int own = std::max(local_rank, 0);
  problem = gpus_problem(transport, own + 1, seen);
  if (!problem.empty()) return -1;
  return transport == Transport::nccl ? own : own % seen.devices;
}

}  // namespace lockstep
