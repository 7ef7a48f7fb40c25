#pragma once
// Verdicts on cases from what their ranks answer.

#include <string>
#include <vector>

#include "harness/jobs/orders/rewards/order.h"
#include "harness/jobs/orders/rewards/reference.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::rewards {

/// A good case on emulated ranks: every rank has the same bits, no audit says anything, one process has the same advantages
/// bit for bit, and 34 digits lie within `ulp`. Widens `far`.
CaseResult judge_case(const Case& one, const std::vector<Played>& by_rank, double ulp, Distances& far);

/// The same case on real ranks: the bits of the emulated ones on each.
CaseResult judge_real(const Case& one, const std::vector<Answer>& by_rank, const Answer& emulated);

/// A planted mistake: named on every rank in the same words, in the first step in which it changed anything.
CaseResult judge_mutant(const Case& one, const Plant& plant, const std::vector<Answer>& by_rank);

/// A fault: every rank that is left has the same failure, and holds what it held before the step. `before`: what ranks hold
/// that stop there without a fault.
CaseResult judge_fault(const Case& one, const std::vector<Answer>& by_rank, const std::string& before);

/// The code that all ranks must fail with.
std::string expected_code(FaultKind fault);

}  // namespace lockstep::rewards
