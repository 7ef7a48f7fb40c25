#pragma once
// The table detector x mutant, the same in every report.

#include <string>
#include <vector>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// Heads of the table; the mutant's name comes first.
std::vector<std::string> detection_heads(const Detection& detection);

/// One line of it: "5/5" for shares, a count for detectors, "·" for none.
std::vector<std::string> detection_cells(const Detection& detection, const DetectionRow& row);

/// How the table is read, and the rule of its last column.
std::string detection_caption(const Detection& detection);

/// "caught", "325 of 325", "100.0 %", "98.9 to 100.0 %", "at least 95 %".
std::vector<std::string> rate_cells(const DetectionRate& rate);

/// For a terminal of `width` columns; trials that went wrong are named one by one up to a limit.
std::string detection_text(const Detection& detection, int width);

/// The same as GitHub-flavoured Markdown.
std::string detection_markdown(const Detection& detection);

}  // namespace lockstep
