#pragma once
// Which keys of two configs fit the place at which their runs part.

#include <optional>

#include "harness/verdict/causes/cause.h"

namespace lockstep::causes {

/// The cause `config-differs` where keys differ that first act in the divergence's phase; nothing where none does. `named`:
/// what the rules of the phase answer. Where that is just what one of these keys is for (a scaled rate of `lr_rule`,
/// missing negatives of `negatives`), it stays, and its evidence tells the key.
std::optional<Cause> by_config(const CauseInputs& inputs, const Cause& named);

}  // namespace lockstep::causes
