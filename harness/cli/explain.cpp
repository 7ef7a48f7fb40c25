#include "harness/cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/base/nearest.h"
#include "harness/cli/commands.h"

namespace lockstep {
namespace {

std::string indented(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string out;
  for (std::string line; std::getline(lines, line);) out += "    " + line + "\n";
  return out;
}

}  // namespace

std::string explain_text(const CausePage& page) {
  std::string text = fmt::format("{} ({})\n\n{}\n\nrecognised by\n{}", page.code, page.family, page.what,
                                 indented(page.recognised));
  if (!page.wrong.empty()) text += "\nwrong\n" + indented(page.wrong);
  if (!page.right.empty()) text += "\nright\n" + indented(page.right);
  text += fmt::format("\nwhat mends it\n{}", indented(page.remedy));
  if (!page.reports.empty())
    text += fmt::format("\npublic reports of it or its like\n{}", indented(page.reports));
  return text;
}

std::string explain_list() {
  std::size_t width = 0;
  for (const CausePage& page : cause_pages()) width = std::max(width, page.code.size());
  std::string text;
  std::string_view family;
  for (const CausePage& page : cause_pages()) {
    if (page.family != family) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", page.family);
    family = page.family;
    text += fmt::format("  {:<{}}  {}\n", page.code, width, page.what);
  }
  return text;
}

int explain_command(const ExplainOptions& options, const Console& console) {
  if (options.code.empty()) {
    console.out << explain_list();
    return kExitAsExpected;
  }
  std::vector<std::string_view> known;
  for (const CausePage& page : cause_pages()) known.push_back(page.code);
  const CausePage* page = find_cause_page(options.code);
  // A hundred names in an error help nobody: only the nearest is said.
  if (!page) {
    const std::string_view near = nearest(options.code, known);
    ConfigProblem problem;
    problem.message = fmt::format("explain: unknown cause '{}'; lockstep explain lists all", options.code);
    problem.suggestion = std::string(near);
    throw ConfigError(std::vector{problem});
  }
  console.out << explain_text(*page);
  return kExitAsExpected;
}

}  // namespace lockstep
