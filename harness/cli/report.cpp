#include <fmt/format.h>

#include <filesystem>
#include <ostream>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/words.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/results/results.h"
#include "harness/verdict/stats/mllog.h"
#include "reports/format.h"
#include "reports/terminal.h"

namespace lockstep {
namespace {

Results read_results(const std::string& dir) {
  const std::string path = dir + "/results.json";
  const FileText file = read_file(path);
  if (!file)
    throw ConfigError(
        fmt::format("{}: {}; `lockstep run` writes it when a matrix has finished", path, file.problem));
  try {
    return results_from_json(file.text, path);
  } catch (const std::runtime_error& error) {
    throw ConfigError(error.what());
  }
}

/// This one writes a file for each run from its metrics; the other formats render the results.
constexpr std::string_view kMllog = "mllog";

const ReportFormat& format_named(const std::string& name) {
  std::vector<std::string_view> known;
  for (const ReportFormat& format : report_formats()) {
    if (format.name == name) return format;
    known.push_back(format.name);
  }
  known.push_back(kMllog);
  require_known(name, known, "--format", "format");
  throw ConfigError("--format: '" + name + "' is known but cannot be rendered");
}

}  // namespace

int report_command(const ReportOptions& options, const Console& console) {
  std::vector<std::string> names = split_lists(options.formats);
  for (const std::string& name : names) {
    if (name != kMllog) format_named(name);
  }
  const Results results = read_results(options.dir);
  if (names.empty() || (names.size() == 1 && names.front() == "text")) {
    console.out << terminal_table(results, console.out_colour, console.out_width);
    return kExitAsExpected;
  }
  if (std::erase(names, kMllog) > 0) {
    Given given;
    given.target = options.target;
    for (const std::string& path : write_mllog(options.dir, given)) console.out << clean_line(path) << "\n";
    if (names.empty()) return kExitAsExpected;
  } else if (names.size() == 1) {
    const std::string text = render(results, names.front());
    console.out << (names.front() == "json" ? clean_json(text) : text);
    return kExitAsExpected;
  }
  std::vector<std::string> made;
  const std::vector<std::string> problems = write_formats(results, names, options.dir, &made);
  for (const std::string& path : made) console.out << clean_line(path) << "\n";
  for (const std::string& problem : problems) console.err << "lockstep: " << clean_text(problem) << "\n";
  return problems.empty() ? kExitAsExpected : kExitMachine;
}

}  // namespace lockstep
