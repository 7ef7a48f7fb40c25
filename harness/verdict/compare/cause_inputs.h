#pragma once
// What is known around the first divergence of two runs: what its cause is named from.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "harness/verdict/compare/forced/gradients.h"
#include "harness/verdict/compare/forced/values.h"
#include "harness/verdict/compare/step_pairs.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/evidence/difference.h"
#include "harness/verdict/evidence/ledger.h"
#include "harness/verdict/evidence/parts.h"
#include "harness/verdict/evidence/replays.h"
#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

struct TrainerSpec;
namespace causes {
struct TrainerRules;
}

/// What forced runs tell of the step of the divergence.
struct ForcedEvidence {
  ForcedValues reference, cell;
  std::optional<ForcedValues> cell_before;  ///< the cell's forced step before
  KnownState state;                         ///< what the cell began from
  KnownState reference_state;               ///< what the reference began from
  double score_band = 0, loss_band = 0;
  GradientJudgement local;  ///< mean over ranks of the local gradients against the reference; empty: not kept
  GradientJudgement reduced;
};

/// Everything that is known around the first divergence. What is not known is empty or null.
struct CauseInputs {
  Difference difference;
  std::optional<StepOfRun> reference, cell;                ///< the runs in which it was found, at that step
  std::optional<StepOfRun> reference_before, cell_before;  ///< their last step before it
  SampleHistory reference_samples, cell_samples;           ///< up to one step beyond the divergence
  GeneratorHistory cell_generators;                        ///< likewise
  /// Rank 0's learning rates from the divergence on, if that lies in them.
  std::map<int64_t, double> reference_rates, cell_rates;
  std::optional<ForcedEvidence> forced;
  std::optional<RowsApart> rows;        ///< of a replayed step at the divergence or before it, where both runs left it
  std::optional<LedgerFinding> ledger;  ///< if the ledger's own audit found it
  const RunConfig* reference_config = nullptr;
  const RunConfig* cell_config = nullptr;
  std::vector<ConfigDifference> config_differences;
  TrainingFacts reference_facts;
  TrainingFacts cell_facts;  ///< what it is compared with: see facts_to_meet
  /// The trainer of both runs; null: it is none of ours, or the runs have two. Then only causes that hold for
  /// any trainer are named.
  const TrainerSpec* trainer = nullptr;
  /// Its rules; null: those of the trainer of that name.
  const causes::TrainerRules* rules = nullptr;
};

/// What a comparison found.
struct Comparison {
  Mechanism mechanism;                ///< its cause is not named yet
  std::optional<CauseInputs> around;  ///< the first divergence, as far as traces tell of it
  std::string left = {};   ///< two layouts: why replays of steps do not speak for the run from `left_at` on, in words; empty: nothing shows it
  int64_t left_at = -1;
  bool adds_gradients = false;  ///< run B's ranks add their gradients up, and have the reference's then
};

}  // namespace lockstep
