#pragma once

#include <string>
#include <vector>

#include "harness/cli/doctor/node_facts.h"

// What `doctor` finds, and how it says so.

namespace lockstep {

std::string checks_text(const std::vector<Check>& checks, bool colour);
std::string checks_json(const std::vector<Check>& checks);
bool fit_to_run(const std::vector<Check>& checks);

/// Cores, memory, threads, descriptors, programs, data, disk of `out`: what can be seen without starting anything.
std::vector<Check> machine_checks(const std::string& out);

}  // namespace lockstep
