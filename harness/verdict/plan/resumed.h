#pragma once
// Cells whose runs go on from another cell's run, perhaps with another number of ranks.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/verdict/plan/matrix.h"

namespace lockstep {

/// The cell that `resume_from` names, by its name or its short one; null if there is none.
const Cell* source_of(const std::vector<Cell>& cells, const std::string& resume_from);

/// By cell: steps before which other cells go on from its run, which keeps its state there.
std::unordered_map<const Cell*, std::vector<int64_t>> steps_gone_on_from(const std::vector<Cell>& cells);

/// What is wrong with how a cell goes on, as key and message.
std::vector<std::pair<std::string, std::string>> resume_problems(const std::vector<Cell>& cells, const Cell& cell);

/// Writes that the run begins by itself.
void begin_by_itself(RunConfig& config);

}  // namespace lockstep
