#pragma once
// Reads and runs a suite as `lockstep run` does, and looks at what came of it.

#include <gtest/gtest.h>

#include <string>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/suites/engine/run_trials.h"
#include "harness/suites/engine/suite.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

namespace lockstep::support {

/// The text of tried.yaml.
inline SuiteConfig read_tried(const SuiteKind& kind, const std::string& text) {
  const SuiteKind* const kinds[] = {&kind};
  return read_suite(text, "tried.yaml", {}, kinds);
}

/// What reading it complains of.
inline std::string problem_of(const SuiteKind& kind, const std::string& text) {
  return thrown_by([&] { read_tried(kind, text); });
}

inline SuiteResult run_tried(Suite& suite, const std::string& only = "", int jobs = 2) {
  const TempFolder folder;
  const int never = 0;
  TrialOptions options;
  options.only = only;
  options.clock = monotonic_s;
  return run_trials(suite, {folder.path(), jobs, &never, [](const std::string&) {}}, options).result;
}
inline SuiteResult run_tried(const SuiteKind& kind, const std::string& text, const std::string& only = "",
                                  int jobs = 2) {
  return run_tried(*read_tried(kind, text).suite, only, jobs);
}

/// A line for each finding.
inline std::string findings_of(const SuiteResult& result) {
  std::string text;
  for (const SuiteFinding& each : result.findings)
    text += each.trial + ": " + each.outcome + ": " + each.sentence + "\n";
  return text;
}

/// Nothing was found, not even a planted mistake.
inline void expect_silent(const SuiteResult& result, int64_t least_cases = 0) {
  EXPECT_EQ(result.faults, 0);
  EXPECT_EQ(result.undecided, 0);
  EXPECT_GE(result.cases, least_cases);
  EXPECT_TRUE(result.findings.empty()) << findings_of(result);
}

/// Empty: there is none of that name.
inline std::string fact(const SuiteResult& result, const std::string& name) {
  for (const auto& [what, figure] : result.facts) {
    if (what == name) return figure;
  }
  return "";
}

}  // namespace lockstep::support
