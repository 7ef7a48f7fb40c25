#include "harness/verdict/plan/matrix_source.h"

namespace lockstep {

Place MatrixSource::place_of(std::string_view key) const {
  const auto at = places.find(key);
  return at != places.end() ? at->second : Place{0, 1, 1};
}

}  // namespace lockstep
