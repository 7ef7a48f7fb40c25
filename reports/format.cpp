#include "reports/format.h"

#include <array>
#include <stdexcept>

#include "harness/verdict/results/document.h"
#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/terminal.h"
#include "reports/text.h"

namespace lockstep {
namespace {

struct Renderer {
  ReportFormat format;
  std::string (*render)(const Results&);
};

constexpr Renderer kRenderers[] = {
    {{"html", "report.html", "one offline page with drawings"}, html_report},
    {{"md", "summary.md", "GitHub-flavoured Markdown, at most 1 MiB"}, markdown_summary},
    {{"json", "results.json", "everything, schema-versioned"}, results_to_json},
    {{"junit", "junit.xml", "JUnit XML, a test case for each cell"}, junit_report},
    {{"text", "", "the table of the terminal, without colour"},
     [](const Results& r) { return terminal_table(r, false, 0); }},
};

}  // namespace

std::span<const ReportFormat> report_formats() {
  static const auto formats = [] {
    std::array<ReportFormat, std::size(kRenderers)> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = kRenderers[i].format;
    return all;
  }();
  return formats;
}

std::string render(const Results& results, const std::string& format) {
  std::string known;
  for (const Renderer& renderer : kRenderers) {
    if (renderer.format.name != format) {
      known += (known.empty() ? "" : ", ") + std::string(renderer.format.name);
      continue;
    }
    // Whatever text was shown without escaping, no control character and no mark that reorders text leaves here; JSON is data.
    const std::string text = renderer.render(results);
    return renderer.render == results_to_json ? text : clean_text(text);
  }
  throw std::invalid_argument("unknown report format '" + clean_line(format) + "'; known are " + known);
}

}  // namespace lockstep
