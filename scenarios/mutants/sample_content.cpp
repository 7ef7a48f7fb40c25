// The right id with another sample's content, in one row of one step.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SampleContent : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  std::vector<int64_t> content(int64_t step, std::vector<int64_t> ids) override {
    if (strikes(step) && !ids.empty()) {
      ids.front() = ids.front() > 0 ? ids.front() - 1 : 1;
    }
    return ids;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_sample_content(const Planting& planting) {
  return std::make_unique<SampleContent>(planting);
}

}  // namespace lockstep
