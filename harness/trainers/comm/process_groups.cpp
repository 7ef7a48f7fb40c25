#include "harness/trainers/comm/process_groups.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace lockstep {
namespace {

class ProcessGroupComm : public Comm {
 public:
  explicit ProcessGroupComm(ProcessGroups groups) : groups_(std::move(groups)) {}

  int rank() const override { return groups_.data->getRank(); }
  int world_size() const override { return groups_.data->getSize(); }

  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    if (tensor.scalar_type() == at::kLong && goes_by_root(tensor)) {
      const at::Tensor all = gather_at_root(tensor, "all_reduce", tag);
      if (rank() == 0) tensor.copy_(all.sum(0));
      broadcast_as("all_reduce", tensor, 0, tag);
      return;
    }
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    options.timeout = groups_.timeout;
    finish("all_reduce", tag, [&] { return groups_.data->allreduce(tensors, options); });
  }

  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    if (goes_by_root(tensor)) {
      at::Tensor all = gather_at_root(tensor, "all_gather", tag);
      broadcast_as("all_gather", all, 0, tag);
      return all;
    }
    at::Tensor all = room_for_all(tensor);
    std::vector<std::vector<at::Tensor>> outputs{all.unbind(0)};
    std::vector<at::Tensor> inputs{tensor.detach()};
    c10d::AllgatherOptions options;
    options.timeout = groups_.timeout;
    finish("all_gather", tag, [&] { return groups_.data->allgather(outputs, inputs, options); });
    return all;
  }

  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    broadcast_as("broadcast", tensor, root, tag);
  }

  void barrier(std::string_view tag) override {
    // A barrier that works on every backend: the sum of a 1 from each rank.
    all_reduce_sum(at::ones({1}, at::kLong), tag);
  }

  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return make_c10d_reducer(groups_.gradients, parameters, names, options);
  }

 private:
  bool goes_by_root(const at::Tensor& tensor) const {
    return world_size() > 1 && static_cast<int64_t>(tensor.nbytes()) * world_size() <= groups_.by_root_bytes;
  }

  at::Tensor room_for_all(const at::Tensor& tensor) const {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin(), world_size());
    return at::empty(shape, tensor.options());
  }

  /// [V, ...], filled on rank 0 alone. `operation`: whose part it is.
  at::Tensor gather_at_root(const at::Tensor& tensor, const char* operation, std::string_view tag) {
    at::Tensor all = room_for_all(tensor);
    std::vector<std::vector<at::Tensor>> outputs;
    if (rank() == 0) outputs.push_back(all.unbind(0));
    std::vector<at::Tensor> inputs{tensor.detach()};
    c10d::GatherOptions options;
    options.rootRank = 0;
    options.timeout = groups_.timeout;
    finish(operation, tag, [&] { return groups_.data->gather(outputs, inputs, options); });
    return all;
  }

  void broadcast_as(const char* operation, const at::Tensor& tensor, int root, std::string_view tag) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = groups_.timeout;
    finish(operation, tag, [&] { return groups_.data->broadcast(tensors, options); });
  }

  template <typename Start>
  void finish(const char* operation, std::string_view tag, Start start) {
    try {
      start()->wait(groups_.timeout);
    } catch (const c10::Error& error) {
      fail(operation, tag, error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(operation, tag, error.what());
    }
  }

  [[noreturn]] void fail(const char* operation, std::string_view tag, const char* why) const {
    throw std::runtime_error(std::string(operation) + " " + std::string(tag) + " failed on rank " +
                             std::to_string(rank()) + ": " + why);
  }

  ProcessGroups groups_;
};

}  // namespace

void Comm::all_reduce_max(at::Tensor tensor, std::string_view tag) {
  tensor.copy_(all_gather(tensor, tag).amax(0));
}

std::unique_ptr<Comm> make_process_group_comm(ProcessGroups groups) {
  return std::make_unique<ProcessGroupComm>(std::move(groups));
}

}  // namespace lockstep
