// The energy trainer: a loss over (context, next action chunk) pairs, with candidates from this rank's rows,
// from all ranks' rows, or made for each row.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/base/hashing.h"
#include "harness/comm/tensor_view.h"
#include "harness/data/sampler.h"
#include "harness/train/exact_sum.h"
#include "harness/train/streams.h"
#include "losses/block.h"
#include "losses/loss.h"
#include "scenarios/energy/adaptive.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/data.h"
#include "scenarios/energy/evaluation.h"
#include "scenarios/energy/explicit_negatives.h"
#include "scenarios/energy/model.h"
#include "scenarios/energy/noise.h"
#include "scenarios/energy/running_stats.h"
#include "scenarios/energy/step_model.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

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

/// The model at one step of one rank: what a loss may ask of it, with the step's noise and dropout.
class EnergyStep : public EnergyFunction {
 public:
  EnergyStep(const RunConfig& config, const EnergyModel& model, const PairTensors& rows,
             const RandomStreams& streams, const StepInput& input, EnergyFault* fault)
      : config_(config),
        model_(config, model),
        rows_(rows),
        streams_(fault == nullptr ? streams : fault->streams(input.step, streams)),
        input_(input),
        fault_(fault),
        dropout_(fault == nullptr ? energy(config).dropout : fault->dropout(input.step, energy(config).dropout)) {
    if (dropout_ > 0) {
      dropout_keys_ = row_keys(Purpose::dropout);
      replay_keys_ = row_keys(Purpose::dropout);
    }
    if (fault_ != nullptr) {
      for (uint64_t& key : replay_keys_) {
        key = fault_->replay_key(input_.step, key);
      }
    }
  }

  EncodedRows encode_context() override {
    const EncodedContext& encoded = context();
    EncodedRows rows{{encoded.steps_BSD, encoded.summary_B1D, encoded.mask_BS}};
    return fault_ == nullptr ? rows : fault_->encoded_context(input_.step, std::move(rows));
  }

  /// Encoded once: the loss and the action head share it.
  const EncodedContext& context() {
    if (encoded_) {
      return *encoded_;
    }
    const auto part = [&](const at::Tensor& all) {
      const at::Tensor rows = all.narrow(0, input_.first_row, input_.end_row - input_.first_row);
      return input_.exact ? rows.clone() : rows;
    };
    at::Tensor context = part(rows_.context_PSC);
    if (energy(config_).context_noise > 0) {
      const auto each = shape().context_steps * shape().channels;
      context = context + energy(config_).context_noise *
                              normal_rows(row_keys(Purpose::context_noise), each).view(context.sizes());
    }
    const at::Tensor mask = part(rows_.mask_PS);
    encoded_ =
        model_.encode_context(context, fault_ == nullptr ? mask : fault_->context_mask(input_.step, mask));
    return *encoded_;
  }

  /// What each layer of the action head predicts as the next action.
  std::vector<at::Tensor> predict_actions() { return model_.model().predict_actions(context()); }

  at::Tensor encode_action(const at::Tensor& action_NA) override {
    const at::Tensor encoded = model_.encode_action(action_NA);
    return fault_ == nullptr ? encoded : fault_->encoded_action(input_.step, encoded);
  }

  at::Tensor energies(const EncodedRows& rows, const at::Tensor& action_ND,
                      std::span<const int64_t> column_ids, int64_t first_column) override {
    return of_head(rows, action_ND, {{column_ids.begin(), column_ids.end()}, first_column, false});
  }

  at::Tensor own_energies(const EncodedRows& rows, const at::Tensor& action_BnD, int64_t first_id) override {
    std::vector<int64_t> ids;
    for (int64_t k = 0; k < action_BnD.size(1); ++k) {
      ids.push_back(first_id - k);
    }
    // Streams that are keyed by a candidate's place are apart from those of any in-batch candidate.
    constexpr int64_t kBehindAllColumns = int64_t{1} << 32;
    return of_head(rows, action_BnD, {std::move(ids), kBehindAllColumns - first_id, true});
  }

  void begin_replay(std::vector<at::Tensor> head_parameters) override {
    model_.begin_replay(head_parameters);
  }
  void end_replay() override { model_.end_replay(); }

  std::vector<at::Tensor> head_parameters() override { return model_.model().parameters_of(ModelPart::head); }
  at::Tensor temperature() override {
    const at::Tensor tau = model_.model().temperature();
    return fault_ == nullptr ? tau : fault_->temperature(input_.step, tau);
  }

  /// The streams that this step drew from, in the order in which they were first used. With `replayed` those
  /// of the second pass over the energies too, under a name of their own: they must be used as the first
  /// one's.
  std::vector<StreamUse> streams(bool replayed) const {
    std::vector<StreamUse> uses;
    const auto rows = static_cast<uint64_t>(input_.end_row - input_.first_row);
    if (energy(config_).context_noise > 0) {
      const auto each = static_cast<uint64_t>(shape().context_steps * shape().channels);
      uses.push_back({"context_noise", stream_fingerprint(row_keys(Purpose::context_noise)),
                      rows * 2 * each + extra_draws(Purpose::context_noise)});
    }
    if (dropout_ > 0) {
      // Position in a row's streams, one stream a candidate: how many candidates there are is the energies'
      // matter.
      const uint64_t draws = rows * static_cast<uint64_t>(shape().hidden) + extra_draws(Purpose::dropout);
      uses.push_back({"dropout", stream_fingerprint(dropout_keys_), draws});
      if (replayed) {
        uses.push_back({"dropout replay", stream_fingerprint(replay_keys_), draws});
      }
    }
    return uses;
  }

 private:
  std::vector<uint64_t> row_keys(Purpose purpose) const {
    std::vector<uint64_t> keys;
    const int64_t step = fault_ == nullptr ? input_.step : fault_->stream_step(input_.step);
    for (int64_t row = input_.first_row; row < input_.end_row; ++row) {
      const uint64_t key = streams_.row_key(purpose, step, input_.ids[static_cast<std::size_t>(row)], row);
      keys.push_back(fault_ == nullptr ? key : fault_->row_key(input_.step, purpose, key));
    }
    return keys;
  }
  uint64_t extra_draws(Purpose purpose) const {
    return fault_ == nullptr ? 0 : fault_->extra_draws(input_.step, purpose);
  }

  const EnergyShape& shape() const { return model_.model().shape(); }

  /// Candidates of the rows, by the names of their dropout streams.
  struct Columns {
    std::vector<int64_t> ids;
    int64_t first = 0;  ///< where they stand among all candidates
    bool own = false;   ///< each row's own
  };

  at::Tensor of_head(const EncodedRows& rows, const at::Tensor& action, const Columns& columns) {
    const auto step = std::static_pointer_cast<const EnergyStep>(shared_from_this());
    return model_.head({rows.tensors[0], rows.tensors[1], rows.tensors[2]}, action, columns.own,
                       [step, columns](bool again) { return step->dropout_factors(columns, again); });
  }

  /// Factors [rows, N, W] on the head's hidden layer; each pair of a row and a candidate has a stream of its
  /// own. Undefined without dropout.
  at::Tensor dropout_factors(const Columns& candidates, bool again) const {
    if (dropout_ <= 0) {
      return {};
    }
    const std::vector<uint64_t>& keys = again ? replay_keys_ : dropout_keys_;
    const auto rows = static_cast<int64_t>(keys.size());
    const auto columns = static_cast<int64_t>(candidates.ids.size());
    const int64_t hidden = shape().hidden;
    at::Tensor factors = at::empty({rows, columns, hidden}, at::kFloat);
    float* out = factors.mutable_data_ptr<float>();
    for (const uint64_t key : keys) {
      for (int64_t column = 0; column < columns; ++column, out += hidden) {
        fill_dropout(streams_.pair_key(key, candidates.ids[static_cast<std::size_t>(column)],
                                       candidates.first + column),
                     static_cast<float>(dropout_), {out, static_cast<std::size_t>(hidden)});
      }
    }
    return factors.to(model_.model().dtype());
  }

  const RunConfig& config_;
  StepModel model_;
  const PairTensors rows_;  ///< of the micro-step
  const RandomStreams& streams_;
  const StepInput input_;  // its own: a second pass comes after the caller's is gone
  EnergyFault* fault_;     ///< or none
  double dropout_;
  std::vector<uint64_t> dropout_keys_, replay_keys_;
  std::optional<EncodedContext> encoded_;
};

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
    return running_ ? std::vector<NamedBuffer>{{kRunningMean, running_->buffer()}} : std::vector<NamedBuffer>{};
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
    const PairTensors content = content_of(input, data_->train, fault_);
    const auto step = std::make_shared<EnergyStep>(config_, model_, content, streams_, input, fault_);
    const at::Tensor action_BA = content.action_PA.to(model_.dtype());
    const int64_t rows = input.end_row - input.first_row;
    at::Tensor own_BA = action_BA.narrow(0, input.first_row, rows);
    if (input.exact) {
      own_BA = own_BA.clone();
      share_micro_step(input, content, action_BA);
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

  std::map<std::string, double> evaluate(Evaluation kind) override {
    std::map<std::string, double> metrics;
    if (has_explicit()) {
      add_shortcut_control(model_, data_->test, 24, metrics);
    }
    if (kind == Evaluation::curve) {
      add_retrieval(model_, data_->test, 24, 0, metrics);
      return metrics;
    }
    const double tau = fitted_temperature(model_, data_->holdout);
    if (tau > 0) {
      metrics["fitted_temperature"] = tau;
    }
    for (const int64_t candidates : {3, 24, 256}) {
      add_retrieval(model_, data_->test, candidates, tau, metrics);
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
    return loss_input;
  }

  static int64_t input_hash(const PairTensors& content, int64_t row) {
    uint64_t hash = 0;
    for (const at::Tensor& part : {content.context_PSC, content.mask_PS, content.action_PA}) {
      hash = keyed(hash, tensor_stats(view_of(part.narrow(0, row, 1).contiguous())).hash);
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
    const LossOptions options = loss_options();
    if (!options.in_batch) return;
    const auto step = std::make_shared<EnergyStep>(config_, model_, content, streams_, input, fault_);
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
    return loss_->reference(reference);
  }

  /// Of each row, which rows it would meet among `oracle_world` ranks: those of its micro-step, of its rank
  /// alone if negatives are local.
  at::Tensor groups(const StepInput& input) const {
    const auto rows = static_cast<int64_t>(input.ids.size());
    const std::vector<int> owner =
        owners_of_rows(rows, config_.oracle_world, config_.rows, config_.data.block);
    std::vector<int64_t> rows_of(static_cast<std::size_t>(config_.oracle_world), 0);
    for (const int rank : owner) {
      ++rows_of[static_cast<std::size_t>(rank)];
    }
    std::vector<int64_t> group_of_place, next(rows_of.size(), 0);
    for (const int rank : owner) {
      const auto of_rank = static_cast<std::size_t>(rank);
      // The micro-step m whose rows [m * all / micro_steps, (m + 1) * all / micro_steps) hold the rank's next
      // row.
      int64_t micro = 0;
      while ((micro + 1) * rows_of[of_rank] / config_.accumulation <= next[of_rank]) {
        ++micro;
      }
      ++next[of_rank];
      const bool local = negatives_ == Negatives::local;
      group_of_place.push_back(local ? rank * config_.accumulation + micro : micro);
    }
    std::vector<int64_t> group;
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<std::size_t>(row);
      group.push_back(group_of_place[input.places.empty() ? at : static_cast<std::size_t>(input.places[at])]);
    }
    return at::tensor(at::ArrayRef<int64_t>(group), at::kLong);
  }

  StepOutput described(const LossOutput& loss) {
    StepOutput output;
    output.loss = loss.loss;
    output.row_losses_B = loss.row_losses_B;
    output.row_weight = loss.row_weight;
    if (loss.energies.defined()) {
      output.records.push_back({Phase::energies, "energies", loss.energies, "columns", loss.column_ids});
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
    if (config_.rows == RowDeal::equal && energy(config_).invalid_rows <= 0) {
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
  double counted_ = 0;                              ///< and of the step, rows that count
  ExactSum exact_positive_{1, at::kDouble};         ///< energies of the step's positives
  double energy_positive_ = 0;  ///< of the step's first pass, mean over its rows
  int64_t step_rows_ = 0;       ///< of this rank, in the step
};

class EnergyScenario : public Scenario {
 public:
  void prepare(const RunConfig& config) override {
    const Dataset dataset = load_dataset(pair_config(config));
    data_ = std::make_shared<const EnergyData>(make_energy_data(dataset, energy(config).data));
    samples_ = data_->train.size();
    data_hash_ = dataset.hash;
  }
  int64_t samples() const override { return samples_; }
  std::string data_hash() const override { return data_hash_; }
  std::unique_ptr<Task> make_task(const RunConfig& config, Comm& comm, Mutant* mutant) override {
    return std::make_unique<EnergyTask>(config, data_, comm, mutant);
  }

 private:
  int64_t samples_ = 0;
  std::string data_hash_;
  std::shared_ptr<const EnergyData> data_;
};

}  // namespace

std::unique_ptr<Scenario> make_energy_scenario() { return std::make_unique<EnergyScenario>(); }

}  // namespace lockstep
