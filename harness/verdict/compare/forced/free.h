#pragma once
// What the free runs of a forced comparison say for sure: exact phases, ledgers, replicas; at one layout also
// bits.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/compare/bits.h"
#include "harness/verdict/compare/cause_inputs.h"
#include "harness/verdict/compare/compared.h"
#include "harness/verdict/compare/step_pairs.h"

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

/// Goes on with the runs that part at the step before: its samples, and where rates are what differs these to the end.
void read_on(CauseInputs& inputs, StepPairs& pairs);

/// Everything that free runs tell of the step at which they are.
CauseInputs inputs_at(const StepPairs& pairs, const Difference& difference);

}  // namespace lockstep
