#pragma once
// Windows as tensors, shared by all replicas of a run.

#include <ATen/core/Tensor.h>

#include "harness/data/dataset.h"

namespace lockstep {

struct PairTensors {
  at::Tensor context_PSC;  ///< [P, S, C] float32
  at::Tensor mask_PS;      ///< [P, S] bool
  at::Tensor action_PA;    ///< [P, H * C] float32
  int64_t size() const { return action_PA.size(0); }
};

struct EnergyData {
  PairTensors train, holdout, test;
};

EnergyData make_energy_data(const Dataset& dataset);

}  // namespace lockstep
