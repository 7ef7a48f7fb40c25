#include "harness/verdict/evidence/difference.h"

namespace lockstep {

int place_of(Phase phase, std::string_view name) {
  return place_of(phase) + (phase == Phase::parameters && name.starts_with("buffer/") ? 1 : 0);
}

int place_of(const Difference& difference) {
  return difference.place >= 0 ? difference.place : place_of(difference.phase, difference.divergence.where);
}

bool earlier(const Difference& x, const Difference& y) {
  if (x.divergence.step != y.divergence.step) return x.divergence.step < y.divergence.step;
  return place_of(x) < place_of(y);
}

}  // namespace lockstep
