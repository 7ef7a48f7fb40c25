// The plugin's other side, with the host for a GPU: real Gloo ranks behind copies.

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "harness/comm/gpu/staged.h"
#include "harness/comm/gpu_plugin_entry.h"

extern "C" {

extern const char* const lockstep_gpu_plugin_stamp;
const char* const lockstep_gpu_plugin_stamp = lockstep::kGpuPluginStamp;

c10::intrusive_ptr<c10d::Backend> lockstep_gpu_backend(const lockstep::GpuBackendRequest& request, std::string& problem);
c10::intrusive_ptr<c10d::Backend> lockstep_gpu_backend(const lockstep::GpuBackendRequest& request, std::string& problem) {
  if (request.device > 0) {
    problem = "there is one device";
    return {};
  }
  const std::chrono::milliseconds timeout(static_cast<int64_t>(request.timeout_s * 1000));
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(request.address));
  options->threads = 1;
  return lockstep::make_staged_backend(
      {c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.world_size, options), at::kCPU, [] {}, timeout});
}
}
