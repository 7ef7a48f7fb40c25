#pragma once
// The section `rewards` of a config.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "harness/jobs/orders/rewards/order.h"
#include "harness/suites/engine/kinds.h"

namespace lockstep::rewards {

struct RewardsConfig {
  int64_t seed = 1;
  std::vector<int64_t> ranks{1, 2, 3, 4, 8};
  int64_t cases = 10000;      ///< on emulated ranks
  int64_t real_cases = 2000;  ///< on real Gloo ranks; each is played on emulated ones as well
  int64_t mutant_cases = 5;   ///< of each mutant on each number of emulated ranks
  bool mutants = true, faults = true;
  int64_t rows = 0, group_size = 0;
  bool given = false;  ///< a key of the convention is given
  Convention convention = {};
  double ulp = 4;
  double deadline_s = 2, score_deadline_s = 0.3;

  CaseRules rules(int world) const;
};

/// Reports every problem with its place.
RewardsConfig read_rewards_config(const SuiteSource& source, Problems& problems);
nlohmann::ordered_json rewards_schema();

}  // namespace lockstep::rewards
