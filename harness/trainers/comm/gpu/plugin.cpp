// lockstep-gpu.so: all of the project that knows CUDA.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <exception>

#include "harness/trainers/comm/gpu/devices.h"
#include "harness/trainers/comm/gpu_plugin_entry.h"

namespace lockstep {
namespace {

c10::intrusive_ptr<c10d::Backend> nccl_backend(const GpuBackendRequest& request, const at::Device& device, std::chrono::milliseconds timeout) {
  // Work::wait then waits for the collective itself, not for its place in a stream, and ends by the timeout.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", 0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.world_size, options);
  backend->setBoundDeviceId(device);
  return backend;
}

c10::intrusive_ptr<c10d::Backend> gloo_backend(const GpuBackendRequest& request, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(request.address));
  options->threads = 1;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.world_size, options);
}

c10::intrusive_ptr<c10d::Backend> make(const GpuBackendRequest& request, std::string& problem) {
  const int gpu = gpu_of_rank(request.transport, request.local_rank, gpus_seen(c10::cuda::device_count()), problem);
  if (gpu < 0) return {};
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  c10::cuda::set_device(device.index());
  const std::chrono::milliseconds timeout(static_cast<int64_t>(request.timeout_s * 1000));
  Staging staging{request.transport == Transport::nccl ? nccl_backend(request, device, timeout) : gloo_backend(request, timeout), device,
                  [device] {
                    const c10::cuda::CUDAGuard guard(device);
                    c10::cuda::device_synchronize();
                  },
                  timeout};
  return make_staged_backend(std::move(staging));
}

}  // namespace
}  // namespace lockstep

extern "C" {

extern const char* const lockstep_gpu_plugin_stamp;
const char* const lockstep_gpu_plugin_stamp = lockstep::kGpuPluginStamp;

// Both sides are C++ of one compiler: the name alone is C's.
c10::intrusive_ptr<c10d::Backend> lockstep_gpu_backend(const lockstep::GpuBackendRequest& request, std::string& problem);
c10::intrusive_ptr<c10d::Backend> lockstep_gpu_backend(const lockstep::GpuBackendRequest& request, std::string& problem) {
  try {
    return lockstep::make(request, problem);
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return {};
}

void lockstep_gpu_problem(lockstep::Transport transport, int ranks, std::string& problem);
void lockstep_gpu_problem(lockstep::Transport transport, int ranks, std::string& problem) {
  try {
    problem = lockstep::gpus_problem(transport, ranks, lockstep::gpus_seen(c10::cuda::device_count()));
  } catch (const std::exception& error) {
    problem = error.what();
  }
}
}
