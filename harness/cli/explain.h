#pragma once
// Causes at length.

#include <string>

#include "harness/verdict/causes/rules.h"

namespace lockstep {

/// One page: what it is, how it is recognised, a minimal example, how to fix it, public reports.
std::string explain_text(const CausePage& page);

}  // namespace lockstep
