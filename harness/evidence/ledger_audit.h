#pragma once
// What the ledger of collectives must satisfy by itself, without a reference: all ranks call the same,
// results are alike everywhere, a broadcast gives what its root sent.

#include <optional>
#include <string>

#include "harness/evidence/align.h"
#include "harness/evidence/difference.h"

namespace lockstep {

/// A collective that breaks a rule of the ledger.
struct LedgerFinding {
  std::string code;  ///< the cause that the ledger itself gives: wrong-op, stale-buffer, ...
  int rank = -1;     ///< -1: all ranks
  std::string name;  ///< of the record: "all_gather loss.candidates"
  std::string expected, actual, evidence;
  int place = 0;  ///< in the step, see Difference::place
};

/// The first broken rule of a step, or nothing. `before` (the same run one step earlier) and `reference`
/// (another run at the same step, of any layout) may be null; of a reference only collectives of equal tag
/// are compared.
std::optional<LedgerFinding> audit_ledger(const StepOfRun& step, const StepOfRun* before,
                                          const StepOfRun* reference);

/// The same as a difference, with the sentence that people read.
Difference ledger_difference(const LedgerFinding& finding, int64_t step, int world_size);

}  // namespace lockstep
