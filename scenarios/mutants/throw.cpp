// A rank that throws in the middle of training.

#include <stdexcept>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class Throw : public Planted {
 public:
  using Planted::Planted;

  void before_step(int64_t step) override {
    if (step == config().step) {
      throw std::runtime_error("planted: this rank throws at step " + std::to_string(step));
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_throw(const Planting& planting) { return std::make_unique<Throw>(planting); }

}  // namespace lockstep
