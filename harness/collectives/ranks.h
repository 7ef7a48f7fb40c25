#pragma once
// Starts real ranks that call what an order asks for.

#include <memory>
#include <string>
#include <vector>

#include "harness/collectives/order.h"
#include "harness/launch/local/launcher.h"

namespace lockstep::collectives {

struct Answers {
  std::vector<std::vector<Answer>> by_rank;  ///< as many as the order asks; empty: the rank gave none
  std::string problem;                       ///< ranks that hung or failed; empty: none
};

/// Runs one order after the other, from the thread that made it.
class Ranks {
 public:
  /// `work`: a folder of its own, which is emptied.
  Ranks(std::string rank_program, std::string work, const volatile int* stop_requested);
  /// Throws MachineError where nothing can be started.
  Answers play(const Order& order, double deadline_s);

 private:
  std::string rank_program_, work_;
  const volatile int* stop_requested_;
  std::unique_ptr<LocalLauncher> launcher_;
  int64_t runs_ = 0;
};

}  // namespace lockstep::collectives
