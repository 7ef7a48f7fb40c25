#pragma once
// The table of timed layouts as text.

#include <string>
#include <vector>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// The groups that layouts were timed in, in the order of their rows.
std::vector<std::string> timing_groups(const Timing& timing);

/// One block a group, one line a layout, for a terminal of `width` columns; a star where ranks share cores.
std::string timing_table(const Timing& timing, int width);

/// The same as Markdown, with the sentence on this machine above it.
std::string timing_markdown(const Timing& timing);

}  // namespace lockstep
