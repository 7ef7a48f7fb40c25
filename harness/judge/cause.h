#pragma once
// Why two runs part: named from the evidence around the first divergence, or `unexplained`.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/compare.h"
#include "harness/judge/forced_gradients.h"
#include "harness/judge/forced_values.h"
#include "harness/judge/ledger_audit.h"
#include "harness/judge/results.h"
#include "harness/plan/run_config.h"

namespace lockstep {

/// Sample ids by step and rank.
using SampleHistory = std::map<int64_t, std::vector<std::vector<int64_t>>>;

/// What forced runs tell of the step of the divergence.
struct ForcedEvidence {
  ForcedValues reference, cell;
  std::optional<ForcedValues> cell_before;  ///< the cell's forced step before
  std::optional<Snapshot> state;            ///< what both began from, if the reference kept it
  double energy_band = 0, loss_band = 0;
  GradientJudgement local;  ///< mean over ranks of the local gradients against the reference; empty: not kept
  GradientJudgement reduced;
};

/// Everything that is known around the first divergence. What is not known is empty or null.
struct CauseInputs {
  Difference difference;
  std::optional<StepOfRun> reference, cell;                ///< the runs in which it was found, at that step
  std::optional<StepOfRun> reference_before, cell_before;  ///< the step that they have before it
  SampleHistory reference_samples, cell_samples;           ///< up to one step beyond the divergence
  std::optional<ForcedEvidence> forced;
  std::optional<LedgerFinding> ledger;  ///< if the ledger's own audit found it
  const RunConfig* reference_config = nullptr;
  const RunConfig* cell_config = nullptr;
};

/// The cause of a divergence that lies outside its band. One rule answers with one code; where no rule fits,
/// or two that fit equally well contradict each other, the code is `unexplained` and the evidence tells what
/// was seen.
std::optional<Cause> name_cause(const CauseInputs& inputs);

/// The cause of a run that did not finish, from what the launcher and the header exchange said. Nothing if it
/// was stopped on request, or if nothing was wrong with its ranks.
std::optional<Cause> name_failure_cause(const Failure& failure);

/// A cause at length: what `lockstep explain CODE` prints.
struct CausePage {
  std::string_view code;
  std::string_view family;  ///< samples, random, control, energies, loss, gradient, reduction, update, ...
  std::string_view what;    ///< one sentence
  std::string_view recognised;    ///< the formula or the evidence
  std::string_view wrong, right;  ///< a minimal example: a few lines of code each
  std::string_view remedy;        ///< one sentence
  std::string_view reports = {};  ///< public reports, "owner/repository#number, ..."
};

/// All codes, family by family; `unexplained` last.
std::span<const CausePage> cause_pages();

/// Null if there is no such code.
const CausePage* find_cause_page(std::string_view code);

}  // namespace lockstep
