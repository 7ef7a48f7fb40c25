#pragma once
// What `compare` prints and how it ends.

#include <string>
#include <vector>

#include "harness/judge/results.h"

namespace lockstep {

std::string comparison_text(const Mechanism& mechanism);
std::string comparison_json(const Mechanism& mechanism, const std::string& run_a, const std::string& run_b);

/// `expected`: names of verdicts that are fine; empty: identical, within_envelope and equivalent.
int comparison_exit_code(VerdictKind verdict, const std::vector<std::string>& expected);

}  // namespace lockstep
