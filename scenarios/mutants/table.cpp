#include <array>
#include <stdexcept>
#include <string>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

constexpr std::array kMutants{
    MutantMaker{"flip_bit", &make_flip_bit}, MutantMaker{"grad_scale", &make_grad_scale},
    MutantMaker{"stall", &make_stall},       MutantMaker{"throw", &make_throw},
    MutantMaker{"die", &make_die},
};

}  // namespace

std::span<const MutantMaker> mutants() { return kMutants; }

std::unique_ptr<Mutant> make_mutant(const RunConfig& run, int rank) {
  const MutantConfig& config = run.mutant;
  if (config.name == "none" || (config.rank >= 0 && config.rank != rank)) {
    return nullptr;
  }
  for (const MutantMaker& entry : kMutants) {
    if (entry.name == config.name) {
      return entry.make(config);
    }
  }
  throw std::invalid_argument("no mutant is called " + config.name);
}

}  // namespace lockstep
