#pragma once
// Causes at length.

#include <string>

#include "harness/causes/cause.h"

namespace lockstep {

/// One page: what it is, how it is recognised, a minimal example, what mends it, public reports.
std::string explain_text(const CausePage& page);

/// All codes with their first sentence, family by family.
std::string explain_list();

}  // namespace lockstep
