#pragma once
// Starts real ranks that call what an order asks for.

#include <string>
#include <utility>
#include <vector>

#include "harness/jobs/orders/collectives.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::collectives {

struct Answers {
  std::vector<std::vector<Answer>> by_rank;  ///< as many as the order asks; empty: the rank gave none
  std::string problem;                       ///< ranks that hung or failed; empty: none
};

/// Runs one order after the other, from the thread that made it.
class Ranks {
 public:
  /// `work`: a folder of its own, which is emptied.
  Ranks(std::string rank_program, std::string work, const volatile int* stop_requested)
      : runs_(std::move(rank_program), std::move(work), stop_requested) {}
  /// Throws MachineError where nothing can be started.
  Answers play(const Order& order, double deadline_s);

 private:
  RankRuns runs_;
};

}  // namespace lockstep::collectives
