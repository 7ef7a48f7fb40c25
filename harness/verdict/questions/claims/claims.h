#pragma once
// Claims against the results of a matrix's cells: each condition with its figures, and what follows for the
// claim.

#include <vector>

#include "harness/verdict/questions/claims/claim.h"
#include "harness/verdict/questions/claims/claim_evidence.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// Each claim holds if all its conditions are true, does not hold if one is false, and is undecided else; a
/// run that failed or a figure that was not measured leaves a condition undecided and says why.
///
/// Outcomes: `worse`, `better`, `lower` and `higher` are true if the (1 - alpha) interval of the paired
/// difference lies beyond the margin on that side, and false if it lies beyond 0 on the other or the matrix's
/// test says equivalent; `equivalent` and `different` are the matrix's test. The margin is the condition's,
/// or the primary one of the primary metric, or 0. Values and ratios are true if their interval lies within
/// the bounds and false if it lies outside.
std::vector<ClaimResult> judge_claims(const std::vector<Claim>& claims, const ClaimEvidence& evidence);

}  // namespace lockstep
