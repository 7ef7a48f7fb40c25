#pragma once
// Windows as tensors, shared by all replicas of a run.

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "harness/trainers/core/task.h"
#include "scenarios/energy/dataset.h"

namespace lockstep {

struct PairTensors {
  at::Tensor context_PSC;  ///< [P, S, C] float32
  at::Tensor mask_PS;      ///< [P, S] bool
  at::Tensor action_PA;    ///< [P, H * C] float32
  int64_t size() const { return action_PA.size(0); }
};

/// The training pairs: kept whole, or (data.cache false) cut from their series whenever they are asked for,
/// with the same bits. Several threads may ask.
class TrainingPairs {
 public:
  explicit TrainingPairs(const Dataset& dataset, bool cached);
  int64_t size() const;
  int64_t context_steps() const { return cached_.context_PSC.size(1); }
  int64_t channels() const { return cached_.context_PSC.size(2); }
  /// Row r is pair ids[r].
  PairTensors rows(const std::vector<int64_t>& ids) const;

 private:
  PairTensors cached_;                        ///< without a row if pairs are cut
  std::shared_ptr<const PairCutter> cutter_;  ///< null: cached
};

/// Some training pairs, ready before their step.
class PreparedPairs : public PreparedRows {
 public:
  PreparedPairs(const TrainingPairs& pairs, const std::vector<int64_t>& ids);
  /// False if one of the pairs is not among them.
  bool rows(const std::vector<int64_t>& ids, PairTensors& out) const;

 private:
  PairTensors pairs_;
  std::unordered_map<int64_t, int64_t> place_of_;
};

struct EnergyData {
  TrainingPairs train;
  PairTensors holdout, test;
};

EnergyData make_energy_data(const Dataset& dataset, const WindowConfig& config);

}  // namespace lockstep
