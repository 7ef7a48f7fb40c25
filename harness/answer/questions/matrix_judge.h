#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "harness/answer/questions/question_judge.h"
#include "harness/judge/evidence/arms.h"
#include "harness/judge/evidence/run_evidence.h"

// Judges a whole matrix. What reads and compares runs is handed in, so that the rules can be tried without
// traces.

namespace lockstep {

/// judge_matrix with these sources. The result does not depend on options.jobs.
///
/// A cell's verdict answers the matrix's question, and a power control's is its outcome whatever the
/// question. Two verdicts come before these: `failed` if a run that the answer needs did not finish or cannot
/// be read, and `divergent`, never as expected, if real ranks part from the emulated run that was judged in
/// their place.
Results judge_matrix_from(const Plan& plan, const JudgeOptions& options, const EvidenceSources& sources);

// What the runs of a matrix left, as its judge looks things up.

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

}  // namespace lockstep
