// The energy trainer: in-batch swap InfoNCE over (context, next action chunk) pairs, with local or exact
// global negatives.

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "losses/loss.h"
#include "scenarios/energy_data.h"
#include "scenarios/energy_evaluation.h"
#include "scenarios/energy_model.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/scenario.h"
#include "harness/train/streams.h"

namespace lockstep {
namespace {

/// Samples whose content the rows of a micro-step have: their own, but for a fault.
at::Tensor content_index(const StepInput& input, EnergyFault* fault) {
  if (fault == nullptr) {
    return at::tensor(at::ArrayRef<int64_t>(input.ids), at::kLong);
  }
  const std::vector<int64_t> content = fault->content(input.step, input.ids);
  return at::tensor(at::ArrayRef<int64_t>(content), at::kLong);
}

/// The model at one step of one rank: what a loss may ask of it, with the step's noise and dropout.
class EnergyStep : public EnergyFunction {
 public:
  EnergyStep(const RunConfig& config, const EnergyModel& model, const PairTensors& pairs,
             const RandomStreams& streams, const StepInput& input, EnergyFault* fault)
      : config_(config),
        model_(model),
        pairs_(pairs),
        streams_(fault == nullptr ? streams : fault->streams(input.step, streams)),
        input_(input),
        fault_(fault),
        dropout_(fault == nullptr ? config.dropout : fault->dropout(input.step, config.dropout)) {
    if (dropout_ > 0) {
      for (int64_t row = input_.first_row; row < input_.end_row; ++row) {
        dropout_keys_.push_back(row_key(Purpose::dropout, row));
      }
    }
  }

  EncodedRows encode_context() override {
    const at::Tensor index = content_index(input_, fault_);
    const at::Tensor rows = index.narrow(0, input_.first_row, input_.end_row - input_.first_row);
    at::Tensor context = pairs_.context_PSC.index_select(0, rows);
    if (config_.context_noise > 0) {
      context = context + config_.context_noise * normal_noise();
    }
    at::Tensor mask = pairs_.mask_PS.index_select(0, rows);
    if (fault_ != nullptr) {
      mask = fault_->context_mask(input_.step, mask);
    }
    const EncodedContext encoded = model_.encode_context(context, mask);
    EncodedRows encoded_rows{{encoded.steps_BSD, encoded.summary_B1D, encoded.mask_BS}};
    return fault_ == nullptr ? encoded_rows : fault_->encoded_context(input_.step, std::move(encoded_rows));
  }

  at::Tensor encode_action(const at::Tensor& action_NA) override {
    const at::Tensor encoded = model_.encode_action(action_NA);
    return fault_ == nullptr ? encoded : fault_->encoded_action(input_.step, encoded);
  }

  at::Tensor energies(const EncodedRows& rows, const at::Tensor& action_ND, std::span<const int64_t> column_ids,
                      int64_t first_column) override {
    const EncodedContext context{rows.tensors[0], rows.tensors[1], rows.tensors[2]};
    return model_.head(context, action_ND,
                       dropout_ > 0 ? dropout_factors(column_ids, first_column) : at::Tensor());
  }

  at::Tensor own_energies(const EncodedRows&, const at::Tensor&) override {
    throw std::logic_error("explicit candidates are not written yet");
  }

  std::vector<at::Tensor> head_parameters() override { return model_.head_parameters(); }
  at::Tensor temperature() override {
    const at::Tensor tau = model_.temperature();
    return fault_ == nullptr ? tau : fault_->temperature(input_.step, tau);
  }

  /// The streams that this step drew from, in the order in which they were first used.
  std::vector<StreamUse> streams() const {
    std::vector<StreamUse> uses;
    const auto rows = static_cast<uint64_t>(input_.end_row - input_.first_row);
    if (config_.context_noise > 0) {
      std::vector<uint64_t> keys;
      for (int64_t row = input_.first_row; row < input_.end_row; ++row) {
        keys.push_back(row_key(Purpose::context_noise, row));
      }
      const auto each = static_cast<uint64_t>(model_.shape().context_steps * model_.shape().channels);
      uses.push_back({"context_noise", stream_fingerprint(keys), rows * 2 * each + extra_draws(Purpose::context_noise)});
    }
    if (dropout_ > 0) {
      // Position in a row's streams, one stream a candidate: how many candidates there are is the energies'
      // matter.
      uses.push_back({"dropout", stream_fingerprint(dropout_keys_),
                      rows * static_cast<uint64_t>(model_.shape().hidden) + extra_draws(Purpose::dropout)});
    }
    return uses;
  }

 private:
  uint64_t row_key(Purpose purpose, int64_t row) const {
    const int64_t id = input_.ids[static_cast<std::size_t>(row)];
    if (fault_ == nullptr) {
      return streams_.row_key(purpose, input_.step, id, row);
    }
    const int64_t step = fault_->stream_step(input_.step);
    return fault_->row_key(input_.step, purpose, streams_.row_key(purpose, step, id, row));
  }
  uint64_t extra_draws(Purpose purpose) const {
    return fault_ == nullptr ? 0 : fault_->extra_draws(input_.step, purpose);
  }

  /// Standard normals [rows, S, C] by Box and Muller from each row's own stream.
  at::Tensor normal_noise() const {
    const int64_t rows = input_.end_row - input_.first_row;
    const int64_t each = model_.shape().context_steps * model_.shape().channels;
    at::Tensor uniform = at::empty({rows, 2, each}, at::kFloat);
    for (int64_t row = 0; row < rows; ++row) {
      fill_uniform(row_key(Purpose::context_noise, input_.first_row + row),
                   {uniform.mutable_data_ptr<float>() + row * 2 * each, static_cast<std::size_t>(2 * each)});
    }
    const at::Tensor radius = at::sqrt(-2.0 * at::log(1.0 - uniform.select(1, 0)));
    const at::Tensor angle = at::cos(2.0 * std::numbers::pi * uniform.select(1, 1));
    return (radius * angle).view({rows, model_.shape().context_steps, model_.shape().channels});
  }

  /// Factors [rows, N, W] on the head's hidden layer; each pair of a row and a candidate has a stream of its
  /// own.
  at::Tensor dropout_factors(std::span<const int64_t> column_ids, int64_t first_column) const {
    const auto rows = static_cast<int64_t>(dropout_keys_.size());
    const auto columns = static_cast<int64_t>(column_ids.size());
    const int64_t hidden = model_.shape().hidden;
    at::Tensor factors = at::empty({rows, columns, hidden}, at::kFloat);
    float* out = factors.mutable_data_ptr<float>();
    for (const uint64_t key : dropout_keys_) {
      for (int64_t column = 0; column < columns; ++column, out += hidden) {
        fill_dropout(streams_.pair_key(key, column_ids[static_cast<std::size_t>(column)], first_column + column),
                     static_cast<float>(dropout_), {out, static_cast<std::size_t>(hidden)});
      }
    }
    return factors.to(model_.dtype());
  }

  const RunConfig& config_;
  const EnergyModel& model_;
  const PairTensors& pairs_;
  const RandomStreams& streams_;
  const StepInput& input_;
  EnergyFault* fault_;  ///< or none
  double dropout_;
  std::vector<uint64_t> dropout_keys_;
};

class EnergyTask : public Task {
 public:
  EnergyTask(const RunConfig& config, std::shared_ptr<const EnergyData> data, Comm& comm, Mutant* mutant)
      : config_(config),
        data_(std::move(data)),
        comm_(comm),
        streams_(config.rank_seed, config.seed, comm.rank()),
        model_(shape_of(config, *data_), config.temperature, config.seed, dtype_of(config)),
        loss_(make_loss(config.loss)),
        fault_(dynamic_cast<EnergyFault*>(mutant)) {}

  ParameterList& parameters() override { return model_.parameters(); }

  StepOutput forward(const StepInput& input) override {
    const at::Tensor index = content_index(input, fault_);
    EnergyStep step(config_, model_, data_->train, streams_, input, fault_);
    LossOptions options;
    options.local = config_.negatives == Negatives::local;
    LossInput loss_input{.comm = comm_, .model = step};
    loss_input.step = input.step;
    loss_input.action_BA = data_->train.action_PA.index_select(0, index).to(model_.dtype());
    loss_input.ids = input.ids;
    loss_input.first_row = input.first_row;
    loss_input.end_row = input.end_row;
    loss_input.total_rows = counted_rows(input);
    loss_input.options = options;
    Loss& form = fault_ == nullptr ? *loss_ : fault_->loss(input.step, *loss_);
    LossOutput loss = form.forward(loss_input);
    StepOutput output;
    output.loss = loss.loss;
    output.row_losses_B = loss.row_losses_B;
    output.row_weight = loss.row_weight;
    output.energies = loss.energies;
    output.column_ids = loss.column_ids;
    output.energy_positive = loss.energy_positive;
    output.streams = step.streams();
    output.scalars = {
        {"loss_over_log_n", loss.loss.item<double>() / std::log(static_cast<double>(loss.column_ids.size()))},
        {"energy_positive", loss.energy_positive},
        {"energy_negative", loss.energy_negative},
        {"temperature", model_.temperature().item<double>()}};
    return output;
  }

  std::map<std::string, double> evaluate(Evaluation kind) override {
    std::map<std::string, double> metrics;
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
  static EnergyShape shape_of(const RunConfig& config, const EnergyData& data) {
    return {data.train.context_PSC.size(1), data.train.context_PSC.size(2), config.data.action_steps,
            config.model.width, config.model.hidden};
  }
  static at::ScalarType dtype_of(const RunConfig& config) {
    return config.precision == Precision::float64 ? at::kDouble : at::kFloat;
  }

  /// Rows of all ranks and micro-steps that count in the loss of this step.
  double counted_rows(const StepInput& input) {
    const auto own = static_cast<double>(input.step_ids.size());
    if (config_.rows == RowDeal::equal) {
      return own * comm_.world_size();
    }
    at::Tensor count = at::full({1}, own, at::kDouble);
    comm_.all_reduce_sum(count, "loss.rows");
    return count.item<double>();
  }

  const RunConfig& config_;
  std::shared_ptr<const EnergyData> data_;
  Comm& comm_;
  RandomStreams streams_;
  EnergyModel model_;
  std::unique_ptr<Loss> loss_;
  EnergyFault* fault_;  ///< or none
};

class EnergyScenario : public Scenario {
 public:
  void prepare(const RunConfig& config) override {
    const Dataset dataset = load_dataset(config.data);
    samples_ = static_cast<int64_t>(dataset.train.size());
    data_ = std::make_shared<const EnergyData>(make_energy_data(dataset));
  }
  int64_t samples() const override { return samples_; }
  std::unique_ptr<Task> make_task(const RunConfig& config, Comm& comm, Mutant* mutant) override {
    return std::make_unique<EnergyTask>(config, data_, comm, mutant);
  }

 private:
  int64_t samples_ = 0;
  std::shared_ptr<const EnergyData> data_;
};

}  // namespace

std::unique_ptr<Scenario> make_energy_scenario() { return std::make_unique<EnergyScenario>(); }

}  // namespace lockstep
