#include "harness/verdict/compare/trainer_of.h"

namespace lockstep {

const TrainerSpec* trainer_of(const RunReader& reference, const RunReader& cell) {
  const std::string& name = reference.header().trainer;
  return name == cell.header().trainer ? find_trainer_spec(name) : nullptr;
}

const ScoreSpec& scores_of(const TrainerSpec* trainer) {
  static const ScoreSpec kOfAny;
  return trainer == nullptr ? kOfAny : trainer->scores;
}

}  // namespace lockstep
