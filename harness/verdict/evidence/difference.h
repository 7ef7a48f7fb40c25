#pragma once
// Where two runs differ at a step, and which of two differences comes first.

#include <limits>
#include <string_view>

#include "harness/verdict/results/results.h"
#include "harness/verdict/trace/record.h"

namespace lockstep {

/// A difference of two runs at one step, with what is needed to judge its size.
struct Difference {
  Divergence divergence;
  Phase phase = Phase::samples;
  /// |norm - norm'| (of scalars |value - value'|) over the size of the whole phase on that rank; infinite if
  /// something is missing or of another shape, NaN if the traces do not tell.
  double relative = 0;
  /// Where in the step it lies, if not where its phase stands: a collective of the loss comes before the
  /// energies that are made from it. -1: by phase.
  int place = -1;
};

/// Where in a step a record stands: at its phase, buffers behind the parameters. A mean of the parameters follows them; what an
/// update follows is its gradient.
int place_of(Phase phase, std::string_view name);

/// The record's place in a step, or the difference's own.
int place_of(const Difference& difference);

/// By step, then by place in the step.
bool earlier(const Difference& x, const Difference& y);

/// The phases whose values are compared exactly whatever the layouts: sample ids and what their rows hold, random streams,
/// control values.
inline bool is_exact(Phase phase) {
  return phase == Phase::samples || phase == Phase::inputs || phase == Phase::random || phase == Phase::control;
}

}  // namespace lockstep
