#include "scenarios/energy_data.h"

#include <ATen/ATen.h>

#include <cstring>

namespace lockstep {
namespace {

PairTensors to_tensors(const Windows& windows) {
  const auto pairs = static_cast<int64_t>(windows.size());
  PairTensors tensors;
  tensors.context_PSC = at::empty({pairs, windows.context_steps, windows.channels}, at::kFloat);
  tensors.mask_PS = at::empty({pairs, windows.context_steps}, at::kBool);
  tensors.action_PA =
      at::empty({pairs, static_cast<int64_t>(windows.action_steps) * windows.channels}, at::kFloat);
  std::memcpy(tensors.context_PSC.mutable_data_ptr(), windows.contexts.data(), tensors.context_PSC.nbytes());
  std::memcpy(tensors.mask_PS.mutable_data_ptr(), windows.context_mask.data(), tensors.mask_PS.nbytes());
  std::memcpy(tensors.action_PA.mutable_data_ptr(), windows.actions.data(), tensors.action_PA.nbytes());
  return tensors;
}

}  // namespace

EnergyData make_energy_data(const Dataset& dataset) {
  return {to_tensors(dataset.train), to_tensors(dataset.holdout), to_tensors(dataset.test)};
}

}  // namespace lockstep
