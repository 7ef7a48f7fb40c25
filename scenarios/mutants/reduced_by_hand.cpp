#include "scenarios/mutants/reduced_by_hand.h"

#include <ATen/ATen.h>

#include <cmath>

#include "harness/trainers/core/parameters.h"

namespace lockstep {

at::Tensor ReducedByHand::sent_gradient(int64_t step, const std::string& parameter,
                                        const at::Tensor& gradient) {
  if (acts(step)) {
    local_[parameter] = gradient.clone();
  }
  return gradient;
}

void ReducedByHand::reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) {
  if (!acts(step)) {
    return;
  }
  prepare(local_);
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor sent = to_send(local_.at(parameters.names[i])).contiguous();
    parameters.tensors[i].mutable_grad().copy_(reduce(network_->all_gather(sent, "planted")));
  }
}

double norm_of(const std::map<std::string, at::Tensor>& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) {
    squares += tensor.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

}  // namespace lockstep
