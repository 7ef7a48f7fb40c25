#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/plan/config/trainer_spec.h"

// How far rounding alone carried a run, in words: the same in a summary and on the terminal.

namespace lockstep {

/// What CurveBand::metric calls the distance of the parameters; and of those whose gradient is zero by symmetry, so that
/// rounding alone moves them: under Adam by as much as any other.
inline constexpr std::string_view kParameterDrift = "parameters";
inline constexpr std::string_view kIdleParameterDrift = "parameters without a gradient";

/// "Differences by rounding alone up to step 299: parameters at most 3.1e-05 of their norm, training loss at most
/// 4.0e-06, the 24-way accuracy not at all." Empty of no drift.
std::string drift_sentence(const std::vector<CurveBand>& drift);

// Is there anything to say of how the learning rate goes with the batch?

/// Does the matrix vary the global batch, or the rule that scales the learning rate? Only then do rules, their
/// exponents and gradient noise scales answer anything; every report asks here. Power controls and A/A pairs do
/// not count; a rule changes nothing in one process, which has no ranks to scale by.
bool varies_batch_or_rate_rule(const Results& results);

// What a metric's name says about it.

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

// results.json: written, read and described, all from results_description.h.

/// A whole document. Statistics stand as {"value", "bits"}; NaN and infinities are strings, never null.
std::string results_to_json(const Results& results);
/// Throws std::runtime_error on malformed text or a schema version that this build does not know.
Results results_from_json(const std::string& text, const std::string& file_name);

/// JSON Schema (draft-07) of what results_to_json writes; `lockstep schema results` prints it.
std::string results_schema();

}  // namespace lockstep
