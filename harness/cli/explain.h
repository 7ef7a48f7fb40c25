#pragma once
// Causes at length.

#include <string>

#include "harness/lib/rewards/failure.h"
#include "harness/verdict/causes/cause.h"

namespace lockstep {

/// One page: what it is, how it is recognised, a minimal example, how to fix it, public reports.
std::string explain_text(const CausePage& page);

/// Of a cause that the audits of rewards name: what was done wrong, and where it can be seen.
std::string reward_cause_text(const rewards::Cause& cause);

/// All codes with their first sentence, family by family.
std::string explain_list();

}  // namespace lockstep
