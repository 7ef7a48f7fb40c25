#include "scenarios/energy/spec.h"

#include "harness/plan/planted.h"
#include "scenarios/energy/causes/rules.h"
#include "scenarios/energy/judging.h"

namespace lockstep {

const TrainerSpec& energy_spec() {
  static const TrainerSpec kSpec{
      .name = "energy",
      .help = "energy model of (context, action chunk) pairs, trained with in-batch swap InfoNCE",
      .parameters = &energy_parameters,
      .other_objective = &energy_other_objective,
      .noise_scale_caveat = &energy_noise_scale_caveat,
      .rows_may_not_count = &energy_rows_may_not_count,
      .scores = energy_scores(),
      .cause_rules = &causes::energy_cause_rules(),
  };
  return kSpec;
}

}  // namespace lockstep
