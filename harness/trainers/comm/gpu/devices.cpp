#include "harness/trainers/comm/gpu/devices.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

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

namespace {

class DoneWork : public c10d::Work {
 public:
  DoneWork(int rank, c10d::OpType op, std::vector<at::Tensor> outputs)
      : Work(rank, op), outputs_(std::move(outputs)),
        done_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
    done_->markCompleted(c10::IValue(outputs_));
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return done_; }

 private:
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> done_;
};

class StagedBackend : public c10d::Backend {
 public:
  explicit StagedBackend(Staging staging)
      : Backend(staging.inner->getRank(), staging.inner->getSize()), staging_(std::move(staging)) {}

  const std::string getBackendName() const override { return "staged " + staging_.inner->getBackendName(); }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return in_place(c10d::OpType::ALLREDUCE, tensors, [&](std::vector<at::Tensor>& there) { return staging_.inner->allreduce(there, options); });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return in_place(c10d::OpType::BROADCAST, tensors, [&](std::vector<at::Tensor>& there) { return staging_.inner->broadcast(there, options); });
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1, "a staged all_gather takes one tensor");
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> there{copied(inputs.front())};
    std::vector<std::vector<at::Tensor>> gathered(1);
    for (const at::Tensor& output : outputs.front()) gathered.front().push_back(at::empty_like(output, output.options().device(staging_.device)));
    finish(staging_.inner->allgather(gathered, there, options));
    for (std::size_t r = 0; r < gathered.front().size(); ++r) outputs.front()[r].copy_(gathered.front()[r]);
    staging_.synchronize();
    return c10::make_intrusive<DoneWork>(getRank(), c10d::OpType::ALLGATHER, outputs.front());
  }

 private:
  template <typename Start>
  c10::intrusive_ptr<c10d::Work> in_place(c10d::OpType op, std::vector<at::Tensor>& tensors, Start start) {
    TORCH_CHECK(tensors.size() == 1, "a staged collective takes one tensor");
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> there{copied(tensors.front())};
    finish(start(there));
    tensors.front().copy_(there.front());
    staging_.synchronize();
    return c10::make_intrusive<DoneWork>(getRank(), op, tensors);
  }

  /// A tensor of its own on the device: not even a device that is the host works in the caller's memory.
  at::Tensor copied(const at::Tensor& tensor) const {
    return tensor.detach().to(staging_.device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true).contiguous();
  }

  void finish(const c10::intrusive_ptr<c10d::Work>& work) {
    work->wait(staging_.timeout);
    staging_.synchronize();
  }

  Staging staging_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_staged_backend(Staging staging) {
  return c10::make_intrusive<StagedBackend>(std::move(staging));
}

}  // namespace lockstep
