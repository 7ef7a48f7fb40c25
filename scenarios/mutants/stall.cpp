// A rank that stops making progress without dying: a deadlock, a frozen file system, a stopped process.

#include <unistd.h>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class Stall : public Planted {
 public:
  using Planted::Planted;

  void before_step(int64_t step) override {
    while (step == config().step) {
      pause();
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_stall(const Planting& planting) { return std::make_unique<Stall>(planting); }

}  // namespace lockstep
