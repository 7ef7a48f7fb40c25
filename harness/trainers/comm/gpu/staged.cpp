#include "harness/trainers/comm/gpu/staged.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace lockstep {
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
