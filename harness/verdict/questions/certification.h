#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "harness/verdict/evidence/arms.h"
#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/questions/evidence_sources.h"
#include "harness/verdict/questions/judge.h"

// What the runs of a matrix left, as its judge looks things up.

namespace lockstep {

/// A failure that the judge sees, not the launcher: see Failure::kind.
Failure judge_failure(FailureKind kind, const std::string& run, std::string message);

class MatrixEvidence {
 public:
  /// Gathers every run, `options.jobs` at a time.
  MatrixEvidence(const Plan& plan, const JudgeOptions& options, const RankResultReader& read);

  const Plan& plan() const { return plan_; }
  const Matrix& matrix() const { return plan_.matrix; }
  const JudgeOptions& options() const { return options_; }
  const PlannedArms& arms() const { return arms_; }
  std::string dir_of(const PlannedRun& run) const { return options_.out_dir + "/runs/" + run.id; }
  const RunEvidence& of(const PlannedRun& run) const { return evidence_[index_.at(run.id)]; }

 private:
  const Plan& plan_;
  const JudgeOptions& options_;
  const PlannedArms arms_;
  std::vector<RunEvidence> evidence_;  ///< of plan_.runs
  std::unordered_map<std::string, std::size_t> index_;
};

// Do real ranks compute what the emulated run that was judged in their place has computed?

/// Writes the cell's certification, or why there is none, into the result. Bits are compared first, and certify whatever the
/// backend; where they part over one that publishes no order of adding, the prefix is held to a band.
void judge_certification(const MatrixEvidence& evidence, const EvidenceSources& sources, const Cell& cell,
                         const std::vector<SeedPair>& pairs, CellResult& result);

/// Real ranks part from the emulated run that was judged in their place: whatever that run shows does not hold for them. The result
/// must have a divergence in its certification.
void apply_certification_divergence(CellResult& result);

}  // namespace lockstep
