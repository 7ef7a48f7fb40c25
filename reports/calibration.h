#pragma once
// What a calibration found, as tables of text.

#include <string>
#include <vector>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// Heads of the table of rates, and one line of it: what was tried, how often it came out so, the share, its
/// interval, what is allowed.
std::vector<std::string> promise_heads(const Calibration& calibration);
std::vector<std::string> promise_cells(const DetectionRate& rate);

/// Heads of the table of powers, and one line of it: pairs, sd and true difference in margins, measured, its
/// interval, by the formula.
std::vector<std::string> power_heads(const Calibration& calibration);
std::vector<std::string> power_cells(const PowerPoint& point);

/// Does the formula's value lie in the interval of what was measured?
bool is_as_theory(const PowerPoint& point);

/// How the tables are read: the pool, the level of the intervals.
std::string calibration_caption(const Calibration& calibration);

/// For the terminal, in columns.
std::string calibration_text(const Calibration& calibration, int width);

/// The same as GitHub-flavoured Markdown.
std::string calibration_markdown(const Calibration& calibration);

}  // namespace lockstep
