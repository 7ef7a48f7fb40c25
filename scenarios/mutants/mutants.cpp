#include "scenarios/mutants/mutants.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/core/task.h"
#include "scenarios/energy/spec.h"
#include "scenarios/mutants/classify_fault.h"
#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/flow_rl_fault.h"
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

bool changed(const at::Tensor& before, const at::Tensor& after) { return differs(before, after); }
bool changed(const EncodedRows& before, const EncodedRows& after) {
  return !std::ranges::equal(before.tensors, after.tensors,
                             [](const at::Tensor& x, const at::Tensor& y) { return !differs(x, y); });
}
template <class Value>
bool changed(const Value& before, const Value& after) {
  return before != after;
}

struct Link {
  explicit Link(KeyedFault planted)
      : key(std::move(planted.key)),
        fault(std::move(planted.fault)),
        needs_ranks(planted.needs_ranks),
        seams(fault.get(), dynamic_cast<EnergyFault*>(fault.get()), dynamic_cast<FlowRlFault*>(fault.get()),
              dynamic_cast<ClassifyFault*>(fault.get())) {}

  std::string key;
  std::unique_ptr<Mutant> fault;
  bool needs_ranks, acted = false;
  bool has_gradients = false;  ///< a backward pass has been
  std::tuple<Mutant*, EnergyFault*, FlowRlFault*, ClassifyFault*> seams;  ///< null where it does not act
};

/// A hook that gives a step's value back as it is, or another.
#define PASSED(Fault, Value, hook) \
  Value hook(int64_t step, Value value) override { return passed(&Fault::hook, std::move(value), step); }

/// Planted faults in a row: each gets what the one before returned, and has acted where it returned something else.
class FaultsInARow : public Mutant, public EnergyFault, public FlowRlFault, public ClassifyFault {
 public:
  FaultsInARow(std::vector<KeyedFault> faults, const RunConfig& run)
      : run_(run), among_ranks_(run.layout.world_size > 1) {
    for (KeyedFault& fault : faults) links_.emplace_back(std::move(fault));
  }

  std::vector<std::string> acted() const {
    std::vector<std::string> keys;
    for (const Link& link : links_) {
      if (link.acted) keys.push_back(link.key);
    }
    return keys;
  }

  std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) override {
    return planted_comm(&Mutant::above_ledger, std::move(comm));
  }
  std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) override {
    return planted_comm(&Mutant::below_ledger, std::move(comm));
  }
  bool initial_parameters(ParameterList& parameters) override {
    bool broadcast = true;
    each<Mutant>([&](Mutant& fault, Link& link) {
      const Tensors before = copies(parameters.tensors);
      broadcast = fault.initial_parameters(parameters) && broadcast;
      note(link, !all_same_bits(before, parameters.tensors));
    });
    return broadcast;
  }
  void before_step(int64_t step) override {
    each<Mutant>([=](Mutant& fault, Link&) { fault.before_step(step); });
  }
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    return through<Mutant>(std::move(rows), [&](Mutant& fault, auto ids) { return fault.rows(step, ids, rows_of); });
  }
  PASSED(Mutant, double, learning_rate)
  double loss_factor(int64_t step) override {
    return through<Mutant>(1.0, [=](Mutant& fault, double factor) { return factor * fault.loss_factor(step); });
  }
  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return passed(&Mutant::local_gradient, gradient, step, parameter);
  }
  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return passed(&Mutant::sent_gradient, gradient, step, parameter);
  }
  bool keeps_micro_steps(int64_t step) override { return asked(&Mutant::keeps_micro_steps, true, step); }
  bool takes_terms(int64_t step) override {
    bool takes = false;
    each<Mutant>([&](Mutant& fault, Link&) { takes = fault.takes_terms(step) || takes; });
    return takes;
  }
  void term_gradient(int64_t step, const std::string& term, const std::string& parameter,
                     const at::Tensor& gradient) override {
    each<Mutant>([&](Mutant& fault, Link&) { fault.term_gradient(step, term, parameter, gradient); });
  }
  bool reduces(int64_t step) override {
    return asked(&Mutant::reduces, true, step, [this](const Link&) { return among_ranks_; });
  }
  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& comm) override {
    each<Mutant>([&](Mutant& fault, Link& link) {
      const Tensors before = copies(gradients_of(parameters));
      fault.reduced_gradients(step, parameters, comm);
      note(link, !all_same_bits(before, gradients_of(parameters)));
    });
  }
  bool zeroes_gradients(int64_t step) override {
    // Before the first backward pass there is nothing to keep.
    return asked(&Mutant::zeroes_gradients, true, step,
                 [](Link& link) { return std::exchange(link.has_gradients, true); });
  }
  double norm_of_shards(int64_t step, const SquaredNorms& squares, double norm) override {
    return passed(&Mutant::norm_of_shards, norm, step, squares);
  }
  PASSED(Mutant, double, average_decay)
  double clip_norm(int64_t step, double total_norm) override {
    each<Mutant>([&](Mutant& fault, Link& link) {
      // Where one fault leaves out clipping, those behind it have no norm to change.
      const double norm = total_norm < 0 ? total_norm : fault.clip_norm(step, total_norm);
      note(link, clip_factor(norm) != clip_factor(total_norm));
      total_norm = norm;
    });
    return total_norm;
  }
  void before_update(int64_t step, const TrainingState& state) override {
    at_update(&Mutant::before_update, step, state);
  }
  bool updates(int64_t step) override { return asked(&Mutant::updates, true, step); }
  void after_update(int64_t step, const TrainingState& state) override {
    at_update(&Mutant::after_update, step, state);
  }

  Loss& loss(int64_t step, Loss& right) override {
    Loss* last = &right;
    each<EnergyFault>([&](EnergyFault& fault, Link& link) {
      Loss& next = fault.loss(step, *last);
      note(link, &next != last && takes_effect(link));
      last = &next;
    });
    return *last;
  }
  const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
    // By sample, by place and rank, or by place alone: one key tells them apart.
    constexpr int64_t kSample = 12345, kPlace = 1;
    const auto key = [step](const RandomStreams& of) { return of.row_key(Purpose::dropout, step, kSample, kPlace); };
    const RandomStreams* last = &right;
    each<EnergyFault>([&](EnergyFault& fault, Link& link) {
      const RandomStreams& next = fault.streams(step, *last);
      note(link, key(next) != key(*last) && draws());
      last = &next;
    });
    return *last;
  }
  int64_t stream_step(int64_t step) override {
    int64_t last = step;
    each<EnergyFault>([&](EnergyFault& fault, Link& link) {
      // The first fault that names another step decides: the next one would count from the wrong step.
      if (last != step) return;
      last = fault.stream_step(step);
      note(link, last != step && draws());
    });
    return last;
  }
  uint64_t row_key(int64_t step, Purpose purpose, uint64_t key) override {
    return passed(&EnergyFault::row_key, key, step, purpose);
  }
  uint64_t extra_draws(int64_t step, Purpose purpose) override {
    return through<EnergyFault>(uint64_t{0}, [=](EnergyFault& fault, uint64_t draws) {
      return draws + fault.extra_draws(step, purpose);
    });
  }
  uint64_t replay_key(int64_t step, uint64_t key) override {
    each<EnergyFault>([&](EnergyFault& fault, Link& link) {
      const uint64_t replayed = fault.replay_key(step, key);
      note(link, replayed != key && draws_again());
      key = replayed;
    });
    return key;
  }
  PASSED(EnergyFault, double, dropout)
  PASSED(EnergyFault, std::vector<int64_t>, content)
  PASSED(EnergyFault, at::Tensor, context_mask)
  PASSED(EnergyFault, EncodedRows, encoded_context)
  PASSED(EnergyFault, at::Tensor, encoded_action)
  at::Tensor explicit_candidates(int64_t step, at::Tensor candidates,
                                 const std::vector<at::Tensor>& predictions) override {
    return through<EnergyFault>(candidates, [&](EnergyFault& fault, auto value) {
      return fault.explicit_candidates(step, value, predictions);
    });
  }
  PASSED(EnergyFault, at::Tensor, temperature)

  bool never_synchronised(int64_t step) override { return asked(&FlowRlFault::never_synchronised, false, step); }
  PASSED(FlowRlFault, FlowConfig, acted_flow)
  PASSED(FlowRlFault, uint64_t, noise_key)
  PASSED(FlowRlFault, at::Tensor, trained_chains)
  PASSED(FlowRlFault, std::vector<double>, schedule)
  PASSED(FlowRlFault, std::vector<double>, trained_sigmas)
  bool without_sigma(int64_t step) override { return asked(&FlowRlFault::without_sigma, false, step); }
  PASSED(FlowRlFault, at::Tensor, old_log_pi)
  PASSED(FlowRlFault, at::Tensor, log_pi)
  PASSED(FlowRlFault, int, reward_root)
  void score(int64_t step) override {
    each<FlowRlFault>([=](FlowRlFault& fault, Link&) { fault.score(step); });
  }
  PASSED(FlowRlFault, at::Tensor, scores)
  bool local_statistics(int64_t step) override { return asked(&FlowRlFault::local_statistics, false, step); }
  std::vector<double> advantages(int64_t step, const AdvantageRows& rows, std::vector<double> right) override {
    return passed(&FlowRlFault::advantages, std::move(right), step, rows);
  }
  double row_weight(int64_t step, const WeightCounts& counts, double right) override {
    return passed(&FlowRlFault::row_weight, right, step, counts);
  }
  PASSED(FlowRlFault, double, kl_weight)

  double loss_weight(int64_t step, double weight, const DenominatorCounts& counts) override {
    return through<ClassifyFault>(weight, [&](ClassifyFault& fault, double value) {
      return fault.loss_weight(step, value, counts);
    });
  }
  PASSED(ClassifyFault, at::Tensor, auxiliary)
  PASSED(ClassifyFault, uint64_t, recomputed_key)

 private:
  static void note(Link& link, bool changed) { link.acted = link.acted || changed; }
  /// Some faults do nothing where there is one rank alone, whatever they return.
  bool takes_effect(const Link& link) const { return among_ranks_ || !link.needs_ranks; }
  template <class Fault>
  bool takes_effect(const Link& link) const {
    return std::is_same_v<Fault, Mutant> || std::is_same_v<Fault, EnergyFault> || takes_effect(link);
  }

  template <class Fault, class Call>
  void each(Call call) {
    for (Link& link : links_) {
      if (Fault* const fault = std::get<Fault*>(link.seams)) call(*fault, link);
    }
  }
  template <class Fault, class Value, class Ask>
  Value through(Value value, Ask ask) {
    each<Fault>([&](Fault& fault, Link& link) {
      Value after = ask(fault, value);
      note(link, changed(value, after) && takes_effect<Fault>(link));
      value = std::move(after);
    });
    return value;
  }
  /// `before`: what the hook takes before the value.
  template <class Fault, class Value, class... Parameters, class... Arguments>
  Value passed(Value (Fault::*hook)(Parameters...), std::type_identity_t<Value> value, const Arguments&... before) {
    return through<Fault>(std::move(value), [&](Fault& fault, Value given) {
      return (fault.*hook)(before..., std::move(given));
    });
  }
  /// Every one is asked, whatever those before it said; one that does not say the usual decides.
  template <class Fault, class Counts = bool (*)(Link&)>
  bool asked(bool (Fault::*hook)(int64_t), bool usual, int64_t step, Counts counts = [](Link&) { return true; }) {
    bool answer = usual;
    each<Fault>([&](Fault& fault, Link& link) {
      const bool said = (fault.*hook)(step);
      const bool notable = counts(link);
      note(link, said != usual && notable && takes_effect<Fault>(link));
      if (said != usual) answer = said;
    });
    return answer;
  }
  void at_update(void (Mutant::*hook)(int64_t, const TrainingState&), int64_t step, const TrainingState& state) {
    each<Mutant>([&](Mutant& fault, Link& link) {
      const StateBefore before(state);
      (fault.*hook)(step, state);
      note(link, !before.equals(state));
    });
  }
  using Wrap = std::unique_ptr<Comm> (Mutant::*)(std::unique_ptr<Comm>);
  std::unique_ptr<Comm> planted_comm(Wrap hook, std::unique_ptr<Comm> comm) {
    each<Mutant>([&](Mutant& fault, Link& link) {
      const auto plant = [&](std::unique_ptr<Comm> inner) { return (fault.*hook)(std::move(inner)); };
      comm = watched_comm(std::move(comm), plant, [&link] { link.acted = true; });
    });
    return comm;
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

  std::vector<Link> links_;
  const RunConfig run_;
  const bool among_ranks_;
};

#undef PASSED

const std::vector<MutantRow>& all_rows() {
  static const std::vector<MutantRow> all = [] {
    std::vector<MutantRow> rows;
    for (const auto add : kMutantTables) add(rows);
    return rows;
  }();
  return all;
}

std::unique_ptr<Mutant> fault_of(const Planting& planting) {
  const std::string& name = planting.config.name;
  const auto row = std::ranges::find_if(all_rows(), [&](const MutantRow& one) { return one.entry.name == name; });
  if (row == all_rows().end()) throw std::invalid_argument("no mutant is called " + name);
  return row->make(planting);
}

}  // namespace

std::vector<std::string> acted_faults(const Mutant* mutant) {
  const auto* faults = dynamic_cast<const FaultsInARow*>(mutant);
  return faults == nullptr ? std::vector<std::string>{} : faults->acted();
}

std::unique_ptr<Mutant> in_a_row(std::vector<KeyedFault> faults, const RunConfig& run) {
  return faults.empty() ? nullptr : std::make_unique<FaultsInARow>(std::move(faults), run);
}

std::unique_ptr<Mutant> make_mutant(const RunConfig& run, int rank) {
  const std::pair<const char*, const MutantConfig&> configured[] = {{"mutant", run.mutant},
                                                                    {"second_mutant", run.second_mutant}};
  std::vector<KeyedFault> faults;
  for (const auto& [key, config] : configured) {
    const MutantEntry* const entry = find_mutant(config.name);
    const bool left_out = run.forced.twin && entry != nullptr && entry->arithmetic;
    if (config.name == "none" || left_out || (config.rank >= 0 && config.rank != rank)) continue;
    faults.push_back({key, fault_of({config, run, rank}), entry != nullptr && entry->min_world > 1});
  }
  return in_a_row(std::move(faults), run);
}

}  // namespace lockstep
