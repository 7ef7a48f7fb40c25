#pragma once

#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// The results as lines of at most `width` columns, each ended by a line feed. Names are kept whole as long as a third of the
/// width allows; the last column is cut with an ellipsis. Where the width is unknown (0), tables take 80 columns and sentences
/// what they need. ANSI colours only if `colour`.
std::string terminal_table(const Results& results, bool colour, int width);

}  // namespace lockstep
