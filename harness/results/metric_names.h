#pragma once
// What a metric's name says about it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Curves and metrics that the judge makes itself, from ranks' curves.
inline constexpr std::string_view kTrainLoss = "train_loss";
inline constexpr std::string_view kTrainLossOverLogN = "train_loss_over_log_n";
/// train_X: mean of the curve of X over the last steps of training.
inline constexpr std::string_view kTrainPrefix = "train_";
/// auc_X: area under the curve of X over its evaluated steps, divided by their length.
inline constexpr std::string_view kAreaPrefix = "auc_";
/// The accuracy whose curve every trainer leaves and every comparison shows.
inline constexpr std::string_view kShownAccuracy = "accuracy_24";

/// Is the area under this metric's curve taken? accuracy_N and cross_entropy_N, as they are read during a
/// run.
bool has_area(std::string_view metric);

/// accuracy*: true; cross_entropy*, loss*, train_loss*: false; auc_X: as X; others have no direction that a
/// name tells.
std::optional<bool> higher_is_better(std::string_view metric);

/// In words: "24-way accuracy", "training loss / log N", "raw cross-entropy (24-way)".
std::string metric_label(std::string_view metric);

/// "a", "a and b", "a, b and c".
std::string join_words(const std::vector<std::string>& words);

/// Several metrics in words, those of one family once: "its training loss / log N and its raw cross-entropy".
/// `all` are the metrics that were measured: a family is named without its sizes if all of it is in
/// `metrics`.
std::string metric_list(const std::vector<std::string>& metrics, const std::vector<std::string>& all);

}  // namespace lockstep
