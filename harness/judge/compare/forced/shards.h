#pragma once
// Updates of tensors of which ranks hold parts, and updates that nobody can recompute.

#include <optional>
#include <string>
#include <vector>

#include "harness/judge/compare/compared.h"
#include "harness/judge/evidence/parts.h"

namespace lockstep {

/// What a whole tensor has at the place of a part of it; nothing where it is another tensor.
std::optional<std::vector<double>> values_at(const NamedTensor& whole, const Record& part);

/// What a step began with: the values that are known, or else the step before.
struct BeforeUpdate {
  const Snapshot* state = nullptr;     ///< or null
  const StepOfRun* step = nullptr;     ///< the run's step before, or null
  const std::vector<NamedTensor>* after = nullptr;  ///< the parameters after the update, where `state` is known
  const Snapshot* reference_state = nullptr;        ///< of the reference, or null
  const std::vector<NamedTensor>* reference_after = nullptr;
};

/// Did the part of that parameter that the rank holds keep every bit, although its reduced gradient is not 0 and other ranks'
/// parts of it moved? Where it is known how the reference moved there, it must have done so by more than rounding: a gradient that is nearly 0 may
/// move nothing.
bool shard_stood_still(const StepOfRun& step, const BeforeUpdate& before, std::size_t rank, const std::string& name);

/// A parameter that both runs moved from equal values by equal gradients, and not alike.
struct UnlikeUpdate {
  std::string name;
  double expected = 0, actual = 0, gap = 0;  ///< norms of both changes and of their difference, over elements whose gradient is not small
};

/// The one whose changes lie furthest apart, of an optimizer that cannot be recomputed. Elements count whose gradient is more than a
/// thousandth of the largest, and far beyond rounding: what an adaptive optimizer makes of a gradient of rounding alone means nothing. Nothing where changes lie no
/// further apart than a twentieth of the reference's.
std::optional<UnlikeUpdate> unlike_update(const ForcedEvidence& evidence);

/// Parameters that moved as if each rank's part were a matrix by itself.
struct ShardUpdates {
  std::vector<std::string> tensors;  ///< empty: none did
  std::string how;
  bool exact = false;  ///< by a factor for each part, or by the polar factor of each part's gradient
};
ShardUpdates updates_by_shard(const ForcedEvidence& evidence, const StepOfRun& cell);

}  // namespace lockstep
