// Several planted faults at once.

#include <ATen/ATen.h>

#include "scenarios/mutants/classify_seams.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/flow_rl_seams.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/witness.h"

namespace lockstep {
namespace {

class Chain : public Mutant, public EnergyFault, public ChainedFlowRl, public ChainedClassify, public Watched {
 public:
  explicit Chain(std::vector<std::unique_ptr<Mutant>> links) : links_(std::move(links)) {
    for (const std::unique_ptr<Mutant>& link : links_) {
      if (auto* inside = dynamic_cast<EnergyFault*>(link.get())) {
        inside_.push_back(inside);
      }
      if (auto* link_inside = dynamic_cast<FlowRlFault*>(link.get())) ChainedFlowRl::add(link_inside);
      if (auto* link_inside = dynamic_cast<ClassifyFault*>(link.get())) ChainedClassify::add(link_inside);
    }
  }

  std::vector<std::string> acted() const override {
    std::vector<std::string> keys;
    for (const std::unique_ptr<Mutant>& link : links_) {
      for (std::string& key : acted_faults(link.get())) {
        keys.push_back(std::move(key));
      }
    }
    return keys;
  }

  std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) override {
    return passed(std::move(comm),
                  [](Mutant& link, auto inner) { return link.above_ledger(std::move(inner)); });
  }
  std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) override {
    return passed(std::move(comm),
                  [](Mutant& link, auto inner) { return link.below_ledger(std::move(inner)); });
  }
  bool initial_parameters(ParameterList& parameters) override {
    return all([&](Mutant& link) { return link.initial_parameters(parameters); });
  }
  void before_step(int64_t step) override {
    each([=](Mutant& link) { link.before_step(step); });
  }
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    return passed(std::move(rows),
                  [&](Mutant& link, auto ids) { return link.rows(step, std::move(ids), rows_of); });
  }
  double learning_rate(int64_t step, double rate) override {
    return passed(rate, [=](Mutant& link, double value) { return link.learning_rate(step, value); });
  }
  double loss_factor(int64_t step) override {
    return passed(1.0, [=](Mutant& link, double factor) { return factor * link.loss_factor(step); });
  }
  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return passed(gradient, [&](Mutant& link, const at::Tensor& value) {
      return link.local_gradient(step, parameter, value);
    });
  }
  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return passed(gradient, [&](Mutant& link, const at::Tensor& value) {
      return link.sent_gradient(step, parameter, value);
    });
  }
  bool keeps_micro_steps(int64_t step) override {
    return all([=](Mutant& link) { return link.keeps_micro_steps(step); });
  }
  bool takes_terms(int64_t step) override {
    bool takes = false;
    each([&](Mutant& link) { takes = link.takes_terms(step) || takes; });
    return takes;
  }
  void term_gradient(int64_t step, const std::string& term, const std::string& parameter,
                     const at::Tensor& gradient) override {
    each([&](Mutant& link) { link.term_gradient(step, term, parameter, gradient); });
  }
  bool reduces(int64_t step) override {
    return all([=](Mutant& link) { return link.reduces(step); });
  }
  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& comm) override {
    each([&](Mutant& link) { link.reduced_gradients(step, parameters, comm); });
  }
  bool zeroes_gradients(int64_t step) override {
    return all([=](Mutant& link) { return link.zeroes_gradients(step); });
  }
  double norm_of_shards(int64_t step, const SquaredNorms& squares, double norm) override {
    return passed(norm, [&](Mutant& link, double value) { return link.norm_of_shards(step, squares, value); });
  }
  double average_decay(int64_t step, double decay) override {
    return passed(decay, [=](Mutant& link, double value) { return link.average_decay(step, value); });
  }
  double clip_norm(int64_t step, double total_norm) override {
    // Where one fault leaves out clipping, those behind it have no norm to change.
    return passed(total_norm,
                  [=](Mutant& link, double norm) { return norm < 0 ? norm : link.clip_norm(step, norm); });
  }
  void before_update(int64_t step, const TrainingState& state) override {
    each([&](Mutant& link) { link.before_update(step, state); });
  }
  bool updates(int64_t step) override {
    return all([=](Mutant& link) { return link.updates(step); });
  }
  void after_update(int64_t step, const TrainingState& state) override {
    each([&](Mutant& link) { link.after_update(step, state); });
  }

  Loss& loss(int64_t step, Loss& right) override {
    Loss* last = &right;
    for (EnergyFault* fault : inside_) {
      last = &fault->loss(step, *last);
    }
    return *last;
  }
  const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
    const RandomStreams* last = &right;
    for (EnergyFault* fault : inside_) {
      last = &fault->streams(step, *last);
    }
    return *last;
  }
  int64_t stream_step(int64_t step) override {
    // The first fault that names another step decides: the next one would count from the wrong step.
    return inside(step, [=](EnergyFault& fault, int64_t value) {
      return value != step ? value : fault.stream_step(value);
    });
  }
  uint64_t row_key(int64_t step, Purpose purpose, uint64_t key) override {
    return inside(key,
                  [=](EnergyFault& fault, uint64_t value) { return fault.row_key(step, purpose, value); });
  }
  uint64_t extra_draws(int64_t step, Purpose purpose) override {
    return inside(uint64_t{0}, [=](EnergyFault& fault, uint64_t draws) {
      return draws + fault.extra_draws(step, purpose);
    });
  }
  uint64_t replay_key(int64_t step, uint64_t key) override {
    return inside(key, [=](EnergyFault& fault, uint64_t value) { return fault.replay_key(step, value); });
  }
  double dropout(int64_t step, double probability) override {
    return inside(probability, [=](EnergyFault& fault, double value) { return fault.dropout(step, value); });
  }
  std::vector<int64_t> content(int64_t step, std::vector<int64_t> ids) override {
    return inside(std::move(ids),
                  [=](EnergyFault& fault, auto value) { return fault.content(step, std::move(value)); });
  }
  at::Tensor context_mask(int64_t step, at::Tensor mask) override {
    return inside(mask, [=](EnergyFault& fault, auto value) { return fault.context_mask(step, value); });
  }
  EncodedRows encoded_context(int64_t step, EncodedRows rows) override {
    return inside(std::move(rows), [=](EnergyFault& fault, auto value) {
      return fault.encoded_context(step, std::move(value));
    });
  }
  at::Tensor encoded_action(int64_t step, at::Tensor action) override {
    return inside(action, [=](EnergyFault& fault, auto value) { return fault.encoded_action(step, value); });
  }
  at::Tensor explicit_candidates(int64_t step, at::Tensor candidates,
                                 const std::vector<at::Tensor>& predictions) override {
    return inside(candidates, [&](EnergyFault& fault, auto value) {
      return fault.explicit_candidates(step, value, predictions);
    });
  }
  at::Tensor temperature(int64_t step, at::Tensor tau) override {
    return inside(tau, [=](EnergyFault& fault, auto value) { return fault.temperature(step, value); });
  }

 private:
  template <typename Call>
  void each(Call call) {
    for (const std::unique_ptr<Mutant>& link : links_) {
      call(*link);
    }
  }
  /// Every one is asked, whatever those before it said.
  template <typename Ask>
  bool all(Ask ask) {
    bool yes = true;
    each([&](Mutant& link) { yes = ask(link) && yes; });
    return yes;
  }
  template <typename Value, typename Ask>
  Value passed(Value value, Ask ask) {
    each([&](Mutant& link) { value = ask(link, std::move(value)); });
    return value;
  }
  template <typename Value, typename Ask>
  Value inside(Value value, Ask ask) {
    for (EnergyFault* fault : inside_) {
      value = ask(*fault, std::move(value));
    }
    return value;
  }

  std::vector<std::unique_ptr<Mutant>> links_;
  std::vector<EnergyFault*> inside_;  ///< those of them that act inside the trainer
};

}  // namespace

std::unique_ptr<Mutant> make_chain(std::vector<std::unique_ptr<Mutant>> links) {
  if (links.empty()) {
    return nullptr;
  }
  if (links.size() == 1) {
    return std::move(links.front());
  }
  return std::make_unique<Chain>(std::move(links));
}

}  // namespace lockstep
