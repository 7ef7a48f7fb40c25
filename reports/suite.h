#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/answer/results/suite_results.h"
#include "reports/markup.h"
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

/// Are they too many to stand open, with no fault among them, where the suite's own tables tell how it went?
bool folds_outcomes(const SuiteResult& suite);

/// "kill: 3 of 41 cases came out wrong", of the whole suite.
Status suite_status(const Results& results);

std::string suite_text(const Results& results, bool colour, int width);
std::string suite_markdown(const Results& results);
std::string suite_junit(const Results& results);
/// The page's body, below its box of the verdict.
void write_suite(Markup& out, const SuiteResult& suite);

// The tables and charts that a suite gives, in letters: on a terminal, in Markdown, in JUnit's output.

/// The rows as every format shows them: faults first, then the others in their order.
std::vector<const TableRow*> rows_in_order(const SuiteTable& table);
bool has_fault(const SuiteTable& table);

/// Without columns in which no row says anything.
SuiteTable with_words(const SuiteTable& table);

/// The tables as every format shows them: those with a fault first.
std::vector<const SuiteTable*> tables_in_order(const SuiteResult& suite);

/// "time (us)".
std::string head_words(const TableColumn& column);

/// Cells of a row: a fault's first one begins with a cross, so that colour alone tells nothing.
std::vector<std::string> cells_of(const TableRow& row);

/// A line for each series: its points as bars of eight heights in the order of x, or as dots on a strip.
std::vector<std::string> chart_lines(const SuiteChart& chart);

/// Tables of up to 30 rows that are not folded, of others the faults alone; charts of up to 12 series. `width`: columns of the terminal.
std::string tables_text(const SuiteResult& suite, bool colour, int width);

/// Everything: those with a fault, then the charts, then the rest; folded tables in details.
std::string tables_markdown(const SuiteResult& suite);

}  // namespace lockstep
