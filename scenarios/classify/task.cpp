// The trainer classify: cross-entropy at every time step of rows of unequal length, divided by a count of which
// ranks and micro-steps each know a part.
//
// B = rows, T = time steps, W = hidden width.

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "harness/lib/data/sampler.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/streams.h"
#include "harness/verdict/config/seeds.h"
#include "losses/cross_entropy.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/data.h"
#include "scenarios/classify/model.h"
#include "scenarios/kept_data.h"
#include "scenarios/mutants/classify_fault.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

/// No row needs another. What so many keep for the way back stays in the processor's caches.
constexpr int64_t kRowsAtOnce = 256;

/// Where a row of the whole batch is taken among the ranks that one process stands for.
struct PartitionedPlace {
  int rank = 0;
  int64_t micro_step = 0;
};

std::vector<PartitionedPlace> partitioned_places(const RunConfig& config, const StepInput& input) {
  const auto rows = static_cast<int64_t>(input.ids.size());
  const std::vector<int> owner = owners_of_rows(rows, config.oracle_world, config.rows, config.data.block);
  std::vector<int64_t> rows_of(static_cast<std::size_t>(config.oracle_world), 0), next(rows_of.size(), 0);
  for (const int rank : owner) {
    ++rows_of[static_cast<std::size_t>(rank)];
  }
  std::vector<PartitionedPlace> partitioned;
  for (const int rank : owner) {
    const auto of_rank = static_cast<std::size_t>(rank);
    // The micro-step m whose rows [m * all / micro_steps, (m + 1) * all / micro_steps) hold the rank's next row.
    int64_t micro = 0;
    while ((micro + 1) * rows_of[of_rank] / config.accumulation <= next[of_rank]) {
      ++micro;
    }
    ++next[of_rank];
    partitioned.push_back({rank, micro});
  }
  return partitioned;
}

void add(LossCounts& sum, const LossCounts& more) {
  sum.rows += more.rows;
  sum.valid_steps += more.valid_steps;
}

class ClassifyTask : public Task {
 public:
  ClassifyTask(const RunConfig& config, std::shared_ptr<const ClassifyData> data, Comm& comm, Mutant* mutant)
      : config_(config),
        own_(classify(config)),
        data_(std::move(data)),
        comm_(comm),
        fault_(dynamic_cast<ClassifyFault*>(mutant)),
        streams_(config.rank_seed, stream_seed(config), comm.rank()),
        model_(shape_of(own_, *data_), config.seed,
               computed_precision(config) == Precision::float64 ? at::kDouble : at::kFloat) {
    if (own_.norm != NormKind::none) {
      norm_.emplace(own_.norm, own_.model.width, model_.dtype());
    }
  }

  ParameterList& parameters() override { return model_.parameters(); }

  bool takes_parts() const override { return config_.oracle_world == 0 && own_.norm == NormKind::none; }
  int64_t rows_at_once() const override { return kRowsAtOnce; }

  StepOutput forward(const StepInput& input) override {
    const std::span<const int64_t> ids = std::span<const int64_t>(input.ids)
                                             .subspan(static_cast<std::size_t>(input.first_row),
                                                      static_cast<std::size_t>(input.end_row - input.first_row));
    const CropTensors rows = data_->train.rows(ids);
    const std::vector<PartitionedPlace> partitioned =
        config_.oracle_world > 0 ? partitioned_places(config_, input) : std::vector<PartitionedPlace>{};
    const Classifier model = computed_precision(config_) == Precision::bfloat16 ? model_.cast(at::kBFloat16) : model_;
    at::Tensor features_BTD = model.features(rows.values_NTC);
    if (norm_) {
      features_BTD = norm_->train(model, comm_, features_BTD, rows.valid_NT, norm_groups(partitioned));
    }
    StepOutput output;
    const at::Tensor hidden_BTW = hidden_of(model, features_BTD, input, ids, output);
    const RowLosses of_rows = losses_of(model, hidden_BTW, rows, input);
    const LossCounts own = counts_of(input.step_ids);
    if (config_.oracle_world > 0) {
      describe_reference(of_rows, row_weights(partitioned, rows.valid_steps), output);
    } else {
      const at::Tensor cross_entropy_B = cross_entropy_row_sums(of_rows.cross_entropy);
      output.row_losses_B = cross_entropy_B;
      output.row_weight = weight_of(input, own);
      if (reconstructs()) add_reconstruction(of_rows.reconstruction, input, output);
      if (input.exact) {
        // One divisor where all rows share it; else what a row weighs on its rank is part of the objective.
        const bool one = own_.denominator.scope == DenominatorScope::global;
        const double counted = one ? counted_by(own_.denominator, all_) : comm_.world_size();
        output.row_divisor = counted > 0 ? counted : 1;
        if (one) output.row_weight = 1;
      }
      output.loss = output.row_losses_B.sum() * output.row_weight;
    }
    if (input.exact || input.describes_rows) {
      for (int64_t row = 0; row < rows.size(); ++row) {
        output.row_inputs.push_back(static_cast<int64_t>(tensor_hash(view_of(rows.values_NTC.narrow(0, row, 1).contiguous()))));
      }
    }
    if (input.describes_rows) describe(rows, counts_of(ids), output);
    // What stands beside a single row is the row's, or its mean over rows would depend on who has them.
    output.scalars = {{"valid_steps", (input.exact ? counts_of(ids) : own).valid_steps},
                      {"loss_weight", output.row_weight}};
    if (norm_) {
      output.scalars.emplace_back("norm_mean", norm_->last_mean_norm());
    }
    return output;
  }

  std::vector<NamedBuffer> buffers() override {
    return norm_ ? norm_->buffers() : std::vector<NamedBuffer>{};
  }
  void update_buffers() override {
    if (norm_) {
      norm_->update_running(comm_);
    }
  }

  std::map<std::string, double> evaluate(Evaluation kind, const Heartbeat& heartbeat) override {
    return evaluate_classifier(model_, norm_ ? &*norm_ : nullptr, *data_, kind, heartbeat);
  }

 private:
  static ClassifierShape shape_of(const ClassifyConfig& own, const ClassifyData& data) {
    return {data.steps,       data.channels,     data.classes,
            own.model.width,  own.model.hidden,  own.norm != NormKind::none,
            own.auxiliary.weight > 0};
  }

  bool reconstructs() const { return own_.auxiliary.weight > 0; }

  /// What the rows' losses are computed from; the second is empty without a second loss.
  struct RowLosses {
    CrossEntropyInput cross_entropy;
    SquaredErrorInput reconstruction;
  };

  RowLosses losses_of(const Classifier& model, const at::Tensor& hidden_BTW, const CropTensors& rows, const StepInput& input) const {
    RowLosses losses{{model.logits(hidden_BTW), rows.label_N.unsqueeze(1).expand_as(rows.valid_NT), rows.valid_NT,
                      own_.label_smoothing, input.as_terms},
                     {}};
    if (reconstructs()) losses.reconstruction = {model.reconstruction(hidden_BTW), rows.values_NTC, rows.valid_NT, input.as_terms};
    return losses;
  }

  /// Makes of `output`, whose row losses are the cross-entropy's, the weighted sum of both losses.
  void add_reconstruction(const SquaredErrorInput& of_rows, const StepInput& input, StepOutput& output) const {
    at::Tensor reconstruction_B = squared_error_row_sums(of_rows);
    if (fault_ != nullptr) reconstruction_B = fault_->auxiliary(input.step, reconstruction_B);
    const auto of_step = [&](const at::Tensor& rows_B) {
      const at::Tensor loss = rows_B.sum() * output.row_weight;
      // The backward pass of a normalisation over ranks is collective: a loss by itself has none.
      return norm_ ? loss.detach() : loss;
    };
    output.terms = {{"cross_entropy", 1, of_step(output.row_losses_B)},
                    {"reconstruction", own_.auxiliary.weight, of_step(reconstruction_B)}};
    output.row_losses_B = output.row_losses_B + reconstruction_B * own_.auxiliary.weight;
  }

  /// What each row is and counts; of all together what the loss is divided by.
  void describe(const CropTensors& rows, const LossCounts& own, StepOutput& output) const {
    const at::Tensor labels = rows.label_N.contiguous();
    output.rows.labels.assign(labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel());
    output.rows.counts = rows.valid_steps;
    output.rows.widths.assign(static_cast<std::size_t>(rows.size()), data_->steps);
    output.counted = own_.denominator.over == DenominatorOver::rows ? own.rows : own.valid_steps;
  }

  LossCounts counts_of(std::span<const int64_t> ids) const {
    LossCounts counts{static_cast<double>(ids.size()), 0};
    for (const int64_t id : ids) {
      counts.valid_steps += static_cast<double>(data_->train.valid_steps[static_cast<std::size_t>(id)]);
    }
    return counts;
  }

  /// The weight of a pass's sum of losses. The counts of all ranks are exchanged once a step, at its first
  /// pass.
  double weight_of(const StepInput& input, const LossCounts& own) {
    const bool first = !input.exact && input.micro_step == 0 && input.first_row == 0;
    if (first || counted_step_ != input.step) {
      all_ = counts_of_all_ranks(comm_, own_.denominator, own);
      counted_step_ = input.step;
    }
    const DenominatorCounts counts{counts_of(input.ids), own, all_, comm_.world_size(), config_.accumulation};
    const double weight = loss_weight(own_.denominator, counts);
    return fault_ == nullptr ? weight : fault_->loss_weight(input.step, weight, counts);
  }

  /// Each row's share in the mean over the ranks that this process stands for.
  std::vector<double> row_weights(const std::vector<PartitionedPlace>& partitioned,
                                  const std::vector<int64_t>& valid_steps) const {
    const auto ranks = static_cast<std::size_t>(config_.oracle_world);
    const auto micro_steps = static_cast<std::size_t>(config_.accumulation);
    LossCounts all;
    std::vector<LossCounts> of_rank(ranks), of_micro_step(ranks * micro_steps);
    const auto place_of = [&](const PartitionedPlace& place) {
      return static_cast<std::size_t>(place.rank) * micro_steps + static_cast<std::size_t>(place.micro_step);
    };
    for (std::size_t row = 0; row < partitioned.size(); ++row) {
      const LossCounts one{1, static_cast<double>(valid_steps[row])};
      add(all, one);
      add(of_rank[static_cast<std::size_t>(partitioned[row].rank)], one);
      add(of_micro_step[place_of(partitioned[row])], one);
    }
    std::vector<double> weights;
    for (const PartitionedPlace& place : partitioned) {
      const DenominatorCounts counts{of_micro_step[place_of(place)], of_rank[static_cast<std::size_t>(place.rank)],
                                     all, config_.oracle_world, config_.accumulation};
      weights.push_back(loss_weight(own_.denominator, counts) / config_.oracle_world);
    }
    return weights;
  }

  /// Where all rows have one weight, it is the output's row weight; else each row loss is multiplied by its
  /// own.
  void describe_reference(const RowLosses& of_rows, const std::vector<double>& weights, StepOutput& output) const {
    output.row_losses_B = cross_entropy_row_sums_by_definition(of_rows.cross_entropy);
    if (reconstructs()) {
      output.row_losses_B =
          output.row_losses_B + squared_error_row_sums_by_definition(of_rows.reconstruction) * own_.auxiliary.weight;
    }
    const bool alike = std::all_of(weights.begin(), weights.end(), [&](double w) { return w == weights.front(); });
    if (alike && !weights.empty()) {
      output.row_weight = weights.front();
    } else {
      output.row_losses_B = output.row_losses_B *
                            at::tensor(at::ArrayRef<double>(weights), output.row_losses_B.options().requires_grad(false));
    }
    output.loss = output.row_losses_B.sum() * output.row_weight;
  }

  NormGroups norm_groups(const std::vector<PartitionedPlace>& partitioned) const {
    if (partitioned.empty()) {
      return {};
    }
    std::vector<int64_t> groups;
    for (const PartitionedPlace& place : partitioned) {
      const bool of_rank = own_.norm == NormKind::batch;
      groups.push_back(of_rank ? place.rank * config_.accumulation + place.micro_step : place.micro_step);
    }
    return {at::tensor(at::ArrayRef<int64_t>(groups), at::kLong), config_.accumulation};
  }

  /// The hidden layer with its dropout, each row's from its own stream; kept for the backward pass, or computed there again with what
  /// the same streams draw.
  at::Tensor hidden_of(const Classifier& model, const at::Tensor& features_BTD, const StepInput& input,
                       std::span<const int64_t> ids, StepOutput& output) const {
    if (own_.dropout <= 0) {
      const auto none = [](bool) { return at::Tensor(); };
      return own_.activation_checkpointing ? model.recomputed_hidden(features_BTD, none) : model.hidden(features_BTD, {});
    }
    std::vector<uint64_t> keys, again;
    for (std::size_t row = 0; row < ids.size(); ++row) {
      keys.push_back(streams_.row_key(Purpose::dropout, input.step, ids[row], input.first_row + static_cast<int64_t>(row)));
      again.push_back(fault_ == nullptr || !own_.activation_checkpointing ? keys.back()
                                                                          : fault_->recomputed_key(input.step, keys.back()));
    }
    const int64_t hidden = model.shape().hidden;
    StreamUse use{"dropout", stream_fingerprint(keys), keys.size() * static_cast<uint64_t>(hidden)};
    if (again != keys) {
      use.fingerprint += stream_fingerprint(again);
      use.draws *= 2;
    }
    output.streams.push_back(use);
    const auto factors = [keys, again, hidden, p = static_cast<float>(own_.dropout), dtype = model.dtype()](bool once_more) {
      return dropout_factors(once_more ? again : keys, hidden, p).to(dtype);
    };
    return own_.activation_checkpointing ? model.recomputed_hidden(features_BTD, factors)
                                         : model.hidden(features_BTD, factors(false));
  }

  /// [rows, hidden] float32
  static at::Tensor dropout_factors(const std::vector<uint64_t>& keys, int64_t hidden, float p) {
    at::Tensor factors = at::empty({static_cast<int64_t>(keys.size()), hidden}, at::kFloat);
    float* out = factors.mutable_data_ptr<float>();
    for (const uint64_t key : keys) {
      fill_dropout(key, p, {out, static_cast<std::size_t>(hidden)});
      out += hidden;
    }
    return factors;
  }

  const RunConfig& config_;
  const ClassifyConfig own_;
  std::shared_ptr<const ClassifyData> data_;
  Comm& comm_;
  ClassifyFault* fault_;  ///< or none
  RandomStreams streams_;
  Classifier model_;
  std::optional<BatchNorm> norm_;
  LossCounts all_;  ///< of all ranks at counted_step_
  int64_t counted_step_ = -1;
};

class ClassifyScenario : public Scenario {
 public:
  void make_ready(const RunConfig& config) override { dataset_of(config); }
  void prepare(const RunConfig& config) override {
    const auto dataset = dataset_of(config);
    data_ = std::make_shared<const ClassifyData>(make_classify_data(*dataset));
    data_hash_ = dataset->hash;
  }
  int64_t samples() const override { return data_->train.size(); }
  std::string data_hash() const override { return data_hash_; }
  std::unique_ptr<Task> make_task(const RunConfig& config, Comm& comm, Mutant* mutant) override {
    return std::make_unique<ClassifyTask>(config, data_, comm, mutant);
  }

 private:
  static std::shared_ptr<const CropDataset> dataset_of(const RunConfig& config) {
    static KeptData<CropDataset> kept;
    return kept.of(config, [&] { return load_crops(config); });
  }

  std::string data_hash_;
  std::shared_ptr<const ClassifyData> data_;
};

}  // namespace

std::unique_ptr<Scenario> make_classify_scenario() { return std::make_unique<ClassifyScenario>(); }

}  // namespace lockstep
