// Four numbers more than the step needs are drawn, and everything behind them moves.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ExtraDraws : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  uint64_t row_key(int64_t step, Purpose /*purpose*/, uint64_t key) override {
    return acts(step) ? key + kDraws : key;
  }
  uint64_t extra_draws(int64_t step, Purpose /*purpose*/) override { return acts(step) ? kDraws : 0; }

 private:
  static constexpr uint64_t kDraws = 4;
};

}  // namespace

std::unique_ptr<Mutant> make_extra_draws(const Planting& planting) {
  return std::make_unique<ExtraDraws>(planting);
}

}  // namespace lockstep
