#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/words.h"
#include "harness/judge/evidence/parts.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/plan.h"

// What one run left, as far as outcomes need it: its end, its metrics, its curves.

namespace lockstep {

struct RunEvidence {
  std::optional<Failure> failure;
  std::optional<Failure> idle_fault;  ///< the run finished, and a fault that was planted in it never acted
  std::map<std::string, double> metrics;  ///< of rank 0; training metrics and areas made from the curves
  double seconds = 0;                     ///< of training, on the slowest rank
  std::string certified_by;                ///< what two runs over its transport may be held to, as rank 0 says: "bits", "band"; empty: nothing said
  std::string failed_saves;                ///< of checkpoints, in one line as rank 0 says; empty: none failed
  std::map<std::string, Series>
      curves;  ///< loss, loss_over_log_n: mean over ranks; the others as rank 0 wrote them
};

/// seed -> metric -> value at the end of the run
using MetricsBySeed = std::map<int64_t, std::map<std::string, double>>;

using RankResultReader = std::function<RankResult(const std::string& path)>;

/// Steps at the end of a run over which its training metrics are averaged.
inline constexpr std::size_t kTrainMetricSteps = 50;

/// Reads every rank's result under `run_dir`. What is wrong with them becomes the evidence's failure; it is
/// never thrown. `launched` is the failure that the launcher saw, or null; it comes first. A training loss
/// that is NaN or infinite at any step fails the run, and so does the primary metric, at its end or along its
/// curve; of other metrics such values are handed on. An empty primary metric: the one that the trainer
/// shows.
RunEvidence gather_run(const PlannedRun& run, const std::string& run_dir, const Failure* launched,
                       const RankResultReader& read, std::string_view primary_metric = {});

/// Area under the curve by the trapezoid rule, over the length from the first to the last step: a mean
/// height. Of at least two points.
double area_under(const std::vector<int64_t>& steps, const std::vector<double>& values);

/// Bands over the seeds of one arm: median, smallest, largest at the steps that all have, at most
/// 300 of them. A metric without a curve in every run is left out.
std::vector<CurveBand> curve_bands(const std::vector<const RunEvidence*>& seeds, const std::vector<std::string>& metrics);

// What is known of how a run trains: from its config where it is one of ours, else from what its traces' header declares.

/// The optimizer's numbers. Weight decay and rate may be other ones for some parameters.
struct UpdateFacts {
  OptimizerKind optimizer = OptimizerKind::sgd;
  double momentum = 0, weight_decay = 0;
  AdamNumbers adam = {};
  std::vector<DeclaredParameters> parameters;

  double decay_of(std::string_view parameter) const;
  double rate_factor_of(std::string_view parameter) const;
  /// Has any parameter a weight decay?
  bool decays() const;
};

/// What is not known is empty, or 0.
struct TrainingFacts {
  std::optional<UpdateFacts> update;
  double clip_norm = 0;  ///< 0: no clipping, or not known
  int64_t accumulation = 1;
  int64_t rows_per_rank = 0, global_batch = 0;
  std::vector<double> other_rates;  ///< that a step may take by mistake: before schedule and rules, and 1
  double declared_rate = 0;         ///< before any schedule, as a header declares it
  double working_epsilon = 0;       ///< of the precision in which gradients are computed
};

/// Those of a run of ours.
TrainingFacts training_facts(const RunConfig& config);
/// `config`: the run's own, null if it is not known.
TrainingFacts training_facts(const RunConfig* config, const RunReader& run);

/// What stands in a difference for a key that a header does not declare.
inline constexpr const char* kNotDeclared = "not declared";

/// What two traces' headers declare differently: optimizer and its numbers, clip_norm, accumulation, base_rate, average_decay, global_batch, precision,
/// gradient_reduction, and by parameter rate factors and weight decays. Null: nothing is declared.
std::vector<ConfigDifference> declared_differences(const Declared* reference, const Declared* cell);

/// What a cell's updates are compared with: what the reference's optimizer is configured to do, but for keys that are
/// declared. Of what the reference does not tell, the cell's own.
TrainingFacts facts_to_meet(const TrainingFacts& reference, const TrainingFacts& cell, const ConfigPair& configs);

}  // namespace lockstep
