#pragma once
// Writes HTML, SVG and XML so that what comes from outside cannot become markup: every text and attribute is
// escaped, every element that was opened is closed, and the whole is well-formed XML.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Attribute {
  std::string_view name;  ///< ours, never foreign
  std::string value;      ///< escaped when written
};
using Attributes = std::vector<Attribute>;

class Markup {
 public:
  /// <tag ...>; `tag` is ours, never foreign.
  Markup& open(std::string_view tag, const Attributes& attributes = {});
  /// Closes the innermost open element.
  Markup& close();
  /// <tag ... />: void elements of HTML, any of SVG and XML.
  Markup& empty(std::string_view tag, const Attributes& attributes = {});
  /// <tag ...>text</tag>
  Markup& element(std::string_view tag, const Attributes& attributes, std::string_view text);
  /// Text, escaped.
  Markup& text(std::string_view text);
  /// Markup that another Markup built, or a literal of ours.
  Markup& raw(std::string_view markup);
  /// What was written, every open element closed.
  std::string take();

 private:
  void begin(std::string_view tag, const Attributes& attributes);
  std::string out_;
  std::vector<std::string> open_;
};

/// <div> around what may be wider than the page: it scrolls by itself, by keyboard too. `label` names it to who cannot see it.
void open_scroll(Markup& out, std::string_view label);

/// A coordinate with at most two decimals, without trailing zeros.
std::string coordinate(double value);

/// coordinate() followed by a percent sign.
std::string percent(double value);

}  // namespace lockstep
