#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "harness/answer/results/results.h"

namespace lockstep {

struct ReportFormat {
  std::string_view name;
  std::string_view file_name;  ///< where `lockstep run` leaves it; empty: nowhere
  std::string_view help;
};

/// html, md, json, junit, text.
std::span<const ReportFormat> report_formats();

/// The results in one format. Throws std::invalid_argument that lists the formats if `format` is none of
/// them.
std::string render(const Results& results, const std::string& format);

/// One offline page: no request, drawings as static SVG, light and dark, printable. Equal results give equal bytes. Every text of the results is escaped; the page is well-formed XML too.
std::string html_report(const Results& results);

/// JUnit XML: the matrix is a test suite, each cell a test case. A verdict that is not expected is a
/// <failure> whose type is the verdict, a run that did not finish an <error>; what was expected passes, an
/// expected failure too. Figures stand in properties. Valid XML 1.0 whatever the results hold.
std::string junit_report(const Results& results);

/// What a step summary on GitHub takes at most.
inline constexpr std::size_t kLargestMarkdownBytes = 1 << 20;

/// GitHub-flavoured Markdown, at most kLargestMarkdownBytes; it says what was left out to stay below.
std::string markdown_summary(const Results& results);

/// The results as lines of at most `width` columns, each ended by a line feed. Names are kept whole as long as a third of the
/// width allows; the last column is cut with an ellipsis. Where the width is unknown (0), tables take 80 columns and sentences
/// what they need. ANSI colours only if `colour`.
std::string terminal_table(const Results& results, bool colour, int width);

}  // namespace lockstep
