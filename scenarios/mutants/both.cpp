// Two planted faults at once.

#include <ATen/ATen.h>

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/witness.h"

namespace lockstep {
namespace {

class Both : public Mutant, public EnergyFault, public Watched {
 public:
  Both(std::unique_ptr<Mutant> first, std::unique_ptr<Mutant> second)
      : a_(std::move(first)),
        b_(std::move(second)),
        in_a_(dynamic_cast<EnergyFault*>(a_.get())),
        in_b_(dynamic_cast<EnergyFault*>(b_.get())) {}

  std::vector<std::string> acted() const override {
    std::vector<std::string> keys = acted_faults(a_.get());
    const std::vector<std::string> others = acted_faults(b_.get());
    keys.insert(keys.end(), others.begin(), others.end());
    return keys;
  }

  std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) override {
    return b_->above_ledger(a_->above_ledger(std::move(comm)));
  }
  std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) override {
    return b_->below_ledger(a_->below_ledger(std::move(comm)));
  }
  bool initial_parameters(ParameterList& parameters) override {
    const bool first = a_->initial_parameters(parameters);
    return b_->initial_parameters(parameters) && first;
  }
  void before_step(int64_t step) override {
    a_->before_step(step);
    b_->before_step(step);
  }
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    return b_->rows(step, a_->rows(step, std::move(rows), rows_of), rows_of);
  }
  double learning_rate(int64_t step, double rate) override {
    return b_->learning_rate(step, a_->learning_rate(step, rate));
  }
  double loss_factor(int64_t step) override { return a_->loss_factor(step) * b_->loss_factor(step); }
  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return b_->local_gradient(step, parameter, a_->local_gradient(step, parameter, gradient));
  }
  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return b_->sent_gradient(step, parameter, a_->sent_gradient(step, parameter, gradient));
  }
  bool reduces(int64_t step) override {
    const bool first = a_->reduces(step);
    return b_->reduces(step) && first;
  }
  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& comm) override {
    a_->reduced_gradients(step, parameters, comm);
    b_->reduced_gradients(step, parameters, comm);
  }
  bool zeroes_gradients(int64_t step) override {
    const bool first = a_->zeroes_gradients(step);
    return b_->zeroes_gradients(step) && first;
  }
  double clip_norm(int64_t step, double total_norm) override {
    const double first = a_->clip_norm(step, total_norm);
    return first < 0 ? first : b_->clip_norm(step, first);
  }
  void before_update(int64_t step, const TrainingState& state) override {
    a_->before_update(step, state);
    b_->before_update(step, state);
  }
  bool updates(int64_t step) override {
    const bool first = a_->updates(step);
    return b_->updates(step) && first;
  }
  void after_update(int64_t step, const TrainingState& state) override {
    a_->after_update(step, state);
    b_->after_update(step, state);
  }

  Loss& loss(int64_t step, Loss& right) override {
    Loss& first = in_a_ == nullptr ? right : in_a_->loss(step, right);
    return in_b_ == nullptr ? first : in_b_->loss(step, first);
  }
  const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
    const RandomStreams& first = in_a_ == nullptr ? right : in_a_->streams(step, right);
    return in_b_ == nullptr ? first : in_b_->streams(step, first);
  }
  int64_t stream_step(int64_t step) override {
    const int64_t first = in_a_ == nullptr ? step : in_a_->stream_step(step);
    return in_b_ == nullptr || first != step ? first : in_b_->stream_step(step);
  }
  uint64_t row_key(int64_t step, Purpose purpose, uint64_t key) override {
    return each(key, [=](EnergyFault& fault, uint64_t value) { return fault.row_key(step, purpose, value); });
  }
  uint64_t extra_draws(int64_t step, Purpose purpose) override {
    return (in_a_ == nullptr ? 0 : in_a_->extra_draws(step, purpose)) +
           (in_b_ == nullptr ? 0 : in_b_->extra_draws(step, purpose));
  }
  uint64_t replay_key(int64_t step, uint64_t key) override {
    return each(key, [=](EnergyFault& fault, uint64_t value) { return fault.replay_key(step, value); });
  }
  double dropout(int64_t step, double probability) override {
    return each(probability, [step](EnergyFault& fault, double value) { return fault.dropout(step, value); });
  }
  std::vector<int64_t> content(int64_t step, std::vector<int64_t> ids) override {
    return each(std::move(ids), [step](EnergyFault& fault, std::vector<int64_t> value) {
      return fault.content(step, std::move(value));
    });
  }
  at::Tensor context_mask(int64_t step, at::Tensor mask) override {
    return each(mask,
                [step](EnergyFault& fault, at::Tensor value) { return fault.context_mask(step, value); });
  }
  EncodedRows encoded_context(int64_t step, EncodedRows rows) override {
    return each(std::move(rows), [step](EnergyFault& fault, EncodedRows value) {
      return fault.encoded_context(step, std::move(value));
    });
  }
  at::Tensor encoded_action(int64_t step, at::Tensor action) override {
    return each(action,
                [step](EnergyFault& fault, at::Tensor value) { return fault.encoded_action(step, value); });
  }
  at::Tensor explicit_candidates(int64_t step, at::Tensor candidates,
                                 const std::vector<at::Tensor>& predictions) override {
    return each(candidates, [&](EnergyFault& fault, at::Tensor value) {
      return fault.explicit_candidates(step, value, predictions);
    });
  }
  at::Tensor temperature(int64_t step, at::Tensor tau) override {
    return each(tau, [step](EnergyFault& fault, at::Tensor value) { return fault.temperature(step, value); });
  }

 private:
  template <typename Value, typename Ask>
  Value each(Value value, Ask ask) {
    value = in_a_ == nullptr ? std::move(value) : ask(*in_a_, std::move(value));
    return in_b_ == nullptr ? std::move(value) : ask(*in_b_, std::move(value));
  }
  std::unique_ptr<Mutant> a_, b_;
  EnergyFault *in_a_, *in_b_;
};

}  // namespace

std::unique_ptr<Mutant> make_both(std::unique_ptr<Mutant> first, std::unique_ptr<Mutant> second) {
  return std::make_unique<Both>(std::move(first), std::move(second));
}

}  // namespace lockstep
