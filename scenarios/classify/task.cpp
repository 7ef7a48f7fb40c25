#include "scenarios/classify/task.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/plan/config/canonical.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/task.h"
#include "losses/block.h"
#include "losses/cross_entropy.h"
#include "losses/infonce.h"
#include "scenarios/classify/spec.h"
#include "scenarios/mutants/classify_fault.h"
#include "scenarios/samples.h"
#include "scenarios/scenario.h"

namespace lockstep {

at::Tensor Classifier::draw(const std::string& name, at::IntArrayRef shape, int64_t fan_in,
                            at::Generator& generator) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return parameters_.add(name, at::empty(shape, at::kFloat).uniform_(-bound, bound, generator).to(dtype_));
}

Classifier::Classifier(const ClassifierShape& shape, int64_t seed, at::ScalarType dtype)
    : shape_(shape), dtype_(dtype) {
  const c10::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  const int64_t seen = shape.channels * kWindow, d = shape.width, w = shape.hidden;
  encoder_w_ = draw("encoder.weight", {d, seen}, seen, generator);
  if (shape.normalised) {
    norm_w_ = parameters_.add("norm.weight", at::ones({d}, dtype));
    norm_b_ = parameters_.add("norm.bias", at::zeros({d}, dtype));
  } else {
    encoder_b_ = draw("encoder.bias", {d}, seen, generator);
  }
  mixer_w_ = draw("mixer.weight", {w, 2 * d}, 2 * d, generator);
  mixer_b_ = draw("mixer.bias", {w}, 2 * d, generator);
  classes_w_ = draw("classes.weight", {shape.classes, w}, w, generator);
  classes_b_ = draw("classes.bias", {shape.classes}, w, generator);
  if (shape.reconstructs) {
    decoder_w_ = draw("decoder.weight", {shape.channels, w}, w, generator);
    decoder_b_ = draw("decoder.bias", {shape.channels}, w, generator);
  }
  const at::Tensor so_far_TT = at::ones({shape.steps, shape.steps}, dtype).tril();
  mean_so_far_TT_ = so_far_TT / so_far_TT.sum(1, true);
}

Classifier Classifier::cast(at::ScalarType dtype) const {
  Classifier view = *this;
  view.dtype_ = dtype;
  for (at::Tensor* tensor : {&view.encoder_w_, &view.encoder_b_, &view.norm_w_, &view.norm_b_, &view.mixer_w_,
                             &view.mixer_b_, &view.classes_w_, &view.classes_b_, &view.decoder_w_, &view.decoder_b_,
                             &view.mean_so_far_TT_}) {
    if (tensor->defined()) {
      *tensor = tensor->to(dtype);
    }
  }
  return view;
}

at::Tensor Classifier::features(const at::Tensor& values_BTC) const {
  const at::Tensor padded = at::constant_pad_nd(values_BTC.to(dtype_), {0, 0, kWindow - 1, 0});
  const at::Tensor seen = padded.unfold(1, kWindow, 1).flatten(2);
  return at::linear(seen, encoder_w_, encoder_b_);
}

namespace {

/// The hidden layer: activation of a linear map of each step's features and of their mean so far.
struct HiddenLayer {
  at::Tensor mean_TT, weight, bias;

  at::Tensor of(const at::Tensor& features_BTD, const at::Tensor& dropout_BW) const {
    const at::Tensor feature_BTD = at::tanh(features_BTD);
    const at::Tensor both = at::cat({feature_BTD, at::matmul(mean_TT, feature_BTD)}, 2);
    const at::Tensor hidden_BTW = at::silu(at::linear(both, weight, bias));
    return dropout_BW.defined() ? hidden_BTW * dropout_BW.unsqueeze(1) : hidden_BTW;
  }
};

}  // namespace

at::Tensor Classifier::hidden(const at::Tensor& features_BTD, const at::Tensor& dropout_BW) const {
  const int64_t steps = features_BTD.size(1);
  return HiddenLayer{mean_so_far_TT_.narrow(0, 0, steps).narrow(1, 0, steps), mixer_w_, mixer_b_}.of(features_BTD, dropout_BW);
}

at::Tensor Classifier::recomputed_hidden(const at::Tensor& features_BTD, DropoutFactors dropout) const {
  const int64_t steps = features_BTD.size(1);
  const at::Tensor mean_TT = mean_so_far_TT_.narrow(0, 0, steps).narrow(1, 0, steps);
  const auto piece = [mean_TT, dropout = std::move(dropout)](const std::vector<at::Tensor>& inputs, bool again) {
    return std::vector<at::Tensor>{HiddenLayer{mean_TT, inputs[1], inputs[2]}.of(inputs[0], dropout(again))};
  };
  return recomputed(piece, {features_BTD}, {mixer_w_, mixer_b_}).front();
}

at::Tensor Classifier::logits(const at::Tensor& hidden_BTW) const { return at::linear(hidden_BTW, classes_w_, classes_b_); }

at::Tensor Classifier::reconstruction(const at::Tensor& hidden_BTW) const {
  return at::linear(hidden_BTW, decoder_w_, decoder_b_);
}

namespace {

CropTensors to_tensors(const Crops& crops) {
  CropTensors tensors;
  tensors.values_NTC = at::empty({crops.size(), crops.steps, crops.channels}, at::kFloat);
  std::copy(crops.values.begin(), crops.values.end(), tensors.values_NTC.mutable_data_ptr<float>());
  tensors.label_N = at::tensor(at::ArrayRef<int64_t>(crops.labels), at::kLong);
  const at::Tensor steps_N = at::tensor(at::ArrayRef<int64_t>(crops.valid_steps), at::kLong);
  tensors.valid_NT = at::arange(crops.steps, at::kLong).unsqueeze(0) < steps_N.unsqueeze(1);
  tensors.valid_steps = crops.valid_steps;
  tensors.series = crops.series;
  return tensors;
}

}  // namespace

CropTensors CropTensors::rows(std::span<const int64_t> ids) const {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(ids.data(), ids.size()), at::kLong);
  CropTensors chosen{values_NTC.index_select(0, index), valid_NT.index_select(0, index),
                     label_N.index_select(0, index), {}, {}};
  for (const int64_t id : ids) {
    chosen.valid_steps.push_back(valid_steps[static_cast<std::size_t>(id)]);
    chosen.series.push_back(series[static_cast<std::size_t>(id)]);
  }
  return chosen;
}

static ClassifyData make_classify_data(const CropDataset& dataset, const RunConfig&) {
  return {to_tensors(dataset.train), to_tensors(dataset.holdout), to_tensors(dataset.test),
          static_cast<int64_t>(dataset.classes.size()), dataset.train.channels, dataset.train.steps};
}

namespace {

constexpr double kEps = 1e-5, kMomentum = 0.1;

/// The ranks that a sum goes over, kept with the graph.
struct SumOver {
  Comm& comm;
  std::string tag;
};

/// A sum over ranks with gradient: every rank's loss depends on every rank's summand, so the gradients of all
/// ranks are summed as well.
class SumOverRanks : public torch::autograd::Function<SumOverRanks> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& holder,
                            const at::Tensor& own) {
    context->saved_data["over"] = holder;
    const SumOver& over = held_by<SumOver>(holder);
    at::Tensor sum = own.contiguous().clone();
    over.comm.all_reduce_sum(sum, over.tag);
    return sum;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor holder = context->saved_data["over"].toTensor();
    const SumOver& over = held_by<SumOver>(holder);
    at::Tensor sum = gradients[0].contiguous().clone();
    over.comm.all_reduce_sum(sum, over.tag + ".backward");
    return {at::Tensor(), sum};
  }
};

at::Tensor sum_over_ranks(Comm& comm, const at::Tensor& own, const char* tag) {
  return SumOverRanks::apply(holder_of(std::make_shared<SumOver>(SumOver{comm, tag})), own);
}

struct Statistics {
  at::Tensor mean_D, variance_D;
  double steps = 0;  ///< that they are of
};

/// In two passes. `sum`: of a vector over whoever shares the statistics.
template <typename Sum>
Statistics statistics_of(const at::Tensor& features_BTD, const at::Tensor& valid_BT1, const Sum& sum) {
  Statistics found;
  const at::Tensor counting = at::where(valid_BT1, features_BTD, 0.0);
  const at::Tensor count = valid_BT1.sum().to(counting.scalar_type()).reshape({1});
  const at::Tensor sums = sum(at::cat({counting.sum(at::IntArrayRef{0, 1}), count}), "norm.sums");
  found.steps = sums[-1].item<double>();
  if (found.steps == 0) {
    return found;
  }
  const int64_t width = features_BTD.size(2);
  found.mean_D = sums.narrow(0, 0, width) / found.steps;
  const at::Tensor apart = at::where(valid_BT1, features_BTD - found.mean_D, 0.0);
  found.variance_D = sum(apart.square().sum(at::IntArrayRef{0, 1}), "norm.squares") / found.steps;
  return found;
}

}  // namespace

BatchNorm::BatchNorm(NormKind kind, int64_t width, at::ScalarType dtype)
    : kind_(kind), running_mean_D_(at::zeros({width}, dtype)), running_variance_D_(at::ones({width}, dtype)) {}

at::Tensor BatchNorm::normalised(const Classifier& model, const at::Tensor& features_BTD, const at::Tensor& mean,
                                 const at::Tensor& variance) const {
  return (features_BTD - mean) * at::rsqrt(variance + kEps) * model.norm_weight() + model.norm_bias();
}

void BatchNorm::take_up(const at::Tensor& mean_D, const at::Tensor& variance_D, double steps) {
  seen_.push_back({mean_D.detach(), variance_D.detach() * (steps > 1 ? steps / (steps - 1) : 1)});
  last_mean_norm_ = seen_.back().mean_D.norm().item<double>();
}

at::Tensor BatchNorm::train(const Classifier& model, Comm& comm, const at::Tensor& features_BTD,
                            const at::Tensor& valid_BT, const NormGroups& groups) {
  // Statistics are summed in no less than float32.
  const at::Tensor wide_BTD =
      features_BTD.scalar_type() == at::kBFloat16 ? features_BTD.to(at::kFloat) : features_BTD;
  const at::Tensor valid_BT1 = valid_BT.unsqueeze(2);
  const auto alone = [](const at::Tensor& own, const char*) { return own; };
  last_mean_norm_ = 0;
  if (groups.group_B.defined()) {
    at::Tensor result = at::zeros_like(wide_BTD);
    for (int64_t group = 0; group <= groups.group_B.max().item<int64_t>(); ++group) {
      const at::Tensor of_group_BT1 =
          valid_BT1.logical_and((groups.group_B == group).reshape({-1, 1, 1}));
      const Statistics found = statistics_of(wide_BTD, of_group_BT1, alone);
      if (found.steps == 0) {
        continue;
      }
      result = at::where(of_group_BT1, normalised(model, wide_BTD, found.mean_D, found.variance_D), result);
      if (group < groups.of_rank_0) {
        take_up(found.mean_D, found.variance_D, found.steps);
      }
    }
    return result.to(features_BTD.scalar_type());
  }
  const bool shared = kind_ == NormKind::sync_batch && comm.world_size() > 1;
  const auto over_ranks = [&](const at::Tensor& own, const char* tag) { return sum_over_ranks(comm, own, tag); };
  const Statistics found = shared ? statistics_of(wide_BTD, valid_BT1, over_ranks)
                                  : statistics_of(wide_BTD, valid_BT1, alone);
  if (found.steps == 0) {
    // Nothing is valid: zeros with a gradient of 0, for the parameters' sake.
    return features_BTD * model.norm_weight() + model.norm_bias();
  }
  take_up(found.mean_D, found.variance_D, found.steps);
  return normalised(model, wide_BTD, found.mean_D, found.variance_D).to(features_BTD.scalar_type());
}

void BatchNorm::update_running(Comm& comm) {
  for (const Seen& seen : seen_) {
    running_mean_D_.mul_(1 - kMomentum).add_(seen.mean_D, kMomentum);
    running_variance_D_.mul_(1 - kMomentum).add_(seen.variance_D, kMomentum);
  }
  seen_.clear();
  if (kind_ == NormKind::batch && comm.world_size() > 1) {
    const at::Tensor both = at::stack({running_mean_D_, running_variance_D_});
    comm.broadcast(both, 0, "norm.buffers");
    running_mean_D_.copy_(both[0]);
    running_variance_D_.copy_(both[1]);
  }
}

std::vector<NamedBuffer> BatchNorm::buffers() const {
  return {{"buffer/norm.running_mean", running_mean_D_}, {"buffer/norm.running_variance", running_variance_D_}};
}

at::Tensor BatchNorm::evaluate(const Classifier& model, const at::Tensor& features_BTD) const {
  return normalised(model, features_BTD, running_mean_D_, running_variance_D_);
}

namespace {

constexpr int64_t kClassifyRowsAtOnce = 64;  // Keeps the activations in the processor's cache.

/// Is the wanted class's value larger than every other one?
bool is_best(const double* values, int64_t classes, int64_t wanted) {
  for (int64_t k = 0; k < classes; ++k) {
    if (k != wanted && !(values[k] < values[wanted])) {
      return false;
    }
  }
  return true;
}

at::Tensor log_probabilities(const Classifier& model, const BatchNorm* norm, const CropTensors& crops, const Heartbeat& heartbeat) {
  std::vector<at::Tensor> parts;
  for (int64_t row = 0; row < crops.size(); row += kClassifyRowsAtOnce) {
    heartbeat();
    const at::Tensor values = crops.values_NTC.narrow(0, row, std::min(kClassifyRowsAtOnce, crops.size() - row));
    at::Tensor features = model.features(values);
    if (norm != nullptr) {
      features = norm->evaluate(model, features);
    }
    parts.push_back(at::log_softmax(model.logits(model.hidden(features, {})), 2));
  }
  return at::cat(parts);
}

}  // namespace

ClassScores score_classes(const at::Tensor& log_p_NTK, const CropTensors& crops) {
  ClassScores scores;
  if (crops.size() == 0) {
    return scores;
  }
  const at::Tensor wide = log_p_NTK.to(at::kDouble).contiguous();
  const double* log_p = wide.const_data_ptr<double>();
  const int64_t* labels = crops.label_N.const_data_ptr<int64_t>();
  const int64_t steps = wide.size(1), classes = wide.size(2);
  struct Series {
    int64_t label = 0;
    std::vector<double> sums;
  };
  std::map<int64_t, Series> by_series;
  int64_t counted = 0;
  for (int64_t crop = 0; crop < crops.size(); ++crop) {
    Series& series = by_series[crops.series[static_cast<std::size_t>(crop)]];
    series.label = labels[crop];
    series.sums.resize(static_cast<std::size_t>(classes), 0.0);
    for (int64_t step = 0; step < crops.valid_steps[static_cast<std::size_t>(crop)]; ++step) {
      const double* here = log_p + (crop * steps + step) * classes;
      for (int64_t k = 0; k < classes; ++k) {
        series.sums[static_cast<std::size_t>(k)] += here[k];
      }
      scores.step_accuracy += is_best(here, classes, labels[crop]) ? 1 : 0;
      scores.cross_entropy -= here[labels[crop]];
      ++counted;
    }
  }
  scores.step_accuracy /= static_cast<double>(counted);
  scores.cross_entropy /= static_cast<double>(counted);
  for (const auto& [index, series] : by_series) {
    scores.accuracy += is_best(series.sums.data(), classes, series.label) ? 1 : 0;
  }
  scores.accuracy /= static_cast<double>(by_series.size());
  return scores;
}

/// accuracy, step_accuracy and cross_entropy of the test part; at the end of a run the number of classes too, and
/// holdout_step_accuracy and holdout_cross_entropy of the held-out series, if there are any. norm: or null.
static std::map<std::string, double> evaluate_classifier(const Classifier& model, const BatchNorm* norm,
                                                  const ClassifyData& data, Evaluation kind, const Heartbeat& heartbeat) {
  const c10::NoGradGuard no_grad;
  const ClassScores test = score_classes(log_probabilities(model, norm, data.test, heartbeat), data.test);
  std::map<std::string, double> metrics{{"accuracy", test.accuracy},
                                        {"step_accuracy", test.step_accuracy},
                                        {"cross_entropy", test.cross_entropy}};
  if (kind == Evaluation::last) metrics["classes"] = static_cast<double>(data.classes);
  if (kind == Evaluation::last && data.holdout.size() > 0) {
    const ClassScores holdout = score_classes(log_probabilities(model, norm, data.holdout, heartbeat), data.holdout);
    metrics["holdout_step_accuracy"] = holdout.step_accuracy;
    metrics["holdout_cross_entropy"] = holdout.cross_entropy;
  }
  return metrics;
}

// The trainer classify: cross-entropy at every time step of rows of unequal length, divided by a count of which
// ranks and micro-steps each know a part.
//
// B = rows, T = time steps, W = hidden width.
namespace {

/// No row needs another. What so many keep for the way back stays in the processor's caches.
constexpr int64_t kRowsAtOnce = 256;

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
    std::vector<PartitionedPlace> partitioned;
    if (config_.oracle_world > 0) partitioned = partitioned_places(config_, static_cast<int64_t>(input.ids.size()));
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

}  // namespace

std::unique_ptr<Scenario> make_classify_scenario() {
  return std::make_unique<SeriesScenario<CropDataset, ClassifyData, ClassifyTask>>(&load_crops, &make_classify_data);
}

}  // namespace lockstep
