// The energy trainer: in-batch swap InfoNCE over (context, next action chunk) pairs, with local or exact
// global negatives.

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "losses/infonce.h"
#include "scenarios/energy_data.h"
#include "scenarios/energy_evaluation.h"
#include "scenarios/energy_model.h"
#include "scenarios/scenario.h"
#include "harness/train/streams.h"

namespace lockstep {
namespace {

/// Candidates of a step: their raw actions, sample ids, and where this rank's rows stand among them.
struct Candidates {
  at::Tensor action_NA;
  at::Tensor valid_N;  ///< undefined: all
  std::vector<int64_t> ids;
  int64_t offset = 0;
  int64_t total_rows = 0;
};

class EnergyTask : public Task {
 public:
  EnergyTask(const RunConfig& config, std::shared_ptr<const EnergyData> data, Comm& comm)
      : config_(config),
        data_(std::move(data)),
        comm_(comm),
        streams_(config.rank_seed, config.seed, comm.rank()),
        model_({data_->train.context_PSC.size(1), data_->train.context_PSC.size(2), config.data.action_steps},
               config.temperature, config.seed) {}

  ParameterList& parameters() override { return model_.parameters(); }

  StepOutput forward(const StepInput& input) override {
    StepOutput output;
    const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(input.ids));
    const Candidates candidates = gather_candidates(input, index);
    const at::Tensor rows = index.narrow(0, input.first_row, input.end_row - input.first_row);
    at::Tensor context = data_->train.context_PSC.index_select(0, rows);
    if (config_.context_noise > 0) {
      context = context + config_.context_noise * normal_noise(input, output);
    }
    const at::Tensor dropout =
        config_.dropout > 0 ? dropout_factors(input, candidates, output) : at::Tensor();
    const EncodedContext encoded = model_.encode_context(context, data_->train.mask_PS.index_select(0, rows));
    const at::Tensor energies = model_.head(encoded, model_.encode_action(candidates.action_NA), dropout);
    const at::Tensor target =
        at::arange(candidates.offset + input.first_row, candidates.offset + input.end_row, at::kLong);
    InfoNce nce = row_infonce(energies, model_.temperature(), target, candidates.valid_N,
                              {comm_.world_size(), candidates.total_rows});
    output.loss = nce.loss;
    output.row_losses_B = nce.row_losses_B;
    output.row_weight = static_cast<double>(comm_.world_size()) / static_cast<double>(candidates.total_rows);
    output.energies = energies.detach();
    output.column_ids = candidates.ids;
    output.scalars = {
        {"loss_over_log_n", nce.loss.item<double>() / std::log(static_cast<double>(candidates.ids.size()))},
        {"energy_positive", nce.energy_positive},
        {"energy_negative", nce.energy_negative},
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
  Candidates gather_candidates(const StepInput& input, const at::Tensor& index) {
    const at::Tensor own = data_->train.action_PA.index_select(0, index);
    const auto rows = static_cast<int64_t>(input.ids.size());
    if (config_.negatives == Negatives::local || comm_.world_size() == 1) {
      return {own, {}, input.ids, 0, rows * comm_.world_size()};
    }
    // Raw actions are data: no gradient has to flow through the gather, and each rank encodes all of them
    // itself.
    const GatheredRows gathered = gather_rows(comm_, {own, index}, input.step, "loss.candidates");
    const at::Tensor& ids = gathered.columns[1];
    Candidates candidates{gathered.columns[0], {}, {}, gathered.offset, gathered.total_rows};
    candidates.ids.assign(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel());
    if (gathered.total_rows != gathered.valid.numel()) {
      candidates.valid_N = gathered.valid;
    }
    return candidates;
  }

  /// Standard normals [rows, S, C] by Box and Muller from each row's own stream.
  at::Tensor normal_noise(const StepInput& input, StepOutput& output) {
    const int64_t rows = input.end_row - input.first_row;
    const int64_t each = model_.shape().context_steps * model_.shape().channels;
    at::Tensor uniform = at::empty({rows, 2, each}, at::kFloat);
    std::vector<uint64_t> keys;
    for (int64_t row = 0; row < rows; ++row) {
      keys.push_back(streams_.row_key(Purpose::context_noise, input.step,
                                      input.ids[static_cast<std::size_t>(input.first_row + row)],
                                      input.first_row + row));
      fill_uniform(keys.back(),
                   {uniform.mutable_data_ptr<float>() + row * 2 * each, static_cast<std::size_t>(2 * each)});
    }
    output.streams.push_back(
        {"context_noise", stream_fingerprint(keys), static_cast<uint64_t>(rows * 2 * each)});
    const at::Tensor radius = at::sqrt(-2.0 * at::log(1.0 - uniform.select(1, 0)));
    const at::Tensor angle = at::cos(2.0 * std::numbers::pi * uniform.select(1, 1));
    return (radius * angle).view({rows, model_.shape().context_steps, model_.shape().channels});
  }

  /// Factors [rows, N, W] on the head's hidden layer; each pair of a row and a candidate has a stream of its
  /// own.
  at::Tensor dropout_factors(const StepInput& input, const Candidates& candidates, StepOutput& output) {
    const int64_t rows = input.end_row - input.first_row;
    const auto columns = static_cast<int64_t>(candidates.ids.size());
    const int64_t hidden = model_.shape().hidden;
    at::Tensor factors = at::empty({rows, columns, hidden}, at::kFloat);
    float* out = factors.mutable_data_ptr<float>();
    std::vector<uint64_t> keys;
    for (int64_t row = 0; row < rows; ++row) {
      keys.push_back(streams_.row_key(Purpose::dropout, input.step,
                                      input.ids[static_cast<std::size_t>(input.first_row + row)],
                                      input.first_row + row));
      for (int64_t column = 0; column < columns; ++column, out += hidden) {
        fill_dropout(streams_.pair_key(keys.back(), candidates.ids[static_cast<std::size_t>(column)], column),
                     static_cast<float>(config_.dropout), {out, static_cast<std::size_t>(hidden)});
      }
    }
    // Position in a row's streams, one stream a candidate: how many candidates there are is the energies'
    // matter.
    output.streams.push_back({"dropout", stream_fingerprint(keys), static_cast<uint64_t>(rows * hidden)});
    return factors;
  }

  const RunConfig& config_;
  std::shared_ptr<const EnergyData> data_;
  Comm& comm_;
  RandomStreams streams_;
  EnergyModel model_;
};

class EnergyScenario : public Scenario {
 public:
  void prepare(const RunConfig& config) override {
    const Dataset dataset = load_dataset(config.data);
    samples_ = static_cast<int64_t>(dataset.train.size());
    data_ = std::make_shared<const EnergyData>(make_energy_data(dataset));
  }
  int64_t samples() const override { return samples_; }
  std::unique_ptr<Task> make_task(const RunConfig& config, Comm& comm) override {
    return std::make_unique<EnergyTask>(config, data_, comm);
  }

 private:
  int64_t samples_ = 0;
  std::shared_ptr<const EnergyData> data_;
};

}  // namespace

std::unique_ptr<Scenario> make_energy_scenario() { return std::make_unique<EnergyScenario>(); }

}  // namespace lockstep
