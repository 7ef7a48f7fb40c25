// One row of one step is another sample than the sampler gave.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SampleReplaced : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    if (strikes(step) && !rows.empty()) {
      // A sample of a later step, which no rank has now.
      const std::vector<int64_t> later = rows_of(step + 1, rank());
      rows.front() = later.empty() ? rows.front() + 1 : later.back();
    }
    return rows;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_sample_replaced(const Planting& planting) {
  return std::make_unique<SampleReplaced>(planting);
}

}  // namespace lockstep
