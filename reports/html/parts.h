#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/section.h"
#include "reports/text.h"
#include "reports/words.h"

// The sections of the page, each written where html.cpp calls it. A section that has nothing to say writes
// nothing.

namespace lockstep {

struct Page {
  const Results& results;
  std::vector<std::string> anchors;  ///< of the cells
};

/// The style sheet.
std::string_view html_style();

/// Values under the pointer and series that a click hides. The page's policy lets it alone run, by its SHA-256.
std::string_view html_script();
constexpr const char* kScriptHash = "FmKTq3hjhhMKtUkSC8vvsBKsOLrqkSlOUhmsGEwvxgA=";

/// An offline page up to its body: nothing may be loaded, and only the script run, whatever a name or a log line holds.
void open_page(Markup& out, const std::string& title);

/// "≠ divergent" in its colour.
Note verdict_note(const CellResult& cell, VerdictKind kind);

// Tables with a drawing in each row.

/// First column: the cell's name, linked to its row in the table of mechanisms, and a mark if it is a power
/// control.
Datum label_of(const CellResult& cell, const std::string& anchor);

/// The last columns of tables with a row a cell: symbol and words of `kind` with what was expected, the cause with the first step,
/// how to fix it.
std::vector<Column> answer_columns();
void add_answer(DataRow& row, const CellResult& cell, VerdictKind kind);

// Sections of every format; one without parts has nothing to say.

Section detection_section(const Detection& detection);        ///< planted faults against what was found
Section certificate_section(const Certificate& certificate);  ///< losses by number of ranks
Section answers_section(const Results& results);              ///< question by question
Section band_section(const Page& page);                       ///< a row a cell: shares of the rounding tolerance
Section outcome_section(const Page& page);                    ///< a row a cell: paired differences with their intervals
Section growth_section(const Page& page);                     ///< rules where the batch grows
Section noise_section(const Page& page);                      ///< gradient noise scales
Section costs_section(const Timing& timing);                  ///< speed-up, communication, memory

/// "95 % interval": of the rules' differences; "interval" where looks left rules at levels of their own.
std::string rule_interval_name(const Growth& growth);
Part rules_drawing(const Results& results, const Growth& growth);

// Of pages alone.

Section grid_section(const Page& page);           ///< two axes against each other
Section curves_section(const Page& page);         ///< metrics by step
Section differences_section(const Page& page);    ///< paired differences by step
Section drift_section(const Page& page);          ///< rounding alone, by step
Section exact_section(const Page& page);          ///< first steps in exact arithmetic
Section power_section(const Page& page);          ///< spread, power, seeds needed, estimates
Section looks_section(const Page& page);          ///< seeds added look by look
Section target_section(const Page& page);         ///< samples to a value of the metric
Section mechanism_section(const Page& page);      ///< the ladder, and where each cell first differs
Section gradients_section(const Page& page);      ///< gradients of each cell against its reference's
Section certification_section(const Page& page);  ///< how emulated runs were certified
Section metrics_section(const Page& page);
Section failures_section(const Page& page);
Section provenance_section(const Page& page);
Section commands_section(const Page& page);

/// What each rank has of them, where they are recorded; a section a cell.
std::vector<Section> rewards_sections(const Page& page);

}  // namespace lockstep
