// Every report, byte for byte: summaries and one page as whole texts, each section of the other pages once, and all parts of all of
// them by their hashes. `ci/golden --update` rewrites the files; the diff is read.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "harness/base/hashing.h"
#include "harness/verdict/compare/bits.h"
#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/terminal.h"
#include "tests/support/convergence_fixture.h"
#include "tests/support/judged_fixture.h"
#include "tests/support/results_fixture.h"
#include "tests/support/suite_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/reports/golden";

/// Where what came out is written: beside the build, or where $LOCKSTEP_PAGES says.
fs::path seen(const std::string& name) {
  const char* const folder = std::getenv("LOCKSTEP_PAGES");
  return (folder != nullptr ? fs::path(folder) : fs::path(LOCKSTEP_BINARY_DIR) / "golden") / name;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// "line 12: expected ..., actual ..." of the first line that differs.
std::string first_difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  std::string line_a, line_b;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a)),
               more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "only the last line feed differs";
    if (more_a != more_b || line_a != line_b) {
      return "line " + std::to_string(line) + ":\n  expected: " + (more_a ? line_a : "(end)") +
             "\n  actual:   " + (more_b ? line_b : "(end)");
    }
  }
}

void check(const std::string& name, const std::string& actual) {
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN")) {
    write(kGolden / name, actual);
    return;
  }
  ASSERT_TRUE(fs::exists(kGolden / name))
      << "no golden file " << name << "; run ci/golden --update and read the diff";
  const std::string expected = read(kGolden / name);
  if (expected == actual) return;
  write(seen(name), actual);
  FAIL() << name << " differs at " << first_difference(expected, actual) << "\nwhat came out: " << seen(name)
         << "\nif it is meant: ci/golden --update, and read the diff";
}

struct Fixture {
  const char* name;
  Results (*make)();
};

/// The first one's page is kept whole, of the others what it has no section of: the first page that has it gives it.
constexpr Fixture kFixtures[] = {{"mechanism", mechanism_results},
                                 {"certificate", certificate_results},   {"detection", detection_results},
                                 {"sequential", sequential_results},
                                 {"laboratory", suite_results},     {"missed_control", missed_control_results},
                                 {"outcome", outcome_results},           {"judged", judged_results},
                                 {"convergence", convergence_results},   {"hostile", hostile_results},
                                 {"empty", empty_results},               {"wide_laboratory", wide_suite_results}};

struct Part {
  std::string name, text;
};

/// What stands before the sections ("begin") and behind them ("end"), and each section by its id.
std::vector<Part> parts_of(const std::string& page) {
  static const std::string kBegin = "<section id=\"", kEnd = "</section>";
  std::vector<Part> parts;
  std::size_t at = page.find(kBegin);
  parts.push_back({"begin", page.substr(0, at)});
  while (at != std::string::npos) {
    const std::size_t id = at + kBegin.size(), end = page.find(kEnd, at) + kEnd.size(), next = page.find(kBegin, end);
    parts.push_back({page.substr(id, page.find('"', id) - id), page.substr(at, end - at)});
    if (next == std::string::npos) parts.push_back({"end", page.substr(end)});
    at = next;
  }
  return parts;
}

/// Every part of every page by its hash, and what came out beside the build, to be compared with that of another commit.
TEST(Golden, Pages) {
  std::string hashes;
  std::set<std::string> shown;
  for (const Fixture& fixture : kFixtures) {
    const std::string page = html_report(fixture.make());
    const bool whole = &fixture == &kFixtures[0];
    write(seen(fixture.name + std::string(".html")), page);
    if (whole) check(fixture.name + std::string(".html"), page);
    for (const Part& part : parts_of(page)) {
      hashes += fmt::format("{}.html {} {}\n", fixture.name, part.name, hash_in_hex(part.text));
      const bool is_section = part.name != "begin" && part.name != "end";
      if (shown.insert(part.name).second && is_section && !whole) check("section-" + part.name + ".html", part.text + "\n");
    }
  }
  check("pages.txt", hashes);
}

TEST(Golden, Junit) {
  std::string hashes;
  for (const Fixture& fixture : kFixtures) {
    const std::string report = junit_report(fixture.make());
    write(seen(fixture.name + std::string(".xml")), report);
    hashes += fmt::format("{}.xml {}\n", fixture.name, hash_in_hex(report));
    const std::set<std::string> kept{"mechanism", "laboratory", "hostile"};
    if (kept.contains(fixture.name)) check(std::string(fixture.name) + ".xml", report);
  }
  check("junit.txt", hashes);
}

class GoldenText : public testing::TestWithParam<Fixture> {};

TEST_P(GoldenText, Markdown) { check(std::string(GetParam().name) + ".md", markdown_summary(GetParam().make())); }
TEST_P(GoldenText, Terminal) {
  check(std::string(GetParam().name) + ".txt", terminal_table(GetParam().make(), false, 118));
}

INSTANTIATE_TEST_SUITE_P(Reports, GoldenText, testing::ValuesIn(kFixtures),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep
