#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/judge/evidence/parts.h"

// Where two runs differ at a step, and which of two differences comes first.

namespace lockstep {

/// A difference of two runs at one step, with what is needed to judge its size.
struct Difference {
  Divergence divergence;
  Phase phase = Phase::samples;
  /// |norm - norm'| (of scalars |value - value'|) over the size of the whole phase on that rank; infinite if
  /// something is missing or of another shape, NaN if the traces do not tell.
  double relative = 0;
  /// Where in the step it lies, if not where its phase stands: a collective of the loss comes before the
  /// energies that are made from it. -1: by phase.
  int place = -1;
};

/// Where in a step a record stands: at its phase, buffers behind the parameters. A mean of the parameters follows them; what an
/// update follows is its gradient.
int place_of(Phase phase, std::string_view name);

/// The record's place in a step, or the difference's own.
int place_of(const Difference& difference);

/// By step, then by place in the step.
bool earlier(const Difference& x, const Difference& y);

/// The phases whose values are compared exactly whatever the layouts: sample ids and what their rows hold, random streams,
/// control values.
inline bool is_exact(Phase phase) {
  return phase == Phase::samples || phase == Phase::inputs || phase == Phase::random || phase == Phase::control;
}

/// A difference of the run's step whose size is not a matter of rounding, with its sentence.
Difference difference_at(const StepOfRun& run, Phase phase, int rank, const std::string& where, DivergenceKind kind,
                         const std::string& expected, const std::string& actual);

// A broken rule of the ledger.

/// A collective that breaks a rule of the ledger.
struct LedgerFinding {
  std::string code;  ///< the cause that the ledger itself gives: wrong-op, stale-buffer, ...
  int rank = -1;     ///< -1: all ranks
  std::string name;  ///< of the record: "all_gather loss.candidates"
  std::string expected, actual, evidence;
  int place = 0;  ///< in the step, see Difference::place
};

// What messages must satisfy by themselves: what one rank sends the other receives, and what ranks exchange is neither more nor less
// than what they send.

/// Messages between two ranks: the one sends, the other receives, and neither call nor result is alike.
bool is_between_two(const CollectiveRecord& call);

/// The first message of the step that does not arrive as it was sent, or that no one sent or received; of an all_to_all, pieces
/// received that nobody sent. A rank that records no message of a kind is not asked for one.
std::optional<LedgerFinding> audit_messages(const StepOfRun& step);

// What the ledger of collectives must satisfy by itself, without a reference: all ranks call the same,
// results are alike everywhere, a broadcast gives what its root sent.

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
Difference ledger_difference(const LedgerFinding& finding, const StepOfRun& run);

}  // namespace lockstep
