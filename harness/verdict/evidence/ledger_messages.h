#pragma once
// What messages must satisfy by themselves: what one rank sends the other receives, and what ranks exchange is neither more nor less
// than what they send.

#include <optional>

#include "harness/verdict/evidence/ledger_finding.h"
#include "harness/verdict/evidence/step_of_run.h"

namespace lockstep {

/// Messages between two ranks: the one sends, the other receives, and neither call nor result is alike.
bool is_between_two(const CollectiveRecord& call);

/// The first message of the step that does not arrive as it was sent, or that no one sent or received; of an all_to_all, pieces
/// received that nobody sent. A rank that records no message of a kind is not asked for one.
std::optional<LedgerFinding> audit_messages(const StepOfRun& step);

}  // namespace lockstep
