#pragma once
// What a run measures, by name, for programs that have no LibTorch: words of primary.metric and of claims. A
// test holds this table and what the trainer writes equal.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plan/pairs.h"

namespace lockstep {

struct MeasuredEntry {
  /// A value of each step; a metric of each evaluation; a metric of the last one alone. All are curves.
  enum class When { step, evaluation, end };
  std::string_view name;
  std::string_view help;
  When when = When::step;
  int test_pairs = 0;           ///< fewest that it is measured on
  int holdout_pairs = 0;        ///< fewest held-out ones that its temperature is fitted on
  bool made_negatives = false;  ///< only where negatives are made
  bool has_area = false;        ///< the judge takes the area under its curve, as auc_NAME
};

/// Everything that the trainer measures.
std::span<const MeasuredEntry> measured_entries();

/// Names that the run's results have under `metrics`, and as curves.
std::vector<std::string> metrics_written(const RunConfig& config, const PairCounts& pairs);
std::vector<std::string> curves_written(const RunConfig& config, const PairCounts& pairs);

/// Words of primary.metric: what outcomes can be judged by.
std::vector<std::string> outcome_metrics();
/// Words of metrics in claims: these, what is said of the process, and train_CURVE and first_CURVE.
std::vector<std::string> claim_metrics();
/// The plain metrics of "A - B", or of a plain one itself.
std::vector<std::string> parts_of_metric(std::string_view metric);

/// Why a run would not measure a metric of claim_metrics: "accuracy_256 is measured on 256 test pairs or
/// more, and there are 20; …". Empty if it does, or if that hangs on pairs that are not known.
std::string unmeasured(std::string_view metric, const RunConfig& config,
                       const std::optional<PairCounts>& pairs);

}  // namespace lockstep
