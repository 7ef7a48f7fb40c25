#pragma once
// The tables and charts that a suite gives, in letters: on a terminal, in Markdown, in JUnit's output.

#include <string>
#include <vector>

#include "harness/verdict/results/suite_results.h"

namespace lockstep {

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
