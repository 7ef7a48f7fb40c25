#pragma once
// Cases on real ranks: processes that meet over Gloo once and then play one case after the other.

#include <string>
#include <utility>
#include <vector>

#include "harness/jobs/orders/rewards/order.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::rewards {

/// What the ranks of a run left.
struct RealAnswers {
  std::vector<std::vector<Answer>> by_rank;  ///< as many as the rank gave
  std::string problem;  ///< ranks that hung or failed without being told to
  double seconds = 0;
};

/// Starts runs of real ranks, one after the other, from the thread that made it.
class RealRanks {
 public:
  /// `work`: a folder of its own, which is emptied.
  RealRanks(std::string rank_program, std::string work, const volatile int* stop_requested)
      : runs_(std::move(rank_program), std::move(work), stop_requested) {}

  /// `stays`: a rank that is to hang: it is ended when all others have. Throws MachineError where nothing can be started.
  RealAnswers play(const CaseRules& rules, const std::vector<Order>& orders, double deadline_s, int stays = -1);

 private:
  RankRuns runs_;
};

}  // namespace lockstep::rewards
