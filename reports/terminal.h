#pragma once

#include <string>

#include "harness/results/results.h"

namespace lockstep {

/// The results as lines of at most `width` columns (0: as long as they are), each ended by a line feed. Names
/// are kept whole as long as a third of the width allows; the last column is cut with an ellipsis. ANSI
/// colours only if `colour`.
std::string terminal_table(const Results& results, bool colour, int width);

}  // namespace lockstep
