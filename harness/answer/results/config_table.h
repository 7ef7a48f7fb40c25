#pragma once
// Configs and provenance as rows for people, and the command that repeats a cell.

#include <string>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/plan/matrix/plan.h"

namespace lockstep {

using Rows = std::vector<std::pair<std::string, std::string>>;

/// Every field of a config: dotted key -> value.
Rows config_rows(const RunConfig& config);

/// Fills in what the cell's config says, as rows and as members of their own.
void say_config(const RunConfig& config, CellResult& result);

/// From run.json of every run under out_dir/runs (its `provenance`, an object of strings) and from the plan.
/// What differs between runs comes first, with each value and the number of runs that have it; then what is
/// equal, by key.
Rows gather_provenance(const Plan& plan, const std::string& out_dir);

/// `command` narrowed to one cell: its --only, if any, replaced by an expression over the cell's settings, or
/// over its name if the settings do not tell it from the others.
std::string rerun_line(const std::string& command, const Matrix& matrix, const Cell& cell);

}  // namespace lockstep
