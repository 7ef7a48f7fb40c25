#include "scenarios/mutants/comm_fault.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

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

/// One collective as it was called, and what it delivered.
struct Call {
  std::string op, tag;
  int root = -1;
  at::Tensor in, out;
};

using Calls = std::vector<Call>;

at::Tensor kept(const at::Tensor& tensor) { return tensor.detach().clone(); }

/// Passes every call on and tells of it afterwards.
class TellingComm : public Comm {
 public:
  TellingComm(std::unique_ptr<Comm> inner, std::function<void()> begin, std::function<void(Call)> end)
      : inner_(std::move(inner)), begin_(std::move(begin)), end_(std::move(end)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    in_place("sum", tag, -1, tensor, [&] { inner_->all_reduce_sum(tensor, tag); });
  }
  void all_reduce_max(at::Tensor tensor, std::string_view tag) override {
    in_place("max", tag, -1, tensor, [&] { inner_->all_reduce_max(tensor, tag); });
  }
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    Call call{"gather", std::string(tag), -1, kept(tensor), {}};
    begin_();
    const at::Tensor gathered = inner_->all_gather(tensor, tag);
    call.out = kept(gathered);
    end_(std::move(call));
    return gathered;
  }
  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    in_place("broadcast", tag, root, tensor, [&] { inner_->broadcast(tensor, root, tag); });
  }
  void barrier(std::string_view tag) override {
    begin_();
    inner_->barrier(tag);
    end_({"barrier", std::string(tag), -1, {}, {}});
  }
  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return inner_->reduce_gradients(parameters, names, options);
  }

 private:
  template <typename Run>
  void in_place(const char* op, std::string_view tag, int root, const at::Tensor& tensor, Run run) {
    Call call{op, std::string(tag), root, kept(tensor), {}};
    begin_();
    run();
    call.out = kept(tensor);
    end_(std::move(call));
  }

  std::unique_ptr<Comm> inner_;
  std::function<void()> begin_;
  std::function<void(Call)> end_;
};

bool same_call(const Call& a, const Call& b) {
  return a.op == b.op && a.tag == b.tag && a.root == b.root && same_bits(a.in, b.in) &&
         same_bits(a.out, b.out);
}

}  // namespace

std::unique_ptr<Comm> CommFault::above_ledger(std::unique_ptr<Comm> comm) {
  return level_ == Level::above ? std::make_unique<FaultyComm>(std::move(comm), *this) : std::move(comm);
}

std::unique_ptr<Comm> CommFault::below_ledger(std::unique_ptr<Comm> comm) {
  return level_ == Level::below ? std::make_unique<FaultyComm>(std::move(comm), *this) : std::move(comm);
}

std::unique_ptr<Comm> watched_comm(std::unique_ptr<Comm> comm,
                                   const std::function<std::unique_ptr<Comm>(std::unique_ptr<Comm>)>& plant,
                                   std::function<void()> acted) {
  const auto arrived = std::make_shared<Calls>();
  auto inside = std::make_unique<TellingComm>(
      std::move(comm), [] {}, [arrived](Call call) { arrived->push_back(std::move(call)); });
  const Comm* const bare = inside.get();
  std::unique_ptr<Comm> planted = plant(std::move(inside));
  if (planted.get() == bare) {
    return planted;  // It calls nothing otherwise; what it keeps of the communicator stays alive.
  }
  return std::make_unique<TellingComm>(
      std::move(planted), [arrived] { arrived->clear(); },
      [arrived, acted = std::move(acted)](const Call& call) {
        if (arrived->size() != 1 || !same_call(arrived->front(), call)) {
          acted();
        }
      });
}

}  // namespace lockstep
