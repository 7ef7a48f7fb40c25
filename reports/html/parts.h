#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/markup.h"
#include "reports/text.h"
#include "reports/words.h"

// The sections of the page, each written where html.cpp calls it. A section that has nothing to say writes
// nothing.

namespace lockstep {

struct Headline;

struct Page {
  const Results& results;
  std::vector<std::string> anchors;  ///< of the cells
};

/// The style sheet.
std::string_view html_style();

/// An offline page up to its body: nothing may be loaded or run, whatever a name or a log line holds.
void open_page(Markup& out, const std::string& title);

/// <section id> with its heading and, if it is not empty, a paragraph that says how to read it.
void open_section(Markup& out, std::string_view id, std::string_view heading, std::string_view why);

/// A table that scrolls by itself where it is too wide, up to its body.
void open_table(Markup& out, std::string_view css, const std::vector<Column>& heads);
void close_table(Markup& out);

/// "≠ divergent" in its colour.
void write_verdict(Markup& out, const CellResult& cell, VerdictKind kind);

void write_detection(Markup& out, const Page& page);    ///< planted faults against what was found
void write_certificate(Markup& out, const Page& page);  ///< losses by number of ranks
/// The headline's sentences and answers, inside the box of the verdict.
void write_answers(Markup& out, const Headline& headline);
void write_grid(Markup& out, const Page& page);         ///< two axes against each other
void write_differences(Markup& out, const Page& page);  ///< paired differences by step
void write_growth(Markup& out, const Page& page);       ///< rules where the batch grows
void write_drift(Markup& out, const Page& page);  ///< rounding alone, by step
void write_exact(Markup& out, const Page& page);  ///< first steps in exact arithmetic
void write_noise_scale(Markup& out, const Page& page);
void write_costs(Markup& out, const Page& page);  ///< speed-up, communication, memory
void write_power(Markup& out, const Page& page);  ///< spread, power, seeds needed, estimates
void write_interim_analyses(Markup& out, const Page& page);  ///< seeds added look by look
void write_targets(Markup& out, const Page& page);
void write_mechanism(Markup& out, const Page& page);   ///< the ladder, and where each cell first differs
void write_rewards(Markup& out, const Page& page);     ///< what each rank has of them, where they are recorded
void write_signatures(Markup& out, const Page& page);  ///< gradients of each cell against its reference's
void write_certification(Markup& out, const Page& page);
void write_metrics(Markup& out, const Page& page);
void write_failures(Markup& out, const Page& page);
void write_provenance(Markup& out, const Page& page);
void write_commands(Markup& out, const Page& page);

}  // namespace lockstep
