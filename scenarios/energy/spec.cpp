#include "scenarios/energy/spec.h"

#include "harness/plan/planted.h"

namespace lockstep {

const TrainerSpec& energy_spec() {
  static const TrainerSpec kSpec{
      .name = "energy",
      .help = "energy model of (context, action chunk) pairs, trained with in-batch swap InfoNCE",
      .parameters = &energy_parameters,
  };
  return kSpec;
}

}  // namespace lockstep
