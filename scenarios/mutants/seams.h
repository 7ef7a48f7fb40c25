#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "scenarios/mutants/classify_fault.h"
#include "scenarios/mutants/flow_rl_fault.h"

// Faults inside the trainer flow_rl, watched and in a row: what witness.h and mutants.h promise, for its calls.

namespace lockstep {

/// Passes every call on, and notes where what comes back is not what went in.
class WatchedFlowRl : public FlowRlFault {
 public:
  /// inside: or null.
  WatchedFlowRl(FlowRlFault* inside, std::function<void()> acted) : inside_(inside), acted_(std::move(acted)) {}

  bool never_synchronised(int64_t step) override;
  uint64_t noise_key(int64_t step, uint64_t key) override;
  at::Tensor trained_chains(int64_t step, at::Tensor chains) override;
  std::vector<double> schedule(int64_t step, std::vector<double> points) override;
  std::vector<double> trained_sigmas(int64_t step, std::vector<double> sigmas) override;
  bool without_sigma(int64_t step) override;
  at::Tensor old_log_pi(int64_t step, at::Tensor log_pi) override;
  at::Tensor log_pi(int64_t step, at::Tensor log_pi) override;
  int reward_root(int64_t step, int root) override;
  at::Tensor scores(int64_t step, at::Tensor scores) override;
  bool local_statistics(int64_t step) override;
  void score(int64_t step) override;
  std::vector<double> advantages(int64_t step, const AdvantageRows& rows, std::vector<double> right) override;
  double row_weight(int64_t step, const WeightCounts& counts, double right) override;
  double kl_weight(int64_t step, double weight) override;

 private:
  template <typename Value>
  Value noted(const Value& before, Value after) {
    if (!(before == after)) acted_();
    return after;
  }
  at::Tensor noted_tensor(const at::Tensor& before, at::Tensor after);

  FlowRlFault* inside_;
  std::function<void()> acted_;
};

/// Each gets what the one before returned.
class ChainedFlowRl : public FlowRlFault {
 public:
  void add(FlowRlFault* link) { links_.push_back(link); }

  bool never_synchronised(int64_t step) override;
  uint64_t noise_key(int64_t step, uint64_t key) override;
  at::Tensor trained_chains(int64_t step, at::Tensor chains) override;
  std::vector<double> schedule(int64_t step, std::vector<double> points) override;
  std::vector<double> trained_sigmas(int64_t step, std::vector<double> sigmas) override;
  bool without_sigma(int64_t step) override;
  at::Tensor old_log_pi(int64_t step, at::Tensor log_pi) override;
  at::Tensor log_pi(int64_t step, at::Tensor log_pi) override;
  int reward_root(int64_t step, int root) override;
  at::Tensor scores(int64_t step, at::Tensor scores) override;
  bool local_statistics(int64_t step) override;
  void score(int64_t step) override;
  std::vector<double> advantages(int64_t step, const AdvantageRows& rows, std::vector<double> right) override;
  double row_weight(int64_t step, const WeightCounts& counts, double right) override;
  double kl_weight(int64_t step, double weight) override;

 private:
  template <typename Value, typename Ask>
  Value through(Value value, const Ask& ask) {
    for (FlowRlFault* link : links_) value = ask(*link, std::move(value));
    return value;
  }

  std::vector<FlowRlFault*> links_;
};

// Faults inside the trainer classify, watched and in a row: what witness.h and mutants.h promise, for its calls.

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

// A communicator around a planted fault and one inside of it: what is called outside must arrive inside, and
// what is delivered inside must come out.

/// `plant` puts the fault's communicator around the one that it is given, or returns that one itself. Calls
/// `acted` whenever a call is left out, added or changed between the two.
std::unique_ptr<Comm> watched_comm(std::unique_ptr<Comm> comm,
                                   const std::function<std::unique_ptr<Comm>(std::unique_ptr<Comm>)>& plant,
                                   std::function<void()> acted);

/// Equal type, shape and bits; two undefined tensors too.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// Of other bits. In a graph, equal numbers may have other gradients: there any other tensor counts as different.
bool differs(const at::Tensor& before, const at::Tensor& after);

}  // namespace lockstep
