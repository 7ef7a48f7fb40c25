#include "harness/causes/trainer_rules.h"

#include "harness/config/trainer_spec.h"

namespace lockstep::causes {

const TrainerRules& trainer_rules(const CauseInputs& inputs) {
  static const TrainerRules kNone;
  return inputs.trainer && inputs.trainer->cause_rules ? *inputs.trainer->cause_rules : kNone;
}

}  // namespace lockstep::causes
