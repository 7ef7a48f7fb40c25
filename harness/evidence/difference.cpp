#include "harness/evidence/difference.h"

namespace lockstep {

int place_of(const Difference& difference) {
  return difference.place >= 0 ? difference.place : place_of(difference.phase);
}

bool earlier(const Difference& x, const Difference& y) {
  if (x.divergence.step != y.divergence.step) return x.divergence.step < y.divergence.step;
  return place_of(x) < place_of(y);
}

}  // namespace lockstep
