#pragma once
// Crops as tensors, shared by all replicas of a run.
//
// N = crops, B = rows, T = time steps, C = channels.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "scenarios/classify/crops.h"

namespace lockstep {

struct CropTensors {
  at::Tensor values_NTC;  ///< float32, standardised; 0 where a step is not valid
  at::Tensor valid_NT;    ///< bool
  at::Tensor label_N;     ///< int64
  std::vector<int64_t> valid_steps, series;  ///< [N]
  int64_t size() const { return label_N.size(0); }
  /// Row r is crop ids[r].
  CropTensors rows(std::span<const int64_t> ids) const;
};

struct ClassifyData {
  CropTensors train, holdout, test;
  int64_t classes = 0, channels = 0, steps = 0;
};

ClassifyData make_classify_data(const CropDataset& dataset);

}  // namespace lockstep
