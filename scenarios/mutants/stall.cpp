// A rank that stops making progress without dying: a deadlock, a frozen file system, a stopped process.

#include <unistd.h>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class Stall : public Mutant {
 public:
  explicit Stall(const MutantConfig& config) : config_(config) {}

  void before_step(int64_t step) override {
    while (step == config_.step) {
      pause();
    }
  }

 private:
  MutantConfig config_;
};

}  // namespace

std::unique_ptr<Mutant> make_stall(const MutantConfig& config) { return std::make_unique<Stall>(config); }

}  // namespace lockstep
