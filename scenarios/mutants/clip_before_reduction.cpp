// Every rank clips its own gradients before they are reduced: no process of the whole batch can do the like.

#include <ATen/ATen.h>

#include <algorithm>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/reduced_by_hand.h"

namespace lockstep {
namespace {

class ClipBeforeReduction : public ReducedByHand {
 public:
  using ReducedByHand::ReducedByHand;

 protected:
  void prepare(const std::map<std::string, at::Tensor>& local) override {
    factor_ = std::min(1.0, run().clip_norm / (norm_of(local) + 1e-6));
  }
  at::Tensor to_send(const at::Tensor& local) override { return local * factor_; }
  at::Tensor reduce(const at::Tensor& all_V) override { return all_V.mean(0); }

 private:
  double factor_ = 1;
};

}  // namespace

std::unique_ptr<Mutant> make_clip_before_reduction(const Planting& planting) {
  return std::make_unique<ClipBeforeReduction>(planting);
}

}  // namespace lockstep
