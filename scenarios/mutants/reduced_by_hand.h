#pragma once
// Planted faults in the reduction of gradients: the local ones are kept, and reduced again in another way.

#include <map>
#include <string>

#include "scenarios/mutants/planted.h"

namespace lockstep {

class ReducedByHand : public Planted {
 public:
  using Planted::Planted;

  std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) override {
    network_ = comm.get();
    return comm;
  }
  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override;
  /// Collective: every rank must have this mutant.
  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& comm) override;

 protected:
  /// Called once a step with this rank's local gradients, before they are sent.
  virtual void prepare(const std::map<std::string, at::Tensor>& /*local*/) {}
  virtual at::Tensor to_send(const at::Tensor& local) { return local; }
  /// Contributions of all ranks [V, ...] -> the reduced gradient.
  virtual at::Tensor reduce(const at::Tensor& all_V) = 0;

 private:
  Comm* network_ = nullptr;  // below the ledger, which has recorded the reducer's own
  std::map<std::string, at::Tensor> local_;
};

/// L2 norm of all tensors together.
double norm_of(const std::map<std::string, at::Tensor>& tensors);

}  // namespace lockstep
