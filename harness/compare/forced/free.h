#pragma once
// What the free runs of a forced comparison say for sure: exact phases, ledgers, replicas; at one layout also
// bits.

#include <optional>
#include <string>
#include <vector>

#include "harness/compare/bits.h"
#include "harness/compare/cause_inputs.h"
#include "harness/compare/step_pairs.h"

namespace lockstep {

struct FreeFindings {
  std::optional<CauseInputs> found;    ///< the first step whose exact phases, ledger or replicas are wrong
  std::optional<CauseInputs> bits;     ///< at one layout: the first differing bit
  std::map<int64_t, Snapshot> states;  ///< of the reference, at its snapshot steps
  int64_t compared = 0;
  bool compared_bits = false;
  std::string ends;
};

FreeFindings read_free_runs(const std::string& reference, const std::string& cell);

/// Exact phases (if asked), ledger and replicas of one step: the first that is wrong, with the ledger's
/// finding if that is the first. `before` is the cell's step before and may be null.
struct OwnFindings {
  std::optional<Difference> difference;
  std::optional<LedgerFinding> ledger;
};
OwnFindings own_findings(const StepOfRun& reference, const StepOfRun& cell, const StepOfRun* before,
                         bool exact_phases);

/// The mean of the ranks' losses; nothing where a rank recorded none.
std::optional<double> mean_loss(const StepOfRun& step);

/// NaN and infinity in one run alone are no rounding, whatever the parameters are: the first such place of the step. The
/// rank is told where one rank alone holds them.
std::optional<Difference> number_of_one_run(const StepOfRun& a, const StepOfRun& b);

/// Weights before the first step are drawn or loaded: no layout changes them.
std::optional<Difference> initial_difference(const StepOfRun& a, const StepOfRun& b);

/// Replica drift as a difference.
Difference drift_difference(const ReplicaDrift& drift, int64_t step, int world_size);

/// Replaces `first` by `other` if that lies earlier in the step.
void keep_earlier(std::optional<Difference>& first, const std::optional<Difference>& other);

/// Goes on with the runs that part at the step before: its samples, and where rates are what differs these to the end.
void read_on(CauseInputs& inputs, StepPairs& pairs);

/// Writes the sample ids of a step into the history.
void remember_samples(SampleHistory& history, const StepOfRun& step);

/// Everything that free runs tell of the step at which they are.
CauseInputs inputs_at(const StepPairs& pairs, const Difference& difference);

}  // namespace lockstep
