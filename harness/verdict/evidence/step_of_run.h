#pragma once
// One step of a run, as all its ranks recorded it.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "harness/verdict/trace/declared.h"
#include "harness/verdict/trace/record.h"

namespace lockstep {

/// What all ranks of a run saw at one step.
struct StepOfRun {
  int64_t step = 0;
  std::vector<StepRecords> ranks;
  std::shared_ptr<const Declared> declared = {};  ///< of the run; null: nothing
  /// By rank: records of tensors of which it holds a part. `ranks` has the whole ones in their place.
  std::vector<std::vector<Record>> parts = {};
  /// Where ranks hold parts of their local gradients: of those that together hold one, the first; it has the whole. Empty:
  /// none do.
  std::vector<int> bearers = {};
};

/// Null where there is none.
inline const StepOfRun* pointer_to(const std::optional<StepOfRun>& step) { return step ? &*step : nullptr; }

}  // namespace lockstep
