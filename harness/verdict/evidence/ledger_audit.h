#pragma once
// What the ledger of collectives must satisfy by itself, without a reference: all ranks call the same,
// results are alike everywhere, a broadcast gives what its root sent.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/verdict/evidence/align.h"
#include "harness/verdict/evidence/difference.h"
#include "harness/verdict/evidence/ledger_finding.h"

namespace lockstep {

/// Tags whose k-th calls two runs make in ways of their own. A broadcast gives what a gather gives; in two programs a sum that is
/// divided afterwards what a mean gives, and a count is the same in every integer. What comes out is judged where it is used.
std::set<std::string> tags_of_other_exchanges(const std::vector<const Record*>& expected, const std::vector<const Record*>& actual,
                                              bool one_program);

/// What a step's ledger is compared with.
struct AuditedBeside {
  const StepOfRun* before = nullptr;     ///< the same run one step earlier, or null
  const StepOfRun* reference = nullptr;  ///< another run at the same step, of any layout, or null
  /// Do both runs make the same calls but for what the layout changes? So do those of one trainer of ours. Other programs
  /// exchange in ways of their own, and only what comes out is compared.
  bool one_program = false;
  const StepOfRun* reference_before = nullptr;  ///< the reference one step earlier, or null: a call that it makes now and then is none to miss
};

/// Do some ranks alone make the step's update? A tracer may end a step where its rank updates, and then the others' calls lie on other sides of it.
bool is_updated_by_some(const StepOfRun& step);

/// The first broken rule of a step, or nothing. Of a reference only collectives of equal tag are compared.
std::optional<LedgerFinding> audit_ledger(const StepOfRun& step, const AuditedBeside& beside);

/// The same as a difference, with the sentence that people read.
Difference ledger_difference(const LedgerFinding& finding, int64_t step, int world_size);

}  // namespace lockstep
