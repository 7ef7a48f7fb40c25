#pragma once
// Which candidates the loss takes where a config leaves the choice to a rule.

#include "scenarios/energy/config.h"

namespace lockstep {

/// The candidates that the config's ranks take: its own, or what its rule makes of the layout.
///
/// `adaptive_as_written`, as people were told it: with one process or a local batch of 8 or more the rows of
/// the batch, gathered from all ranks if there are several and the local batch is 6 or more; else explicit
/// negatives. The 6 never decides anything, because only local batches of 8 or more get there: 6 and 7 go to
/// explicit negatives, and the objective depends on the layout.
///
/// `adaptive`, repaired: rows of all ranks if the global batch has 8 or more, else explicit negatives; every
/// layout of one global batch has the same objective.
///
/// A run with oracle_world = V stands for V ranks, so the rule sees their layout.
Negatives resolved_negatives(const RunConfig& config);

/// Has a row any candidate but its own? Else the loss is 0 and nothing is learnt.
bool has_negatives(const RunConfig& config);

/// Are candidates made for each row, from predictions of an action head, which then exists?
bool makes_negatives(const RunConfig& config);

}  // namespace lockstep
