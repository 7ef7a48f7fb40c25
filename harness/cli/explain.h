#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/judge/causes/rules.h"

// Causes at length.

namespace lockstep {

// What the outcomes of suites mean: the columns of their tables of cases.

/// One page of outcomes that mean the same.
struct OutcomePage {
  std::string_view names;   ///< separated by "; "; one that ends with ": " stands for all that begin so
  std::string_view suites;  ///< that have it, separated by ", "
  std::string_view what;
  std::string_view next;  ///< what to do; empty: it is as it must be
};

/// Null: no suite has that outcome.
const OutcomePage* find_outcome_page(std::string_view outcome);

}  // namespace lockstep
