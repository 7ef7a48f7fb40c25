#pragma once
// A broken rule of the ledger.

#include <string>

namespace lockstep {

/// A collective that breaks a rule of the ledger.
struct LedgerFinding {
  std::string code;  ///< the cause that the ledger itself gives: wrong-op, stale-buffer, ...
  int rank = -1;     ///< -1: all ranks
  std::string name;  ///< of the record: "all_gather loss.candidates"
  std::string expected, actual, evidence;
  int place = 0;  ///< in the step, see Difference::place
};

}  // namespace lockstep
