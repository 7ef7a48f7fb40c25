#pragma once
// Cases on real ranks: processes that meet over Gloo once and then play one case after the other.

#include <memory>
#include <string>
#include <vector>

#include "harness/launch/local/launcher.h"
#include "harness/reward_cases/order.h"

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
  RealRanks(std::string rank_program, std::string work, const volatile int* stop_requested);

  /// `stays`: a rank that is to hang: it is ended when all others have. Throws MachineError where nothing can be started.
  RealAnswers play(const CaseRules& rules, const std::vector<Order>& orders, double deadline_s, int stays = -1);

 private:
  std::string rank_program_, work_;
  const volatile int* stop_requested_;
  std::unique_ptr<LocalLauncher> launcher_;
  int64_t runs_ = 0;
};

}  // namespace lockstep::rewards
