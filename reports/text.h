#pragma once
// Foreign text made safe and measurable: names, errors and log lines can hold anything.

#include <string>
#include <string_view>
#include <vector>

#include "harness/base/clean_text.h"

namespace lockstep {

/// clean_text, escaped for element content and for attributes in double quotes, in HTML and XML alike.
std::string escape_markup(std::string_view text);

/// clean_line, escaped for GitHub-flavoured Markdown, table cells included.
std::string escape_markdown(std::string_view text);

/// Columns that `text` takes on a terminal: 2 for wide characters, 0 for combining ones.
int display_width(std::string_view text);

/// `text` cut to at most `width` columns, the last of them an ellipsis if anything was cut.
std::string shorten(std::string_view text, int width);

/// clean_line cut to `width` columns; looks no further into a text of any length than that needs.
std::string short_line(std::string_view text, int width);

/// Words of a paragraph in lines of at most `width` columns, each with its line feed.
std::string wrapped(std::string_view text, int width);

/// Every U+2212 made a hyphen, as terminals want it.
std::string ascii_minus(std::string text);

/// `text` followed by spaces up to `width` columns.
std::string pad_right(std::string_view text, int width);

/// "time (us)", clean_line each; without a unit the name alone.
std::string name_with_unit(std::string_view name, std::string_view unit);

/// Lower-case letters, digits and single hyphens: a stable anchor for a name. "cell" if nothing is left.
std::string slug(std::string_view text);

/// Estimated width of `text` in pixels at `font_px`, on the wide side of common sans-serif fonts.
double text_width_px(std::string_view text, double font_px);

}  // namespace lockstep
