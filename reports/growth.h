#pragma once

#include <string>
#include <vector>

#include "harness/answer/results/results.h"

// Rules of the learning rate where the batch grows, and gradient noise scales, as text.

namespace lockstep {

/// "95 % interval": of the rules' differences; "interval" where looks left rules at levels of their own.
std::string rule_interval_name(const Growth& growth);
/// The rule's interval, with its level where rules differ in it; "—" without one.
std::string rule_interval_words(const Growth& growth, const Growth::Rule& rule, int decimals);

/// The rules as rows for the terminal, at most `width` columns wide; what they come to is growth.sentence.
std::string growth_text(const Growth& growth, int decimals, int width);

/// The noise scales as rows for the terminal; empty if none was taken.
std::string noise_scale_text(const Results& results, int width);

/// Both as Markdown, with the sentence.
std::string growth_markdown(const Results& results);

// The table detector x mutant, the same in every report.

/// One line of it: "5/5" for shares, a count for detectors, "·" for none.
std::vector<std::string> detection_cells(const Detection& detection, const DetectionRow& row);

/// How the table is read, and the rule of its last column.
std::string detection_caption(const Detection& detection);

/// For a terminal of `width` columns; trials that went wrong are named one by one up to a limit.
std::string detection_text(const Detection& detection, int width);

/// The same as GitHub-flavoured Markdown.
std::string detection_markdown(const Detection& detection);

}  // namespace lockstep
