// One row of one step is lost.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SampleDropped : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& /*rows_of*/) override {
    if (strikes(step) && !rows.empty()) {
      rows.pop_back();
    }
    return rows;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_sample_dropped(const Planting& planting) {
  return std::make_unique<SampleDropped>(planting);
}

}  // namespace lockstep
