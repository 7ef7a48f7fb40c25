// The rules of every trainer that has some. Apart from specs.cpp, so that the rank program does not change with them.

#include "scenarios/causes.h"

#include <array>

namespace lockstep::causes {

std::span<const RulesOfTrainer> all_trainer_rules() {
  static const std::array kRules{RulesOfTrainer{"energy", &energy_cause_rules()},
                                 RulesOfTrainer{"classify", &classify_cause_rules()},
                                 RulesOfTrainer{"flow_rl", &flow_rl_cause_rules()}};
  return kRules;
}

}  // namespace lockstep::causes
