#include "scenarios/energy/task.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "harness/base/json.h"
#include "harness/lib/data/sampler.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/exact_sum.h"
#include "harness/trainers/core/task.h"
#include "losses/block.h"
#include "losses/loss.h"
#include "scenarios/energy/energy_step.h"
#include "scenarios/energy/model.h"
#include "scenarios/energy/spec.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/samples.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

constexpr int64_t kFittedCandidates = 24;
constexpr uint64_t kGroupingSeed = 20240229;  // Which pairs meet in a group is the same for every run.
constexpr int64_t kEnergyRowsAtOnce = 8;            // Keeps the block of energies in the processor's cache.

/// Energies of each group's rows against its own candidates: [groups * N, N].
/// With `turn` each row's context is that of the row so many places on in its group.
at::Tensor group_energies(const EnergyModel& model, const PairTensors& pairs, int64_t candidates, const Heartbeat& heartbeat,
                          int64_t turn = 0) {
  const int64_t groups = pairs.size() / candidates;
  const std::vector<int64_t> order = torch_randperm(pairs.size(), kGroupingSeed);
  const at::Tensor index =
      at::tensor(at::ArrayRef<int64_t>(order.data(), static_cast<std::size_t>(groups * candidates)));
  const at::Tensor turned = index.view({groups, candidates}).roll(-turn, 1).reshape({-1});
  const EncodedContext context =
      model.encode_context(pairs.context_PSC.index_select(0, turned), pairs.mask_PS.index_select(0, turned));
  const at::Tensor action_PA = pairs.action_PA.index_select(0, index);
  at::Tensor energies = at::empty({groups * candidates, candidates}, at::kFloat);
  for (int64_t group = 0; group < groups; ++group) {
    const EncodedCandidates own = model.encode_candidates(action_PA.narrow(0, group * candidates, candidates));
    for (int64_t row = 0; row < candidates; row += kEnergyRowsAtOnce) {
      heartbeat();
      const int64_t begin = group * candidates + row;
      const int64_t rows = std::min(kEnergyRowsAtOnce, candidates - row);
      energies.narrow(0, begin, rows).copy_(model.scores(context.rows(begin, rows), own));
    }
  }
  return energies;
}

struct Retrieval {
  double accuracy = 0, cross_entropy = 0;
};

/// Row i's positive is column i mod N. Ties count against the row.
Retrieval score(const at::Tensor& energies, double tau) {
  const int64_t rows = energies.size(0);
  const int64_t candidates = energies.size(1);
  const float* energy = energies.const_data_ptr<float>();
  Retrieval result;
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = energy + i * candidates;
    const int64_t positive = i % candidates;
    const float lowest = *std::min_element(row, row + candidates);
    double sum = 0;
    bool best = true;
    for (int64_t j = 0; j < candidates; ++j) {
      sum += std::exp((static_cast<double>(lowest) - row[j]) / tau);
      best = best && (j == positive || row[j] > row[positive]);
    }
    result.accuracy += best ? 1 : 0;
    result.cross_entropy += std::log(sum) + (static_cast<double>(row[positive]) - lowest) / tau;
  }
  result.accuracy /= static_cast<double>(rows);
  result.cross_entropy /= static_cast<double>(rows);
  return result;
}

/// Minimises the cross-entropy over log tau by golden section; it is convex in 1 / tau.
double fit_temperature(const at::Tensor& energies) {
  constexpr double kGolden = 0.6180339887498949;
  double low = std::log(1e-3);
  double high = std::log(1e3);
  double a = high - kGolden * (high - low);
  double b = low + kGolden * (high - low);
  double at_a = score(energies, std::exp(a)).cross_entropy;
  double at_b = score(energies, std::exp(b)).cross_entropy;
  for (int i = 0; i < 40; ++i) {
    if (at_a < at_b) {
      high = b;
      b = a;
      at_b = at_a;
      a = high - kGolden * (high - low);
      at_a = score(energies, std::exp(a)).cross_entropy;
    } else {
      low = a;
      a = b;
      at_a = at_b;
      b = low + kGolden * (high - low);
      at_b = score(energies, std::exp(b)).cross_entropy;
    }
  }
  return std::exp(0.5 * (low + high));
}

}  // namespace

double fitted_temperature(const EnergyModel& model, const PairTensors& holdout, const Heartbeat& heartbeat) {
  const c10::NoGradGuard no_grad;
  return holdout.size() < kFittedCandidates
             ? 0.0
             : fit_temperature(group_energies(model, holdout, kFittedCandidates, heartbeat));
}

void add_retrieval(const EnergyModel& model, const PairTensors& pairs, int64_t candidates, double fitted_tau,
                   std::map<std::string, double>& metrics, const Heartbeat& heartbeat) {
  if (pairs.size() < candidates) {
    return;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor energies = group_energies(model, pairs, candidates, heartbeat);
  const Retrieval result = score(energies, model.temperature().item<double>());
  const std::string suffix = std::to_string(candidates);
  metrics["accuracy_" + suffix] = result.accuracy;
  metrics["cross_entropy_" + suffix] = result.cross_entropy;
  if (fitted_tau > 0) {
    metrics["cross_entropy_" + suffix + "_fitted"] = score(energies, fitted_tau).cross_entropy;
  }
}

void add_shortcut_control(const EnergyModel& model, const PairTensors& pairs, int64_t candidates,
                          std::map<std::string, double>& metrics, const Heartbeat& heartbeat) {
  if (pairs.size() < candidates) {
    return;
  }
  const c10::NoGradGuard no_grad;
  metrics["accuracy_" + std::to_string(candidates) + "_permuted_context"] =
      score(group_energies(model, pairs, candidates, heartbeat, 1), model.temperature().item<double>()).accuracy;
}

// The energy trainer: a loss over (context, next action chunk) pairs, with candidates from this rank's rows,
// from all ranks' rows, or made for each row.
namespace {

/// A buffer beside the parameters: the running mean of the rows' energies over all ranks. It takes a sum over
/// the ranks and a broadcast a step, as normalisation layers and reward statistics do.
class RunningStats {
 public:
  /// Adds a step's `rows` energies of mean `mean` on this rank: rank 0 updates the buffer from the sum over
  /// ranks, buffer = 0.9 buffer + 0.1 mean, and broadcasts it.
  void update(Comm& comm, double mean, int64_t rows) {
    at::Tensor sums = at::empty({2}, at::kDouble);
    double* sum = sums.mutable_data_ptr<double>();
    sum[0] = mean * static_cast<double>(rows);
    sum[1] = static_cast<double>(rows);
    comm.all_reduce_sum(sums, "stats.energy");
    take_up(comm, sum[0], sum[1]);
  }

  /// The same from the sum of the rank's energies, added over ranks without rounding.
  void update_exactly(Comm& comm, ExactSum& sum, int64_t rows) {
    // One form for all ranks and steps: what is sent has one shape.
    const ExactForm form = ExactSum::digits_alone(sum.elements(), sum.dtype());
    const int64_t size = ExactSum::size_of(form, sum.elements());
    const at::Tensor sent = at::empty({size + 1}, at::kLong);
    sum.write(form, sent.mutable_data_ptr<int64_t>());
    sent.mutable_data_ptr<int64_t>()[size] = rows;
    comm.all_reduce_sum(sent, "stats.energy");
    sum.read(form, sent.narrow(0, 0, size));
    take_up(comm, sum.rounded(0), static_cast<double>(sent.const_data_ptr<int64_t>()[size]));
  }

  /// [1] float64
  at::Tensor& buffer() { return buffer_; }

 private:
  /// On every rank: the sum and count of all of them.
  void take_up(Comm& comm, double sum, double rows) {
    double* buffer = buffer_.mutable_data_ptr<double>();
    if (comm.rank() == 0 && rows > 0) {
      buffer[0] = 0.9 * buffer[0] + 0.1 * (sum / rows);
    }
    comm.broadcast(buffer_, 0, "stats.buffer");
  }

  at::Tensor buffer_ = at::zeros({1}, at::kDouble);
};

/// The content of the rows of a micro-step: that of their samples, but for a fault.
PairTensors content_of(const StepInput& input, const TrainingPairs& pairs, EnergyFault* fault) {
  const std::vector<int64_t> ids = fault == nullptr ? input.ids : fault->content(input.step, input.ids);
  const auto* prepared = dynamic_cast<const PreparedPairs*>(input.prepared.get());
  PairTensors rows;
  if (prepared != nullptr && prepared->rows(ids, rows)) {
    return rows;
  }
  return pairs.rows(ids);
}

class EnergyTask : public Task {
 public:
  EnergyTask(const RunConfig& config, std::shared_ptr<const EnergyData> data, Comm& comm, Mutant* mutant)
      : config_(config),
        negatives_(resolved_negatives(config)),
        data_(std::move(data)),
        comm_(comm),
        streams_(config.rank_seed, stream_seed(config), comm.rank()),
        model_(shape_of(config, has_explicit(), *data_), energy(config).temperature, config.seed, dtype_of(config)),
        loss_(make_loss(energy(config).loss)),
        fault_(dynamic_cast<EnergyFault*>(mutant)) {
    if (energy(config).running_stats) {
      running_.emplace();
    }
  }

  ParameterList& parameters() override { return model_.parameters(); }

  std::vector<NamedBuffer> buffers() override {
    return running_ ? std::vector<NamedBuffer>{{"buffer/energy_mean", running_->buffer()}} : std::vector<NamedBuffer>{};
  }

  void update_buffers() override {
    if (running_) {
      if (config_.arithmetic == Arithmetic::exact) {
        running_->update_exactly(comm_, exact_positive_, step_rows_);
      } else {
        running_->update(comm_, energy_positive_, step_rows_);
      }
    }
  }

  std::shared_ptr<const PreparedRows> prepare_rows(const std::vector<int64_t>& ids) const override {
    return std::make_shared<const PreparedPairs>(data_->train, ids);
  }

  bool takes_parts() const override { return config_.oracle_world == 0 && loss_->takes_parts(); }

  StepOutput forward(const StepInput& input) override {
    const PairTensors content = input.exact ? shared_content(input) : content_of(input, data_->train, fault_);
    const auto step = std::make_shared<EnergyStep>(config_, model_, content, streams_, input, fault_);
    const at::Tensor action_BA = content.action_PA.to(model_.dtype());
    const int64_t rows = input.end_row - input.first_row;
    at::Tensor own_BA;
    if (has_explicit()) {
      own_BA = action_BA.narrow(0, input.first_row, rows);
      if (input.exact) own_BA = own_BA.clone();
    }
    if (input.exact) {
      share_micro_step(input, content, action_BA);
      // A fault may change what is encoded, call by call.
      if (fault_ == nullptr) {
        step->share_contexts(noisy_PSC_);
        if (shared_.candidates.action_NA.defined()) step->share_encoded(shared_.candidates.action_NA, encoded_);
      }
    }
    std::vector<at::Tensor> predictions;
    ExplicitNegatives made(
        config_, {streams_, input.step,
                  std::span<const int64_t>(input.ids).subspan(static_cast<std::size_t>(input.first_row),
                                                              static_cast<std::size_t>(rows)),
                  input.first_row, energy(config_).data.action_steps});
    at::Tensor explicit_BnA;
    if (has_explicit()) {
      predictions = step->predict_actions();
      explicit_BnA = made.candidates(own_BA, predictions);
      if (fault_ != nullptr) {
        explicit_BnA = fault_->explicit_candidates(input.step, explicit_BnA, predictions);
      }
    }
    LossOutput loss = config_.oracle_world > 0 ? of_reference(*step, input, action_BA, explicit_BnA)
                                               : of_ranks(*step, input, action_BA, explicit_BnA);
    StepOutput output = described(loss);
    if (input.exact) {
      output.row_divisor = counted_ > 0 ? counted_ : 1.0;
      if (rows > 0) output.row_inputs = {input_hash(content, input.first_row)};
    }
    if (input.exact && running_) {
      if (input.micro_step == 0 && input.first_row == 0) exact_positive_.clear();
      if (rows > 0) exact_positive_.add(0, loss.energy_positive);
      step_rows_ = static_cast<int64_t>(input.step_ids.size());
    } else if (input.micro_step == 0 && input.first_row == 0) {
      energy_positive_ = loss.energy_positive;
      step_rows_ = static_cast<int64_t>(input.step_ids.size());
    }
    output.streams = step->streams(loss.replayed);
    if (has_explicit()) {
      output.streams.insert(output.streams.end(), made.streams().begin(), made.streams().end());
      add_prediction_error(predictions.back(), own_BA, counted(input).narrow(0, input.first_row, rows),
                           output);
      output.scalars.emplace_back("contrastive_loss", loss.loss.item<double>());
      output.scalars.emplace_back("negatives_in_batch", loss.negatives_in_batch);
      output.scalars.emplace_back("negatives_explicit", loss.negatives_explicit);
      output.scalars.emplace_back("chance_nats", loss.chance_nats);
    }
    return output;
  }

  std::map<std::string, double> evaluate(Evaluation kind, const Heartbeat& heartbeat) override {
    std::map<std::string, double> metrics;
    if (has_explicit()) {
      add_shortcut_control(model_, data_->test, 24, metrics, heartbeat);
    }
    if (kind == Evaluation::curve) {
      add_retrieval(model_, data_->test, 24, 0, metrics, heartbeat);
      return metrics;
    }
    const double tau = fitted_temperature(model_, data_->holdout, heartbeat);
    if (tau > 0) {
      metrics["fitted_temperature"] = tau;
    }
    for (const int64_t candidates : {3, 24, 256}) {
      add_retrieval(model_, data_->test, candidates, tau, metrics, heartbeat);
    }
    return metrics;
  }

 private:
  static EnergyShape shape_of(const RunConfig& config, bool has_explicit, const EnergyData& data) {
    return {data.train.context_steps(), data.train.channels(), energy(config).data.action_steps,
            energy(config).model.width,         energy(config).model.hidden,   has_explicit ? energy(config).model.action_layers : 0};
  }
  at::ScalarType energy_dtype() const {
    return computed_precision(config_) == Precision::bfloat16 ? at::kBFloat16 : dtype_of(config_);
  }
  static at::ScalarType dtype_of(const RunConfig& config) {
    return computed_precision(config) == Precision::float64 ? at::kDouble : at::kFloat;
  }

  bool has_explicit() const { return makes_negatives(config_); }

  LossOptions loss_options() const {
    LossOptions options;
    options.in_batch = negatives_ != Negatives::layer;
    options.local = negatives_ == Negatives::local;
    options.mask_duplicates = energy(config_).mask_duplicates;
    options.tile_columns = energy(config_).tile_columns;
    return options;
  }

  LossInput loss_input_of(EnergyStep& step, const StepInput& input, const at::Tensor& action_BA) {
    LossInput loss_input{.comm = comm_, .model = step};
    loss_input.step = input.step;
    loss_input.action_BA = action_BA;
    loss_input.ids = input.ids;
    loss_input.counted_B = energy(config_).invalid_rows > 0 ? counted(input) : at::Tensor();
    loss_input.first_row = input.first_row;
    loss_input.end_row = input.end_row;
    loss_input.options = loss_options();
    loss_input.mark = input.as_terms;
    return loss_input;
  }

  /// Exact arithmetic: of each micro-step it is made once, unless a fault may change it from row to row.
  const PairTensors& shared_content(const StepInput& input) {
    const std::pair<int64_t, int64_t> now{input.step, input.micro_step};
    if (fault_ != nullptr || content_of_ != now) content_ = content_of(input, data_->train, fault_);
    content_of_ = now;
    return content_;
  }

  static int64_t input_hash(const PairTensors& content, int64_t row) {
    uint64_t hash = 0;
    for (const at::Tensor& part : {content.context_PSC, content.mask_PS, content.action_PA}) {
      const TensorView whole = view_of(part);
      std::vector<int64_t> shape = part.sizes().vec();
      const std::size_t row_bytes = part.nbytes() / static_cast<std::size_t>(shape.front());
      shape.front() = 1;
      const auto* const bytes = static_cast<const char*>(whole.data) + static_cast<std::size_t>(row) * row_bytes;
      hash = keyed(hash, tensor_hash({bytes, whole.dtype, shape, {}}));
    }
    return static_cast<int64_t>(hash);
  }

  /// Exact arithmetic, at the first pass of each micro-step: what its rows share.
  void share_micro_step(const StepInput& input, const PairTensors& content, const at::Tensor& action_BA) {
    const std::pair<int64_t, int64_t> now{input.step, input.micro_step};
    if (shared_of_ == now) return;
    if (shared_of_.first != input.step) counted_ = counted_rows(input);
    shared_of_ = now;
    shared_ = {};
    encoded_ = at::Tensor();
    const LossOptions options = loss_options();
    const auto step = std::make_shared<EnergyStep>(config_, model_, content, streams_, input, fault_);
    if (fault_ == nullptr) noisy_PSC_ = step->noisy_contexts();
    if (!options.in_batch) return;
    LossInput all = loss_input_of(*step, input, action_BA);
    shared_.candidates = options.local ? in_batch_candidates(all) : candidates_in_batch_order(all, input.positions);
    if (loss_->needs_all_energies()) shared_.energy_NN = all_energies(input, content, all);
  }

  /// [N, N], without gradient: each row by itself, as it is computed in its own pass.
  at::Tensor all_energies(const StepInput& input, const PairTensors& content, const LossInput& all) {
    const c10::NoGradGuard no_grad;
    const auto columns = static_cast<int64_t>(shared_.candidates.ids.size());
    std::vector<at::Tensor> rows{at::zeros({0, columns}, in_loss_precision(at::zeros({0}, energy_dtype())).options())};
    StepInput one = input;
    for (int64_t row = 0; row < static_cast<int64_t>(input.ids.size()); ++row) {
      one.first_row = row;
      one.end_row = row + 1;
      const auto step = std::make_shared<EnergyStep>(config_, model_, content, streams_, one, fault_);
      const EncodedRows context = step->encode_context();
      rows.push_back(in_loss_precision(step->energies(context, step->encode_action(shared_.candidates.action_NA),
                                                      shared_.candidates.ids, 0)));
    }
    const at::Tensor own = at::cat(rows, 0);
    if (all.options.local) return own;
    const at::Tensor positions = at::tensor(at::ArrayRef<int64_t>(input.positions), at::kLong);
    const GatheredRows gathered = gather_rows(comm_, {own, positions}, input.step, "loss.energies");
    const at::Tensor kept = gathered.valid.nonzero().squeeze(1);
    const at::Tensor order = at::argsort(gathered.columns[1].index_select(0, kept), true, 0);
    return gathered.columns[0].index_select(0, kept).index_select(0, order);
  }

  LossOutput of_ranks(EnergyStep& step, const StepInput& input, const at::Tensor& action_BA,
                      const at::Tensor& explicit_BnA) {
    LossInput loss_input = loss_input_of(step, input, action_BA);
    loss_input.explicit_BnA = explicit_BnA;
    loss_input.total_rows = input.exact ? counted_ : counted_rows(input);
    loss_input.shared = input.exact ? &shared_ : nullptr;
    if (input.choosing_BN.defined()) {
      loss_input.choosing_BN = input.choosing_BN.narrow(0, input.first_row, input.end_row - input.first_row);
    }
    return (fault_ == nullptr ? *loss_ : fault_->loss(input.step, *loss_)).forward(loss_input);
  }

  LossOutput of_reference(EnergyStep& step, const StepInput& input, const at::Tensor& action_BA,
                          const at::Tensor& explicit_BnA) {
    ReferenceInput reference{.model = step};
    reference.action_BA = action_BA;
    reference.ids = input.ids;
    reference.counted_B = energy(config_).invalid_rows > 0 ? counted(input) : at::Tensor();
    reference.explicit_BnA = explicit_BnA;
    reference.group_B = groups(input);
    reference.options = loss_options();
    reference.choosing_BB = input.choosing_BN;
    reference.mark = input.as_terms;
    return loss_->reference(reference);
  }

  /// Of each row, which rows it would meet among `oracle_world` ranks: those of its micro-step, of its rank
  /// alone if negatives are local.
  at::Tensor groups(const StepInput& input) const {
    std::vector<int64_t> group;
    for (const PartitionedPlace& place : partitioned_places(config_, static_cast<int64_t>(input.ids.size()))) {
      const bool local = negatives_ == Negatives::local;
      group.push_back(local ? place.rank * config_.accumulation + place.micro_step : place.micro_step);
    }
    return at::tensor(at::ArrayRef<int64_t>(group), at::kLong);
  }

  StepOutput described(const LossOutput& loss) {
    const c10::NoGradGuard no_grad;
    StepOutput output;
    output.loss = loss.loss;
    output.row_losses_B = loss.row_losses_B;
    output.row_weight = loss.row_weight;
    if (loss.energies.defined()) {
      output.records.push_back({Phase::scores, "energies", loss.energies, "columns", loss.column_ids});
    }
    const auto columns = static_cast<double>(loss.column_ids.size());
    output.scalars = {{"loss_over_log_n", columns > 1 ? loss.loss.item<double>() / std::log(columns) : 0.0},
                      {"energy_positive", loss.energy_positive},
                      {"energy_negative", loss.energy_negative},
                      {"energies_computed", static_cast<double>(loss.energies_computed)},
                      {"temperature", model_.temperature().item<double>()}};
    return output;
  }

  /// The action head learns by the squared error of its last layer, a loss of each row beside the other.
  static void add_prediction_error(const at::Tensor& predicted_BA, const at::Tensor& own_BA,
                                   const at::Tensor& counted_B, StepOutput& output) {
    const at::Tensor error_B = (predicted_BA - own_BA).square().mean(1);
    const at::Tensor counting_B = at::where(counted_B, error_B, 0.0);
    output.row_losses_B = output.row_losses_B + counting_B;
    output.loss = output.loss + counting_B.sum() * output.row_weight;
    output.scalars.emplace_back("prediction_error",
                                error_B.numel() > 0 ? error_B.mean().item<double>() : 0.0);
  }

  bool counts(int64_t id) const {
    constexpr uint64_t kInvalidRowKey = 0x696e76616c6964;  // "invalid"
    return unit_interval(keyed(kInvalidRowKey, id)) >= energy(config_).invalid_rows;
  }

  /// [b] bool: the micro-step's rows that count in the loss.
  at::Tensor counted(const StepInput& input) const {
    at::Tensor counted_B = at::ones({static_cast<int64_t>(input.ids.size())}, at::kBool);
    for (std::size_t row = 0; row < input.ids.size(); ++row) {
      counted_B[static_cast<int64_t>(row)] = counts(input.ids[row]);
    }
    return counted_B;
  }

  /// Rows of all ranks and micro-steps that count in the loss of this step.
  double counted_rows(const StepInput& input) {
    if (config_.rows == RowPartition::equal && energy(config_).invalid_rows <= 0) {
      return static_cast<double>(input.step_ids.size()) * comm_.world_size();
    }
    const auto own = std::count_if(input.step_ids.begin(), input.step_ids.end(),
                                   [this](int64_t id) { return counts(id); });
    at::Tensor count = at::full({1}, static_cast<double>(own), at::kDouble);
    comm_.all_reduce_sum(count, "loss.rows");
    return count.item<double>();
  }

  const RunConfig& config_;
  const Negatives negatives_;
  std::shared_ptr<const EnergyData> data_;
  Comm& comm_;
  RandomStreams streams_;
  EnergyModel model_;
  std::unique_ptr<Loss> loss_;
  EnergyFault* fault_;  ///< or none
  std::optional<RunningStats> running_;
  SharedBatch shared_;                              ///< exact arithmetic: of micro-step
  std::pair<int64_t, int64_t> shared_of_{-1, -1};   ///< of that step and micro-step
  PairTensors content_;                             ///< of its rows
  at::Tensor noisy_PSC_;                            ///< their contexts with noise
  std::pair<int64_t, int64_t> content_of_{-1, -1};
  at::Tensor encoded_;                              ///< its candidates, once a row has asked for them
  double counted_ = 0;                              ///< and of the step, rows that count
  ExactSum exact_positive_{1, at::kDouble};         ///< energies of the step's positives
  double energy_positive_ = 0;  ///< of the step's first pass, mean over its rows
  int64_t step_rows_ = 0;       ///< of this rank, in the step
};

}  // namespace

std::unique_ptr<Scenario> make_energy_scenario() {
  return std::make_unique<SeriesScenario<Dataset, EnergyData, EnergyTask>>(
      [](const RunConfig& config) { return load_dataset(pair_config(config)); },
      [](const Dataset& dataset, const RunConfig& config) { return make_energy_data(dataset, energy(config).data); });
}

}  // namespace lockstep
