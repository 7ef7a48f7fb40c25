// A rank's process killed as the system kills it when memory runs out: no handler, no last word.

#include <csignal>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class Die : public Mutant {
 public:
  explicit Die(const MutantConfig& config) : config_(config) {}

  void before_step(int64_t step) override {
    if (step == config_.step) {
      raise(SIGKILL);
    }
  }

 private:
  MutantConfig config_;
};

}  // namespace

std::unique_ptr<Mutant> make_die(const MutantConfig& config) { return std::make_unique<Die>(config); }

}  // namespace lockstep
