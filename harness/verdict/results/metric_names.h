#pragma once
// What a metric's name says about it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/config/metrics.h"

namespace lockstep {

/// train_X: mean of the curve of X over the last steps of training.
inline constexpr std::string_view kTrainPrefix = "train_";
/// auc_X: area under the curve of X over its evaluated steps, divided by their length.
inline constexpr std::string_view kAreaPrefix = "auc_";

/// A metric's or a curve's name taken apart, as its trainer's table says: "auc_cross_entropy_24" is an area, under the 24-way
/// cross-entropy.
struct MetricName {
  const MetricSpec* spec = nullptr;  ///< null: a name that no trainer knows, to be shown as it is
  bool area = false;                 ///< under the curve of what the rest says
  /// A value of the training steps. The curve of train_X is called X: both names are one metric.
  bool training = false;
};
MetricName metric_name(std::string_view metric);

/// Is the area under this metric's curve taken?
bool has_area(std::string_view metric);

/// As its trainer says; auc_X and train_X: as X. Nothing for unknown names.
std::optional<bool> higher_is_better(std::string_view metric);

/// In words: "24-way accuracy", "training loss / log N", "raw cross-entropy (24-way)".
std::string metric_label(std::string_view metric);

/// Several metrics in words, those of one family once: "its training loss / log N and its raw cross-entropy".
/// `all` are the metrics that were measured: a family is named without its sizes if all of it is in
/// `metrics`.
std::string metric_list(const std::vector<std::string>& metrics, const std::vector<std::string>& all);

}  // namespace lockstep
