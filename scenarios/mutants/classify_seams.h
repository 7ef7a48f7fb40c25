#pragma once
// Faults inside the trainer classify, watched and in a row: what witness.h and mutants.h promise, for its calls.

#include <functional>
#include <vector>

#include "scenarios/mutants/classify_fault.h"

namespace lockstep {

/// Passes every call on, and notes where what comes back is not what went in.
class WatchedClassify : public ClassifyFault {
 public:
  /// inside: or null.
  WatchedClassify(ClassifyFault* inside, std::function<void()> acted) : inside_(inside), acted_(std::move(acted)) {}

  double loss_weight(int64_t step, double weight, const DenominatorCounts& counts) override;
  at::Tensor auxiliary(int64_t step, at::Tensor losses_B) override;
  uint64_t recomputed_key(int64_t step, uint64_t key) override;

 private:
  ClassifyFault* inside_;
  std::function<void()> acted_;
};

/// Each gets what the one before returned.
class ChainedClassify : public ClassifyFault {
 public:
  void add(ClassifyFault* link) { links_.push_back(link); }

  double loss_weight(int64_t step, double weight, const DenominatorCounts& counts) override;
  at::Tensor auxiliary(int64_t step, at::Tensor losses_B) override;
  uint64_t recomputed_key(int64_t step, uint64_t key) override;

 private:
  std::vector<ClassifyFault*> links_;
};

}  // namespace lockstep
