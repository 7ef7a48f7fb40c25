#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/suite_results.h"
#include "reports/markup.h"
#include "reports/text.h"

// What an answer holds, in no format: sections of text, tables and drawings. Each format has one writer for all of
// them.

namespace lockstep {

/// Note in a colour: t-ok, t-bad, t-und, t-fail, t-ctl; empty: in that of the text around them.
struct Note {
  Note(std::string words = "", std::string colour = "") : text(std::move(words)), css(std::move(colour)) {}
  Note(const char* words) : text(words) {}
  std::string text, css;
  bool page = false;  ///< only pages have room for it
};
Note on_page(std::string words, std::string colour = "");

/// A cell of a table. Its members are set in a chain: Datum("2.1").note("1.9 to 2.4").
struct Datum {
  Datum(std::string words = "", std::string colour = "") : text(std::move(words)), css(std::move(colour)) {}
  Datum(const char* words) : text(words) {}
  std::string text, css;    ///< coloured words are bold
  std::vector<Note> notes;  ///< below in small letters; in brackets where a format has none
  std::string link, tag;    ///< an anchor; a mark behind the name
  std::string box;          ///< classes of the cell on a page
  std::string drawing;      ///< of the row, on a page
  bool code = false;
  int rows = 1;  ///< that it spans on a page; those below have no such cell

  Datum& note(Note words) {
    if (!words.text.empty()) notes.push_back(std::move(words));
    return *this;
  }
  Datum& to(const std::string& anchor) { return link = anchor.empty() ? "" : "#" + anchor, *this; }
  Datum& in(std::string classes) { return box = std::move(classes), *this; }
  Datum& drawn(std::string svg) { return drawing = std::move(svg), *this; }
  Datum& as_code() { return code = true, *this; }
};

struct DataRow {
  DataRow(std::vector<Datum> all = {}) : cells(std::move(all)) {}
  std::vector<Datum> cells;
  bool fault = false;      ///< first of all, in red and behind a cross
  bool open = false;       ///< a terminal shows its `below`, as of a fault
  std::string id, css;     ///< on a page
  std::string group = {};  ///< words above the row, of it and those below
};

struct Table {
  std::string css = "plain";
  std::vector<Column> columns;
  std::vector<DataRow> rows;
  bool folded = false;    ///< one to look things up in: a terminal shows its faults alone
  std::string foot = {};  ///< on a page: the drawing below the second column, of its axis
};

/// What a reader asks, and a sentence or two.
struct Answer {
  std::string question, text;
  std::string css = "ctl";  ///< ok, bad, und or ctl
};

/// The tree's nodes.
struct Part {
  enum class Kind { heading, prose, list, answers, code, table, chart, drawing, fold, columns };
  Kind kind = Kind::prose;
  std::string text = {}, id = {}, css = {};  ///< css: of a heading's `more`
  std::string more = {};                     ///< behind a heading, in its colour
  std::vector<std::string> lines = {};       ///< of a list
  std::vector<Answer> answers = {};
  Table table = {};
  SuiteChart chart = {};
  std::string drawing = {};  ///< HTML that a writer of drawings made; other formats leave it out
  std::vector<Part> parts = {};
  bool page = false;  ///< only pages have it
};
Part prose(std::string text);
Part heading(std::string text, std::string id = "", Note more = {});
Part code(std::string text);
Part list(std::vector<std::string> lines);
/// Those that have a text.
Part answered(std::vector<Answer> answers);
Part tabled(Table table);
Part charted(SuiteChart chart);
Part drawing(std::string html);
Part columns(std::vector<Part> parts);
/// Folded on pages and in Markdown; terminals leave it out.
Part fold(std::string summary, std::vector<Part> parts, std::string id = "", Note more = {});
Part on_pages(Part part);

struct Section {
  std::string id, title, intro;
  std::vector<Part> parts;
  bool page = false;  ///< only pages have it
};

/// The cell's name, the drawing, figures.
std::vector<Column> drawn_columns(const char* drawing, const std::vector<std::string>& figures);

void write_section(Markup& out, const Section& section);
void write_part(Markup& out, const Part& part);

/// "### title", its intro and its parts, each with an empty line before it.
std::string markdown_of(const Section& section);
std::string markdown_of(const Part& part);
/// A fenced block whose fence no line of the text can close.
std::string fenced(const std::string& text);

/// `width` columns, 0: not known; tables of more than 30 rows show their faults alone.
std::string text_of(const Part& part, bool colour, int width);
std::string text_of(const Section& section, bool colour, int width);

/// A drawing with words above it: a name, which may be a link to a cell, and notes.
struct Figure {
  std::string name, link = {};
  std::vector<Note> notes = {};
  const char* css = "panel";
};
void write_figure(Markup& out, const Figure& figure, std::string_view drawing);

/// A chart as it stands on the page, without title and explanation. Empty if there is no point to draw.
std::string chart_drawing(const SuiteChart& chart);

/// A line for each series: its points as bars of eight heights in the order of x, or as dots on a strip.
std::vector<std::string> chart_lines(const SuiteChart& chart);

Table table_of(const SuiteTable& given);
/// The tables with a fault, the charts, then the other tables: folded ones in folds.
std::vector<Section> sections_of(const std::vector<SuiteTable>& tables, const std::vector<SuiteChart>& charts);

}  // namespace lockstep
