#include "scenarios/classify/evaluation.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <vector>

namespace lockstep {
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
