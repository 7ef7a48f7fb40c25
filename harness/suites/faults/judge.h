#pragma once
// Holds what was said of a program against what had to be said.

#include <string>
#include <vector>

#include "harness/suites/engine/suite.h"
#include "harness/suites/faults/bench.h"

namespace lockstep::faults {

/// What lockstep would say of it: who, how, in which words.
struct Said {
  Notice notice = Notice::died;
  bool anything = false;
  int rank = -1;         ///< whose process it names
  std::string words;
  double at = 0;         ///< on the monotonic clock; 0: not before the end
};
/// `expected`, `found`: records by rank of the control run and of the program; looked at if every rank finished.
Said said_of(const Played& played, const std::vector<std::vector<std::string>>& expected,
             const std::vector<std::vector<std::string>>& found);

/// Of the wrong program: was the fault noticed, as what it is, with rank, place and operation, and told to every rank that lived?
CaseResult judge_wrong(const FaultKind& kind, const Order& order, const Played& played, const Said& said);
/// Of the correct one: nothing may be said, and every rank must finish.
CaseResult judge_control(const FaultKind& kind, const Order& order, const Played& played, const Said& said);

/// The first line in which a rank's record parts from the control run's: "rank 1, step 2: gradients/w1 at element 6". Empty: none.
std::string first_difference(const std::vector<std::vector<std::string>>& expected,
                             const std::vector<std::vector<std::string>>& found);

}  // namespace lockstep::faults
