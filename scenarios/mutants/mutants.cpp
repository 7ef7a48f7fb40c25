#include "scenarios/mutants/mutants.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/core/task.h"
#include "scenarios/energy/spec.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/seams.h"
#include "scenarios/mutants/table.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors copies(const Tensors& tensors) {
  Tensors copied;
  for (const at::Tensor& tensor : tensors) {
    copied.push_back(tensor.defined() ? tensor.detach().clone() : at::Tensor());
  }
  return copied;
}

bool all_same_bits(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return lockstep::same_bits(x, y); });
}

Tensors gradients_of(const ParameterList& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters.tensors) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

/// All that an update reads and writes.
struct StateBefore {
  explicit StateBefore(const TrainingState& state)
      : parameters(copies(state.parameters.tensors)),
        first_moments(copies(state.optimizer.first_moments())),
        second_moments(copies(state.optimizer.second_moments())),
        updates(state.optimizer.updates()),
        config(state.optimizer.config()) {}

  bool equals(const TrainingState& state) const {
    RunConfig now = state.optimizer.config();
    if (config.weight_decay == 0 && now.weight_decay == 0 && config.optimizer != OptimizerKind::sgd &&
        now.optimizer != OptimizerKind::sgd) {
      now.optimizer = config.optimizer;  // Adam and AdamW differ in the weight decay alone.
    }
    return updates == state.optimizer.updates() && same_config(config, now) &&
           all_same_bits(parameters, state.parameters.tensors) &&
           all_same_bits(first_moments, state.optimizer.first_moments()) &&
           all_same_bits(second_moments, state.optimizer.second_moments());
  }

  Tensors parameters, first_moments, second_moments;
  int64_t updates;
  RunConfig config;
};

class Witness : public Mutant, public EnergyFault, public WatchedFlowRl, public WatchedClassify, public Watched {
 public:
  Witness(std::unique_ptr<Mutant> fault, const Planting& planting, std::string key)
      : WatchedFlowRl(dynamic_cast<FlowRlFault*>(fault.get()), [this] { note(among_ranks_ || !needs_ranks_); }),
        WatchedClassify(dynamic_cast<ClassifyFault*>(fault.get()), [this] { note(among_ranks_ || !needs_ranks_); }),
        fault_(std::move(fault)),
        inside_(dynamic_cast<EnergyFault*>(fault_.get())),
        run_(planting.run),
        key_(std::move(key)),
        among_ranks_(planting.run.layout.world_size > 1) {
    const MutantEntry* entry = find_mutant(planting.config.name);
    needs_ranks_ = entry != nullptr && entry->min_world > 1;
  }

  std::vector<std::string> acted() const override {
    return acted_ ? std::vector<std::string>{key_} : std::vector<std::string>{};
  }

  std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) override {
    const auto plant = [this](std::unique_ptr<Comm> inner) { return fault_->above_ledger(std::move(inner)); };
    return watched_comm(std::move(comm), plant, [this] { acted_ = true; });
  }
  std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) override {
    const auto plant = [this](std::unique_ptr<Comm> inner) { return fault_->below_ledger(std::move(inner)); };
    return watched_comm(std::move(comm), plant, [this] { acted_ = true; });
  }

  bool initial_parameters(ParameterList& parameters) override {
    const Tensors before = copies(parameters.tensors);
    const bool broadcast = fault_->initial_parameters(parameters);
    note(!all_same_bits(before, parameters.tensors));
    return broadcast;
  }
  void before_step(int64_t step) override { fault_->before_step(step); }
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    return noted(rows, fault_->rows(step, rows, rows_of));
  }
  double learning_rate(int64_t step, double rate) override {
    return noted(rate, fault_->learning_rate(step, rate));
  }
  double loss_factor(int64_t step) override { return noted(1.0, fault_->loss_factor(step)); }
  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return noted_bits(gradient, fault_->local_gradient(step, parameter, gradient));
  }
  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return noted_bits(gradient, fault_->sent_gradient(step, parameter, gradient));
  }
  bool keeps_micro_steps(int64_t step) override { return noted(true, fault_->keeps_micro_steps(step)); }
  bool takes_terms(int64_t step) override { return fault_->takes_terms(step); }
  void term_gradient(int64_t step, const std::string& term, const std::string& parameter,
                     const at::Tensor& gradient) override {
    fault_->term_gradient(step, term, parameter, gradient);
  }
  bool reduces(int64_t step) override {
    const bool reduces = fault_->reduces(step);
    note(!reduces && among_ranks_);
    return reduces;
  }
  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& comm) override {
    const Tensors before = copies(gradients_of(parameters));
    fault_->reduced_gradients(step, parameters, comm);
    note(!all_same_bits(before, gradients_of(parameters)));
  }
  bool zeroes_gradients(int64_t step) override {
    const bool zeroes = fault_->zeroes_gradients(step);
    note(!zeroes && has_gradients_);  // Before the first backward pass there is nothing to keep.
    has_gradients_ = true;
    return zeroes;
  }
  double norm_of_shards(int64_t step, const SquaredNorms& squares, double norm) override {
    return noted(norm, fault_->norm_of_shards(step, squares, norm));
  }
  double average_decay(int64_t step, double decay) override {
    return noted(decay, fault_->average_decay(step, decay));
  }
  double clip_norm(int64_t step, double total_norm) override {
    const double norm = fault_->clip_norm(step, total_norm);
    note(clip_factor(norm) != clip_factor(total_norm));
    return norm;
  }
  void before_update(int64_t step, const TrainingState& state) override {
    const StateBefore before(state);
    fault_->before_update(step, state);
    note(!before.equals(state));
  }
  bool updates(int64_t step) override { return noted(true, fault_->updates(step)); }
  void after_update(int64_t step, const TrainingState& state) override {
    const StateBefore before(state);
    fault_->after_update(step, state);
    note(!before.equals(state));
  }

  Loss& loss(int64_t step, Loss& right) override {
    Loss& loss = inside_ == nullptr ? right : inside_->loss(step, right);
    note(&loss != &right && (among_ranks_ || !needs_ranks_));
    return loss;
  }
  const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
    const RandomStreams& streams = inside_ == nullptr ? right : inside_->streams(step, right);
    // By sample, by place and rank, or by place alone: one key tells them apart.
    constexpr int64_t kSample = 12345, kPlace = 1;
    const auto key = [step](const RandomStreams& of) {
      return of.row_key(Purpose::dropout, step, kSample, kPlace);
    };
    note(draws() && key(streams) != key(right));
    return streams;
  }
  int64_t stream_step(int64_t step) override {
    const int64_t other = inside_ == nullptr ? step : inside_->stream_step(step);
    note(draws() && other != step);
    return other;
  }
  uint64_t row_key(int64_t step, Purpose purpose, uint64_t key) override {
    return inside_ == nullptr ? key : noted(key, inside_->row_key(step, purpose, key));
  }
  uint64_t extra_draws(int64_t step, Purpose purpose) override {
    return inside_ == nullptr ? 0 : noted(uint64_t{0}, inside_->extra_draws(step, purpose));
  }
  uint64_t replay_key(int64_t step, uint64_t key) override {
    const uint64_t replayed = inside_ == nullptr ? key : inside_->replay_key(step, key);
    note(replayed != key && draws_again());
    return replayed;
  }
  double dropout(int64_t step, double probability) override {
    return inside_ == nullptr ? probability : noted(probability, inside_->dropout(step, probability));
  }
  std::vector<int64_t> content(int64_t step, std::vector<int64_t> ids) override {
    return inside_ == nullptr ? ids : noted(ids, inside_->content(step, ids));
  }
  at::Tensor context_mask(int64_t step, at::Tensor mask) override {
    return inside_ == nullptr ? mask : noted_graph(mask, inside_->context_mask(step, mask));
  }
  EncodedRows encoded_context(int64_t step, EncodedRows rows) override {
    if (inside_ == nullptr) {
      return rows;
    }
    const Tensors before = rows.tensors;
    EncodedRows after = inside_->encoded_context(step, std::move(rows));
    note(!std::equal(before.begin(), before.end(), after.tensors.begin(), after.tensors.end(),
                     [](const at::Tensor& x, const at::Tensor& y) { return !differs(x, y); }));
    return after;
  }
  at::Tensor encoded_action(int64_t step, at::Tensor action) override {
    return inside_ == nullptr ? action : noted_graph(action, inside_->encoded_action(step, action));
  }
  at::Tensor explicit_candidates(int64_t step, at::Tensor candidates,
                                 const std::vector<at::Tensor>& predictions) override {
    return inside_ == nullptr
               ? candidates
               : noted_graph(candidates, inside_->explicit_candidates(step, candidates, predictions));
  }
  at::Tensor temperature(int64_t step, at::Tensor tau) override {
    return inside_ == nullptr ? tau : noted_graph(tau, inside_->temperature(step, tau));
  }

 private:
  void note(bool changed) { acted_ = acted_ || changed; }
  template <typename Value>
  Value noted(const Value& before, Value after) {
    note(before != after);
    return after;
  }
  at::Tensor noted_bits(const at::Tensor& before, at::Tensor after) {
    note(!lockstep::same_bits(before, after));
    return after;
  }
  at::Tensor noted_graph(const at::Tensor& before, at::Tensor after) {
    note(differs(before, after));
    return after;
  }

  double clip_factor(double norm) const {
    return norm < 0 ? 1 : std::min(1.0, run_.clip_norm / (norm + 1e-6));
  }

  /// Does a row draw anything from its streams?
  bool draws() const { return energy(run_).dropout > 0 || energy(run_).context_noise > 0 || makes_negatives(run_); }

  /// Are energies computed a second time, from masks that are drawn again?
  bool draws_again() const {
    const Layout& layout = run_.layout;
    const Negatives negatives = resolved_negatives(run_);
    const int64_t rows = negatives == Negatives::local ? layout.rows_per_rank : layout.global_batch();
    return energy(run_).activation_checkpointing ||
           (negatives != Negatives::layer && energy(run_).tile_columns < rows / run_.accumulation);
  }

  std::unique_ptr<Mutant> fault_;
  EnergyFault* inside_;  ///< the same, if it acts inside the trainer
  const RunConfig run_;
  const std::string key_;
  const bool among_ranks_;
  bool needs_ranks_ = false;
  bool has_gradients_ = false;
  bool acted_ = false;
};

}  // namespace

/// The fault itself with every call passed on, and noted where what comes back has other bits than what went
/// in, or another graph behind it. `key` is the config's: "mutant" or "second_mutant".
static std::unique_ptr<Mutant> make_witness(std::unique_ptr<Mutant> fault, const Planting& planting,
                                     const std::string& key) {
  return std::make_unique<Witness>(std::move(fault), planting, key);
}

std::vector<std::string> acted_faults(const Mutant* mutant) {
  const auto* watched = dynamic_cast<const Watched*>(mutant);
  return watched == nullptr ? std::vector<std::string>{} : watched->acted();
}

namespace {

const std::vector<MutantRow>& all_rows() {
  static const std::vector<MutantRow> all = [] {
    std::vector<MutantRow> rows;
    for (const auto add : kMutantTables) add(rows);
    return rows;
  }();
  return all;
}

std::unique_ptr<Mutant> make_one(const Planting& planting, const char* key) {
  const std::string& name = planting.config.name;
  const auto row = std::find_if(all_rows().begin(), all_rows().end(),
                                [&name](const MutantRow& one) { return one.entry.name == name; });
  if (row == all_rows().end()) {
    throw std::invalid_argument("no mutant is called " + name);
  }
  return make_witness(row->make(planting), planting, key);
}

bool acts_on_arithmetic(const std::string& name) {
  const MutantEntry* const entry = find_mutant(name);
  return entry != nullptr && entry->arithmetic;
}

}  // namespace

std::unique_ptr<Mutant> make_mutant(const RunConfig& run, int rank) {
  const std::pair<const char*, const MutantConfig&> configured[] = {{"mutant", run.mutant},
                                                                    {"second_mutant", run.second_mutant}};
  std::vector<std::unique_ptr<Mutant>> links;
  for (const auto& [key, config] : configured) {
    if (config.name == "none" || (run.forced.twin && acts_on_arithmetic(config.name))) {
      continue;
    }
    if (config.rank < 0 || config.rank == rank) {
      links.push_back(make_one({config, run, rank}, key));
    }
  }
  return make_chain(std::move(links));
}

// Several planted faults at once.
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
