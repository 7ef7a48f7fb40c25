// A rank skips one update.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class RankBehind : public Planted {
 public:
  using Planted::Planted;

  bool updates(int64_t step) override { return !strikes(step); }
};

}  // namespace

std::unique_ptr<Mutant> make_rank_behind(const Planting& planting) {
  return std::make_unique<RankBehind>(planting);
}

}  // namespace lockstep
