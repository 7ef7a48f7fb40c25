// The plugin's other side, with the host for GPUs: real Gloo ranks behind copies. LOCKSTEP_HOST_PLUGIN_GPUS: so many GPUs are seen,
// one by default. LOCKSTEP_HOST_PLUGIN_ADDS: sums of floating-point numbers are taken from the last rank to the first ("reversed"), or
// without rank 1's part ("drops"); else as Gloo takes them.

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <string>

#include "harness/trainers/comm/gpu/devices.h"
#include "harness/trainers/comm/gpu_plugin_entry.h"

namespace {

/// Gathers what it adds, so that the order is its own.
class OwnSums : public c10d::Backend {
 public:
  OwnSums(c10::intrusive_ptr<c10d::Backend> inner, bool drops) : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), drops_(drops) {}

  const std::string getBackendName() const override { return "own sums"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    if (options.reduceOp != c10d::ReduceOp::SUM || !tensors.front().is_floating_point()) return inner_->allreduce(tensors, options);
    std::vector<std::vector<at::Tensor>> parts(1);
    for (int rank = 0; rank < getSize(); ++rank) parts.front().push_back(at::empty_like(tensors.front()));
    std::vector<at::Tensor> own{tensors.front()};
    auto work = inner_->allgather(parts, own, {});
    work->wait();
    tensors.front().zero_();
    for (int rank = getSize() - 1; rank >= 0; --rank) {
      if (!(drops_ && rank == 1)) tensors.front().add_(parts.front()[static_cast<std::size_t>(rank)]);
    }
    return work;
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return inner_->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return inner_->allgather(outputs, inputs, options);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  bool drops_;
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

lockstep::GpusSeen seen() {
  const std::string gpus = variable("LOCKSTEP_HOST_PLUGIN_GPUS");
  return lockstep::gpus_seen(gpus.empty() ? 1 : std::atoi(gpus.c_str()));
}

}  // namespace

extern "C" {

extern const char* const lockstep_gpu_plugin_stamp;
const char* const lockstep_gpu_plugin_stamp = lockstep::kGpuPluginStamp;

void lockstep_gpu_problem(lockstep::Transport transport, int ranks, std::string& problem);
void lockstep_gpu_problem(lockstep::Transport transport, int ranks, std::string& problem) { problem = lockstep::gpus_problem(transport, ranks, seen()); }

c10::intrusive_ptr<c10d::Backend> lockstep_gpu_backend(const lockstep::GpuBackendRequest& request, std::string& problem);
c10::intrusive_ptr<c10d::Backend> lockstep_gpu_backend(const lockstep::GpuBackendRequest& request, std::string& problem) {
  if (lockstep::gpu_of_rank(request.transport, request.local_rank, seen(), problem) < 0) return {};
  const std::chrono::milliseconds timeout(static_cast<int64_t>(request.timeout_s * 1000));
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(request.address));
  options->threads = 1;
  c10::intrusive_ptr<c10d::Backend> inner =
      c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.world_size, options);
  if (const std::string adds = variable("LOCKSTEP_HOST_PLUGIN_ADDS"); !adds.empty()) inner = c10::make_intrusive<OwnSums>(inner, adds == "drops");
  return lockstep::make_staged_backend({inner, at::kCPU, [] {}, timeout});
}
}
