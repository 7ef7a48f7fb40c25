// The whole text of every report, byte for byte. `ci/golden --update` rewrites the files; the diff is read.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/compare/bits.h"
#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/terminal.h"
#include "tests/support/convergence_fixture.h"
#include "tests/support/judged_fixture.h"
#include "tests/support/laboratory_fixture.h"
#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/reports/golden";

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
  const fs::path seen = fs::path(LOCKSTEP_BINARY_DIR) / "golden" / name;
  write(seen, actual);
  FAIL() << name << " differs at " << first_difference(expected, actual) << "\nwhat came out: " << seen
         << "\nif it is meant: ci/golden --update, and read the diff";
}

struct Fixture {
  const char* name;
  Results (*make)();
};

class Golden : public testing::TestWithParam<Fixture> {};

TEST_P(Golden, Html) { check(std::string(GetParam().name) + ".html", html_report(GetParam().make())); }
TEST_P(Golden, Junit) { check(std::string(GetParam().name) + ".xml", junit_report(GetParam().make())); }
TEST_P(Golden, Markdown) { check(std::string(GetParam().name) + ".md", markdown_summary(GetParam().make())); }
TEST_P(Golden, Terminal) {
  check(std::string(GetParam().name) + ".txt", terminal_table(GetParam().make(), false, 118));
}

INSTANTIATE_TEST_SUITE_P(
    Reports, Golden,
    testing::Values(Fixture{"outcome", outcome_results}, Fixture{"missed_control", missed_control_results},
                    Fixture{"mechanism", mechanism_results}, Fixture{"certificate", certificate_results},
                    Fixture{"claims", claims_results}, Fixture{"hostile", hostile_results},
                    Fixture{"detection", detection_results}, Fixture{"empty", empty_results},
                    Fixture{"convergence", convergence_results}, Fixture{"sequential", sequential_results},
                    Fixture{"calibration", calibrated_results}, Fixture{"judged", judged_results},
                    Fixture{"laboratory", laboratory_results}, Fixture{"wide_laboratory", wide_laboratory_results}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep
