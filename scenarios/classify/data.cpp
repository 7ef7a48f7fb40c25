#include "scenarios/classify/data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

CropTensors to_tensors(const Crops& crops) {
  CropTensors tensors;
  tensors.values_NTC = at::empty({crops.size(), crops.steps, crops.channels}, at::kFloat);
  std::copy(crops.values.begin(), crops.values.end(), tensors.values_NTC.mutable_data_ptr<float>());
  tensors.label_N = at::tensor(at::ArrayRef<int64_t>(crops.labels), at::kLong);
  const at::Tensor steps_N = at::tensor(at::ArrayRef<int64_t>(crops.valid_steps), at::kLong);
  tensors.valid_NT = at::arange(crops.steps, at::kLong).unsqueeze(0) < steps_N.unsqueeze(1);
  tensors.valid_steps = crops.valid_steps;
  tensors.series = crops.series;
  return tensors;
}

}  // namespace

CropTensors CropTensors::rows(std::span<const int64_t> ids) const {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(ids.data(), ids.size()), at::kLong);
  CropTensors chosen{values_NTC.index_select(0, index), valid_NT.index_select(0, index),
                     label_N.index_select(0, index), {}, {}};
  for (const int64_t id : ids) {
    chosen.valid_steps.push_back(valid_steps[static_cast<std::size_t>(id)]);
    chosen.series.push_back(series[static_cast<std::size_t>(id)]);
  }
  return chosen;
}

ClassifyData make_classify_data(const CropDataset& dataset) {
  return {to_tensors(dataset.train), to_tensors(dataset.holdout), to_tensors(dataset.test),
          static_cast<int64_t>(dataset.classes.size()), dataset.train.channels, dataset.train.steps};
}

}  // namespace lockstep
