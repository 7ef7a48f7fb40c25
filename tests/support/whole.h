#pragma once
// How much of a family of cases a test asks: ci/nightly sets LOCKSTEP_WHOLE and all are asked, ci/test asks a slice.

#include <cstdlib>

namespace lockstep::support {

inline bool whole() { return std::getenv("LOCKSTEP_WHOLE") != nullptr; }

/// `all` under ci/nightly, else `slice`: a number of steps, points, runs.
template <class T>
T whole_or(const T& slice, const T& all) {
  return whole() ? all : slice;
}

}  // namespace lockstep::support
