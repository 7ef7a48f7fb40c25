// A row stands twice in one step, and pushes another one out.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SampleDuplicated : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& /*rows_of*/) override {
    if (strikes(step) && rows.size() > 1) {
      rows.back() = rows.front();
    }
    return rows;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_sample_duplicated(const Planting& planting) {
  return std::make_unique<SampleDuplicated>(planting);
}

}  // namespace lockstep
