#include "reports/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/base/text.h"
#include "reports/text.h"

namespace lockstep {
namespace {

// Elements that begin a line, so that golden files can be read and compared line by line.
constexpr std::string_view kOwnLine[] = {
    "body",       "details", "div",   "error",      "failure",   "figure",     "footer",
    "g",       "h1",         "h2",      "h3",    "head",       "header",    "main",       "meta",
    "p",          "path",    "pre",   "properties", "property",  "section",    "style",
    "svg",     "system-out", "table",   "tbody", "testcase",   "testsuite", "testsuites", "tfoot",
    "thead",   "title",      "tr",      "ul",    "li"};

bool own_line(std::string_view tag) {
  return std::ranges::find(kOwnLine, tag) != std::end(kOwnLine);
}

}  // namespace

void Markup::begin(std::string_view tag, const Attributes& attributes) {
  if (own_line(tag) && !out_.empty() && out_.back() != '\n') out_ += '\n';
  out_ += '<';
  out_ += tag;
  for (const Attribute& attribute : attributes) {
    out_ += ' ';
    out_ += attribute.name;
    // A line feed in an attribute would be read back as a space.
    out_ += "=\"" + replaced(escape_markup(attribute.value), "\n", "&#10;") + '"';
  }
}

Markup& Markup::open(std::string_view tag, const Attributes& attributes) {
  begin(tag, attributes);
  out_ += '>';
  open_.emplace_back(tag);
  return *this;
}

Markup& Markup::close() {
  if (open_.empty()) return *this;
  out_ += "</" + open_.back() + ">";
  open_.pop_back();
  return *this;
}

Markup& Markup::empty(std::string_view tag, const Attributes& attributes) {
  begin(tag, attributes);
  out_ += "/>";
  return *this;
}

Markup& Markup::element(std::string_view tag, const Attributes& attributes, std::string_view text) {
  return open(tag, attributes).text(text).close();
}

Markup& Markup::text(std::string_view text) {
  out_ += escape_markup(text);
  return *this;
}

Markup& Markup::raw(std::string_view markup) {
  out_ += markup;
  return *this;
}

std::string Markup::take() {
  while (!open_.empty()) close();
  return std::move(out_);
}

void open_scroll(Markup& out, std::string_view label) {
  out.open("div", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", std::string(label)}});
}

std::string coordinate(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string percent(double value) { return coordinate(value) + "%"; }

}  // namespace lockstep
