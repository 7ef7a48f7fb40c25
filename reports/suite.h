#pragma once
// A suite's results in words: the table of failures and outcomes, findings with their timelines, each format.

#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/results/results.h"
#include "reports/markup.h"
#include "reports/words.h"

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

/// Are they too many to stand open, with no fault among them, where the suite's own tables tell how it went?
bool folds_outcomes(const SuiteResult& suite);

/// "kill: 3 of 41 cases came out wrong", of the whole suite.
Status suite_status(const Results& results);

std::string suite_text(const Results& results, bool colour, int width);
std::string suite_markdown(const Results& results);
std::string suite_junit(const Results& results);
/// The page's body, below its box of the verdict.
void write_suite(Markup& out, const SuiteResult& suite);

}  // namespace lockstep
