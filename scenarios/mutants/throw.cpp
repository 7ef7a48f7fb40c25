// A rank that throws in the middle of training.

#include <stdexcept>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class Throw : public Mutant {
 public:
  explicit Throw(const MutantConfig& config) : config_(config) {}

  void before_step(int64_t step) override {
    if (step == config_.step) {
      throw std::runtime_error("planted: this rank throws at step " + std::to_string(step));
    }
  }

 private:
  MutantConfig config_;
};

}  // namespace

std::unique_ptr<Mutant> make_throw(const MutantConfig& config) { return std::make_unique<Throw>(config); }

}  // namespace lockstep
