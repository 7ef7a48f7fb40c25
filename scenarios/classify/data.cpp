#include "scenarios/classify/data.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "losses/block.h"

namespace lockstep {
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

ClassifyData make_classify_data(const CropDataset& dataset) {
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

std::map<std::string, double> evaluate_classifier(const Classifier& model, const BatchNorm* norm,
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

}  // namespace lockstep
