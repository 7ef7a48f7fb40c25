// A rank's loader lags one step behind.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class RankBehindData : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    return acts(step) && step > 0 ? rows_of(step - 1, rank()) : rows;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_rank_behind_data(const Planting& planting) {
  return std::make_unique<RankBehindData>(planting);
}

}  // namespace lockstep
