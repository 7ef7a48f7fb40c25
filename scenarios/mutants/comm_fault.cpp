#include "scenarios/mutants/comm_fault.h"

#include <ATen/ATen.h>

namespace lockstep {
namespace {

class FaultyComm : public Comm {
 public:
  FaultyComm(std::unique_ptr<Comm> inner, CommFault& fault) : inner_(std::move(inner)), fault_(fault) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    fault_.all_reduce_sum(*inner_, tensor, tag);
  }
  void all_reduce_max(at::Tensor tensor, std::string_view tag) override {
    inner_->all_reduce_max(tensor, tag);
  }
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    return fault_.all_gather(*inner_, tensor, tag);
  }
  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    fault_.broadcast(*inner_, tensor, root, tag);
  }
  void barrier(std::string_view tag) override { inner_->barrier(tag); }
  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return inner_->reduce_gradients(parameters, names, options);
  }

 private:
  std::unique_ptr<Comm> inner_;
  CommFault& fault_;
};

}  // namespace

std::unique_ptr<Comm> CommFault::above_ledger(std::unique_ptr<Comm> comm) {
  return level_ == Level::above ? std::make_unique<FaultyComm>(std::move(comm), *this) : std::move(comm);
}

std::unique_ptr<Comm> CommFault::below_ledger(std::unique_ptr<Comm> comm) {
  return level_ == Level::below ? std::make_unique<FaultyComm>(std::move(comm), *this) : std::move(comm);
}

}  // namespace lockstep
