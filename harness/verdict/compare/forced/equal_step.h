#pragma once
// One step that two runs began with the same parameters, judged phase by phase.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/compare/cause_inputs.h"
#include "harness/verdict/compare/compared.h"
#include "harness/verdict/plan/matrix.h"

namespace lockstep {

struct ScoreSpec;
class TwinBounds;

/// The step as both runs recorded it, and what is known around it. All references must outlive it.
struct EqualStep {
  const StepOfRun& a;  ///< the reference's records
  const std::string& dir_a;
  const StepOfRun& b;  ///< the cell's
  const std::string& dir_b;
  const std::optional<StepOfRun>& before_b;   ///< the cell's step before, if it has one
  const std::vector<ForcedValues>& repeats;   ///< of the reference's step
  KnownState state;                           ///< what both began from, or the reference alone
  KnownState cell_state;                      ///< what the cell began from, if not from `state`
  bool exact_phases = false;                  ///< samples, streams and control values are judged here, too
  bool free = false;  ///< of free runs: what only one of them recorded is no difference
  const TwinBounds* twins = nullptr;  ///< or none: see ForcedContext
  const StepOfRun* ledger_of = nullptr;  ///< whose ledger the cell's is compared with, if not `a`'s
  Compared* compared = nullptr;          ///< takes what was compared, or none
  const StepOfRun* before_a = nullptr;   ///< the reference's step before, or none
  bool adds_gradients = false;           ///< the cell's run adds up what a replay takes the mean of
};

/// What all steps of a comparison share.
struct StepRules {
  const ScoreSpec& scores;
  const BandConfig& band;
  TrainingFacts reference_facts, cell_facts;
  /// Is the recorded loss the one that gradients are taken of? Of ours it is; others may log what a rank sees.
  bool loss_is_differentiated = true;
};

struct JudgedStep {
  ForcedStep at;                     ///< how much of the bands is used
  std::optional<CauseInputs> first;  ///< the first difference beyond its band
  bool reduced_by_sum = false;       ///< of the cell: its ranks' gradients are added up, and rightly
  /// What single ranks recorded otherwise, where all ranks reduce the reference's gradients: no difference, see is_of_one_rank.
  std::vector<Difference> passed = {};

  /// Are the recorded local gradients not what was reduced, and rightly so?
  bool local_passed() const { return std::ranges::any_of(passed, [](const Difference& each) { return each.phase == Phase::local_gradients; }); }
};

/// " Not compared, since the reduced gradients agree: ..."; empty if nothing was passed.
std::string passed_text(const std::optional<Difference>& passed);

/// Throws TraceError where a run did not keep its gradients whole.
JudgedStep judge_equal_step(const EqualStep& step, const StepRules& rules);

/// What the step's values tell of a difference that was found in its bits. Throws as judge_equal_step.
ForcedEvidence evidence_of_step(const EqualStep& step, const StepRules& rules);

/// A step that the runs began with parameters of their own: what the cell's records show by themselves, where the
/// reference's show that it must hold. Reduction (`of_local`: of the recorded local gradients), gradient norm, clipping, update.
/// `reduced_by_sum`: see JudgedStep.
std::optional<CauseInputs> judge_own_step(const EqualStep& step, const StepRules& rules, bool reduced_by_sum, bool of_local);

/// Did rank 0 keep reduced gradients, and every one whole?
bool keeps_gradients(const StepOfRun& step);

/// The next step that has gradients, which initial parameters and evaluations are not; `before` becomes the last of those passed.
std::optional<StepOfRun> next_with_gradients(RunReader& run, std::optional<StepOfRun>& before);

}  // namespace lockstep
