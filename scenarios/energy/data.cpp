#include "scenarios/energy/data.h"

#include <ATen/ATen.h>

#include <cstring>

#include "scenarios/energy/dataset.h"

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

PairTensors select(const PairTensors& pairs, const std::vector<int64_t>& places) {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(places), at::kLong);
  return {pairs.context_PSC.index_select(0, index), pairs.mask_PS.index_select(0, index),
          pairs.action_PA.index_select(0, index)};
}

}  // namespace

TrainingPairs::TrainingPairs(const Dataset& dataset, bool cached)
    : cached_(to_tensors(dataset.train)), cutter_(cached ? nullptr : dataset.training_pairs) {}

int64_t TrainingPairs::size() const { return cutter_ == nullptr ? cached_.size() : cutter_->size(); }

PairTensors TrainingPairs::rows(const std::vector<int64_t>& ids) const {
  return cutter_ == nullptr ? select(cached_, ids) : to_tensors(cutter_->cut(ids));
}

PreparedPairs::PreparedPairs(const TrainingPairs& pairs, const std::vector<int64_t>& ids)
    : pairs_(pairs.rows(ids)) {
  for (std::size_t place = 0; place < ids.size(); ++place) {
    place_of_[ids[place]] = static_cast<int64_t>(place);
  }
}

bool PreparedPairs::rows(const std::vector<int64_t>& ids, PairTensors& out) const {
  std::vector<int64_t> places;
  for (const int64_t id : ids) {
    const auto found = place_of_.find(id);
    if (found == place_of_.end()) {
      return false;
    }
    places.push_back(found->second);
  }
  out = select(pairs_, places);
  return true;
}

EnergyData make_energy_data(const Dataset& dataset, const WindowConfig& config) {
  return {TrainingPairs(dataset, config.cache), to_tensors(dataset.holdout), to_tensors(dataset.test)};
}

}  // namespace lockstep
