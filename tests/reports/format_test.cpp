#include "reports/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "harness/verdict/results/document.h"
#include "tests/support/convergence_fixture.h"
#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

TEST(Render, MakesEveryFormatThatItLists) {
  for (const ReportFormat& format : report_formats()) {
    const std::string text = render(outcome_results(), std::string(format.name));
    EXPECT_THAT(text, testing::HasSubstr("8x3 global")) << format.name;
    EXPECT_EQ(text, render(outcome_results(), std::string(format.name))) << format.name;
  }
}

TEST(Render, MakesTheSameFromADocumentAsFromWhatItWasWrittenFrom) {
  for (const auto& make : {outcome_results, missed_control_results, mechanism_results, certificate_results,
                           detection_results, empty_results, convergence_results,
                           sequential_results}) {
    const Results results = make(), again = results_from_json(results_to_json(results), "results.json");
    for (const ReportFormat& format : report_formats()) {
      const std::string name(format.name);
      EXPECT_EQ(render(again, name), render(results, name)) << results.name << " as " << name;
    }
  }
}

TEST(Render, KnowsWhatARunLeaves) {
  std::vector<std::string> files;
  for (const ReportFormat& format : report_formats()) files.emplace_back(format.file_name);
  EXPECT_THAT(files, testing::IsSupersetOf({"report.html", "summary.md", "results.json", "junit.xml"}));
}

TEST(Render, RefusesAnUnknownFormatAndListsTheKnownOnes) {
  try {
    render(outcome_results(), "pdf\x1b[31m");
    FAIL() << "no exception";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("unknown report format 'pdf'; known are html, md, json, junit, "));
  }
}

}  // namespace
}  // namespace lockstep
