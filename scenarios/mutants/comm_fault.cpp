#include "scenarios/mutants/comm_fault.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/comm/ledger.h"

namespace lockstep {
namespace {

class FaultyComm : public CommAround {
 public:
  FaultyComm(std::unique_ptr<Comm> inner, CommFault& fault) : CommAround(std::move(inner)), fault_(fault) {}
  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override { fault_.all_reduce_sum(*inner_, tensor, tag); }
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    return fault_.all_gather(*inner_, tensor, tag);
  }
  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    fault_.broadcast(*inner_, tensor, root, tag);
  }

 private:
  CommFault& fault_;
};

/// One collective as it was called, and what it delivered.
struct Call {
  std::string op, reduction, tag;
  int root = -1;
  at::Tensor in, out;
};

at::Tensor kept(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach().clone() : at::Tensor(); }

/// Passes every call on and tells of it afterwards.
class TellingComm : public CommAround {
 public:
  TellingComm(std::unique_ptr<Comm> inner, std::function<void()> begin, std::function<void(Call)> end)
      : CommAround(std::move(inner)), begin_(std::move(begin)), end_(std::move(end)) {}

 private:
  at::Tensor around(const CollectiveCall& made, const Run& run) override {
    Call call{std::string(made.op), std::string(made.reduction), std::string(made.tag), made.root,
              kept(made.tensor), {}};
    begin_();
    at::Tensor out = run();
    call.out = kept(out);
    end_(std::move(call));
    return out;
  }

  std::function<void()> begin_;
  std::function<void(Call)> end_;
};

bool same_call(const Call& a, const Call& b) {
  return a.op == b.op && a.reduction == b.reduction && a.tag == b.tag && a.root == b.root && same_bits(a.in, b.in) &&
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
  const auto arrived = std::make_shared<std::vector<Call>>();
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
