#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/plan/matrix/matrix.h"

// What the free runs of a forced comparison say for sure: exact phases, ledgers, replicas; at one layout also
// bits.

namespace lockstep {

struct FreeFindings {
  std::optional<CauseInputs> found;    ///< the first step whose exact phases, ledger or replicas are wrong
  std::optional<CauseInputs> bits;     ///< at one layout: the first differing bit, signs of zeros left out
  std::optional<Difference> passed;    ///< at one layout: the first that does not count, see StepDifferences
  std::optional<Divergence> zeros;     ///< at one layout: the first step that differs in signs of zeros alone
  std::map<int64_t, KnownState> states;  ///< of the reference, at its snapshot steps
  int64_t compared = 0;
  bool compared_bits = false;
  int64_t reordered = -1;    ///< at one layout: the first step whose rows stand in another order or in other micro-steps; -1: none
  Compared looked_at;        ///< before the finding
  Evaluations evaluations;
  std::string ends, missing_end, gaps;  ///< see StepPairs
};

/// `most_steps`: see StepPairs. `epsilon`: of the precision in which the runs compute.
FreeFindings read_free_runs(const std::string& reference, const std::string& cell, int64_t most_steps, double epsilon);

/// Exact phases (if asked), ledger and replicas of one step: the first that is wrong, with the ledger's
/// finding if that is the first. `before` is the cell's step before and may be null; `compared` takes what was looked at, or
/// is null. At one layout rows may stand in another order, as between two.
struct OwnFindings {
  std::optional<Difference> difference;
  std::optional<LedgerFinding> ledger;

  /// Is replaced by `other`, which `of_ledger` tells more of, if that lies earlier in the step.
  void keep_earlier(const std::optional<Difference>& other, const std::optional<LedgerFinding>& of_ledger = std::nullopt) {
    if (other && (!difference || earlier(*other, *difference))) *this = {other, of_ledger};
  }
};
/// Do ranks hold other gradients than each other, and yet end the step with the same parameters, which are the reference's but for
/// rounding? Then the program joins its ranks later: in the optimizer's step, or by averaging parameters.
bool joins_updates(const StepOfRun& a, const StepOfRun* before_a, const StepOfRun& b, const StepOfRun* before_b);
/// `one_program`, `reference_before`: see AuditedBeside.
OwnFindings own_findings(const StepOfRun& reference, const StepOfRun& cell, const StepOfRun* before, bool exact_phases, bool one_program,
                         Compared* compared = nullptr, const StepOfRun* reference_before = nullptr);

/// NaN and infinity in one run alone are no rounding, whatever the parameters are: the first such place of the step. The
/// rank is told where one rank alone holds them.
std::optional<Difference> number_of_one_run(const StepOfRun& a, const StepOfRun& b);

/// Replaces `first` by `other` if that lies earlier in the step.
void keep_earlier(std::optional<Difference>& first, const std::optional<Difference>& other);

/// The verdict of two runs that part there, with all that the end of the comparison knows.
Comparison parted_at(CauseInputs around, StepPairs& pairs, const StepRules& rules, Mechanism result = {});

/// Everything that free runs tell of the step at which they are.
CauseInputs inputs_at(const StepPairs& pairs, const Difference& difference);
/// What the step itself tells of a difference. `before`: the cell's step before.
CauseInputs inputs_of(const Difference& difference, const StepOfRun& reference, const StepOfRun& cell, const std::optional<StepOfRun>& before = {});

// One step that two runs began with the same parameters, judged phase by phase.

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

// Where a run that was resumed begins: with which of the reference's weights and moments.

/// Where a difference says that a resumed run's optimizer begins without its moments.
inline constexpr const char* kMoments = "moments";

/// A run whose trace begins with a later step than the first, and with another state than the reference begins that step with: its weights are much nearer
/// to those of another step; one tensor is far away and most are not; or its optimizer's moments are 0. What is known around that step. Nothing where
/// weights were not kept, or where they are as near as a resumption in another layout comes, or as training further apart leaves them. Throws TraceError.
std::optional<CauseInputs> begins_elsewhere(const std::string& reference_dir, const std::string& cell_dir);

}  // namespace lockstep
