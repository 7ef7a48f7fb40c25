#include "scenarios/flow_rl/policy.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numbers>

#include "harness/base/hashing.h"
#include "scenarios/flow_rl/plain_policy.h"

namespace lockstep {
namespace {

constexpr int64_t kTransitions = FlowConfig::kTransitions;

at::Tensor drawn(uint64_t key, at::IntArrayRef shape, int64_t fan_in, at::ScalarType dtype) {
  at::Tensor values = at::empty(shape, at::kFloat);
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  float* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    out[i] = static_cast<float>((2 * unit_interval(keyed(key, i)) - 1) * bound);
  }
  return values.to(dtype);
}

at::Tensor bent(const at::Tensor& values) { return values / (values.abs() + 1); }

/// [1, 1, K, 1]
at::Tensor along_transitions(const std::vector<double>& values, const at::Tensor& like) {
  return at::tensor(at::ArrayRef<double>(values), at::kDouble).to(like.scalar_type()).reshape({1, 1, -1, 1});
}

}  // namespace

FlowPolicy::FlowPolicy(const FlowConfig& flow, int64_t seed, at::ScalarType dtype) : flow_(flow), dtype_(dtype) {
  constexpr uint64_t kWeights = 0x77656967687473;  // "weights"
  const int64_t w = flow.hidden, out = int64_t{flow.chunk} * kActionNumbers, in = kObserved + out + kTransitions;
  const auto add = [&](const std::string& layer, int64_t outputs, int64_t inputs) {
    const uint64_t key = keyed(kWeights, seed, parameters_.names.size());
    parameters_.add(layer + ".weight", drawn(key, {outputs, inputs}, inputs, dtype));
    parameters_.add(layer + ".bias", drawn(keyed(key, 1), {outputs}, inputs, dtype));
  };
  add("input", w, in);
  add("hidden", w, w);
  add("output", out, w);
  tensors_ = parameters_.tensors;
}

FlowPolicy FlowPolicy::with(const std::vector<at::Tensor>& tensors, at::ScalarType dtype) const {
  FlowPolicy view = *this;
  view.dtype_ = dtype;
  for (std::size_t i = 0; i < tensors.size(); ++i) view.tensors_[i] = tensors[i].to(dtype);
  return view;
}

at::Tensor FlowPolicy::means(const ChainTensors& chains) const {
  const int64_t rows = chains.chain_BTKC.size(0), chunks = chains.chain_BTKC.size(1), numbers = chains.chain_BTKC.size(3);
  const at::Tensor place_BTKC = chains.chain_BTKC.narrow(2, 0, kTransitions);
  const at::Tensor seen_BTKO = chains.seen_BTO.unsqueeze(2).expand({rows, chunks, kTransitions, kObserved});
  const at::Tensor which_BTKK = at::eye(kTransitions, at::kDouble).expand({rows, chunks, kTransitions, kTransitions});
  const at::Tensor inputs = at::cat({seen_BTKO, place_BTKC, which_BTKK}, 3).to(dtype_).reshape({-1, tensor(0).size(1)});
  const at::Tensor first = bent(at::linear(inputs, tensor(0), tensor(1)));
  const at::Tensor second = bent(at::linear(first, tensor(2), tensor(3)));
  at::Tensor velocity = at::linear(second, tensor(4), tensor(5)).reshape({rows, chunks, kTransitions, numbers});
  if (dtype_ == at::kBFloat16) velocity = velocity.to(at::kFloat);
  return place_BTKC.to(velocity.scalar_type()) + velocity / static_cast<double>(kTransitions);
}

PlainPolicy FlowPolicy::plain() const {
  std::vector<std::vector<double>> values;
  for (const at::Tensor& parameter : tensors_) {
    const at::Tensor wide = parameter.detach().to(at::kDouble).contiguous();
    values.emplace_back(wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel());
  }
  return {flow_, values};
}

std::vector<double> sigmas_of(const FlowConfig& flow) {
  std::vector<double> sigmas;
  for (int k = 0; k < FlowConfig::kTransitions; ++k) sigmas.push_back(sigma_of(flow, k));
  return sigmas;
}

at::Tensor log_transitions(const at::Tensor& means_BTKC, const ChainTensors& chains, const std::vector<double>& sigma_K,
                           bool without_sigma) {
  const at::Tensor next_BTKC = chains.chain_BTKC.narrow(2, 1, kTransitions).to(means_BTKC.scalar_type());
  const at::Tensor apart = (next_BTKC - means_BTKC) / along_transitions(sigma_K, means_BTKC);
  std::vector<double> constants;
  for (const double sigma : sigma_K) {
    const double scale = without_sigma ? 0 : std::log(sigma);
    constants.push_back(static_cast<double>(means_BTKC.size(3)) * (scale + 0.5 * std::log(2 * std::numbers::pi)));
  }
  const at::Tensor terms = apart.square().sum(3) * -0.5 - along_transitions(constants, means_BTKC).squeeze(3);
  return at::where(chains.valid_BT.unsqueeze(2), terms, 0.0);
}

at::Tensor divergence(const at::Tensor& means_BTKC, const at::Tensor& other_BTKC, const ChainTensors& chains,
                      const std::vector<double>& sigma_K) {
  const at::Tensor apart = (means_BTKC - other_BTKC) / along_transitions(sigma_K, means_BTKC);
  return at::where(chains.valid_BT, apart.square().sum(at::IntArrayRef{2, 3}) * 0.5, 0.0);
}

}  // namespace lockstep
