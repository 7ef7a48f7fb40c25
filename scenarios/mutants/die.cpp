// A rank's process killed as the system kills it when memory runs out: no handler, no last word.

#include <csignal>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class Die : public Planted {
 public:
  using Planted::Planted;

  void before_step(int64_t step) override {
    if (step == config().step) {
      raise(SIGKILL);
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_die(const Planting& planting) { return std::make_unique<Die>(planting); }

}  // namespace lockstep
