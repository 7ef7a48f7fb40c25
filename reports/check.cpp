#include "reports/check.h"

#include <algorithm>

#include <fmt/format.h>

#include "harness/base/text.h"
#include "reports/html/parts.h"
#include "reports/markup.h"
#include "reports/plots/chart.h"
#include "reports/text.h"

namespace lockstep {
namespace {

const char* symbol(CheckMark mark) {
  switch (mark) {
    case CheckMark::same:
      return "✓";
    case CheckMark::different:
      return "✗";
    case CheckMark::undecided:
      return "?";
    case CheckMark::none:
      break;
  }
  return "–";
}

std::string painted(const std::string& text, CheckMark mark, bool colour) {
  if (!colour || mark == CheckMark::none) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m",
                     mark == CheckMark::same        ? "32"
                     : mark == CheckMark::different ? "31"
                                                    : "33",
                     text);
}

std::string fact_text(const CheckFact& fact) {
  return fmt::format("{} {}{}{}", symbol(fact.mark), fact.name, fact.text.empty() ? "" : "  ", fact.text);
}

}  // namespace

std::string check_text(const CheckDocument& document, bool colour, int width) {
  std::string text =
      painted(fmt::format("{} {}", symbol(document.verdict), clean_line(document.headline)), document.verdict, colour) +
      "\n";
  for (const std::string& sentence : document.because) text += "  " + clean_line(sentence) + "\n";
  if (!document.fix.empty()) text += "  fix   " + clean_line(document.fix) + "\n";
  // What agrees takes as few lines as fit; what does not has a line of its own.
  const std::size_t room = static_cast<std::size_t>(std::max(width, 80)) - 2;
  std::string line;
  std::size_t used = 0;
  const auto flush = [&] {
    if (!line.empty()) text += "  " + line + "\n";
    line.clear();
    used = 0;
  };
  for (const CheckFact& fact : document.facts) {
    const std::string words = clean_line(fact_text(fact));
    const bool alone = fact.mark == CheckMark::different || fact.mark == CheckMark::undecided;
    const std::size_t columns = static_cast<std::size_t>(display_width(words));
    if (alone || used + columns + 3 > room) flush();
    line += (line.empty() ? "" : "   ") + painted(words, fact.mark, colour && alone);
    used += columns + 3;
    if (alone) flush();
  }
  flush();
  if (!document.decide.empty()) text += "  to decide: " + clean_line(document.decide) + "\n";
  if (!document.again.empty()) text += "  again: " + clean_line(document.again) + "\n";
  return text;
}

std::string check_markdown(const CheckDocument& document) {
  std::string text = fmt::format("### {} {}\n\n", symbol(document.verdict), escape_markdown(document.headline));
  for (const std::string& sentence : document.because) text += escape_markdown(sentence) + "  \n";
  if (!document.fix.empty()) text += "**fix** " + escape_markdown(document.fix) + "\n";
  text += "\n| | | |\n|---|---|---|\n";
  for (const CheckFact& fact : document.facts)
    text +=
        fmt::format("| {} | {} | {} |\n", symbol(fact.mark), escape_markdown(fact.name), escape_markdown(fact.text));
  if (!document.decide.empty()) text += "\nTo decide: `" + clean_line(document.decide) + "`\n";
  if (!document.again.empty()) text += "\nAgain: `" + clean_line(document.again) + "`\n";
  return text;
}

std::string check_page(const CheckDocument& document) {
  Markup out;
  open_page(out, "lockstep check: " + document.headline);
  out.open("body").open("main");
  out.element("h1", {}, fmt::format("{} {}", symbol(document.verdict), document.headline));
  out.element("p", {}, fmt::format("{} against {}", document.run, document.reference));
  for (const std::string& sentence : document.because) out.element("p", {}, sentence);
  if (!document.fix.empty()) out.open("p").element("strong", {}, "Fix: ").text(document.fix).close();
  for (const SuiteChart& chart : document.charts) {
    out.open("section").element("h2", {}, chart.title);
    if (!chart.why.empty()) out.element("p", {}, chart.why);
    out.raw(chart_drawing(chart)).close();
  }
  out.open("section").element("h2", {}, "What was compared").open("table").open("tbody");
  for (const CheckFact& fact : document.facts) {
    out.open("tr")
        .element("td", {}, symbol(fact.mark))
        .element("td", {}, fact.name)
        .element("td", {}, fact.text)
        .close();
  }
  out.close().close().close();
  out.open("section").element("h2", {}, "Commands").open("pre");
  for (const std::string& command : document.commands) out.text(command + "\n");
  out.text(document.again).close().close();
  return out.take();
}

}  // namespace lockstep
