#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/answer/results/suite_results.h"
#include "reports/section.h"
#include "reports/words.h"

// A suite's results in words: the table of failures and outcomes, findings with their timelines, each format.

namespace lockstep {

/// Failures (and places) against outcomes: how many cases ended so.
struct OutcomeTable {
  struct Outcome {
    std::string name;
    CaseVerdict verdict = CaseVerdict::good;
  };
  struct Row {
    std::string failure, place;       ///< place: empty where rows are one a failure
    std::vector<int64_t> cases;       ///< by outcome
  };
  std::vector<Outcome> outcomes;  ///< good ones first, then faults, then undecided ones
  std::vector<Row> rows;          ///< in the order of the results
};
OutcomeTable outcome_table(const SuiteResult& suite, bool by_place);

std::string suite_junit(const Results& results);
/// JUnit up to the properties of its one test suite, which stay open.
Markup junit_begin(const Results& results, std::size_t tests, std::ptrdiff_t failures, std::ptrdiff_t errors);
void property(Markup& out, std::string_view name, std::string_view value);
/// Of the page, below its box of the verdict: tables and charts, outcomes, findings.
std::vector<Section> suite_sections(const SuiteResult& suite);

}  // namespace lockstep
