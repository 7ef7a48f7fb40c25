#pragma once
// Conditions of claims that look into runs: certificates, ledgers of samples and draws, first divergences,
// timings.

#include <stdexcept>

#include "harness/verdict/questions/claims/claim.h"
#include "harness/verdict/questions/claims/claim_evidence.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// Why a condition cannot be decided.
class Undecided : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Each fills text, figures, value and state of `result`. Throws Undecided, TraceError.
void judge_certified(const Condition& condition, const ArmEvidence& arm, ConditionResult& result);
/// `reference` is the arm that `as_reference` compares with.
void judge_samples(const Condition& condition, const ArmEvidence& arm, const ArmEvidence& reference,
                   ConditionResult& result);
void judge_draws(const Condition& condition, const ArmEvidence& arm, ConditionResult& result);
/// Also of a cell that failed.
void judge_first(const Condition& condition, const ArmEvidence& arm, ConditionResult& result);
/// From the results.json at `path`. Undecided where no such suite has run.
void judge_suite(const Condition& condition, const std::string& path, ConditionResult& result);
/// Of every run that finished beside the results.json at `path`: what its ranks wrote down. Undecided where none has.
void judge_written(const Condition& condition, const std::string& path, ConditionResult& result);
/// Not testable where ranks share cores.
void judge_timing(const Condition& condition, const Timing* timing, ConditionResult& result);

}  // namespace lockstep
