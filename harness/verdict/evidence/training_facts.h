#pragma once
// What is known of how a run trains: from its config where it is one of ours, else from what its traces' header declares.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/config/config_difference.h"
#include "harness/verdict/config/learning_rate.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/evidence/align.h"
#include "harness/verdict/trace/declared.h"

namespace lockstep {

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
