#include "reports/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "harness/verdict/results/words.h"
#include "reports/detection.h"
#include "reports/grid.h"
#include "reports/growth.h"
#include "reports/headline.h"
#include "reports/numbers.h"
#include "reports/suite.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

constexpr int kUnlimited = 1 << 20, kWidestGrid = 100, kIndent = 6;

struct Paint {
  bool colour;
  std::string operator()(std::string_view text, std::string_view css) const {
    if (!colour) return std::string(text);
    const char* code = css == "ok"     ? "32"
                       : css == "bad"  ? "31"
                       : css == "und"  ? "33"
                       : css == "fail" ? "35"
                       : css == "bold" ? "1"
                                       : "2";
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
  }
};

/// "+0.000 ± 0.006": the mean and half of its interval, and its own n and level where cells differ in them.
std::string difference_words(const Results& results, const CellResult& cell, int decimals) {
  if (!cell.outcome) return "";
  const MetricDifference& d = cell.outcome->primary;
  std::string text = ascii_minus(signed_number(d.mean, decimals));
  const double half = (d.interval.high - d.interval.low) / 2;
  if (std::isfinite(half)) text += fmt::format(" ± {:.{}f}", half, decimals);
  const std::string terms = own_terms(results, cell);
  return terms.empty() ? text : text + " (" + terms + ")";
}

/// What stands behind ±, of rows that show it.
std::string legend(const Results& results, int columns) {
  const auto shows = [](const CellResult& cell) {
    return !cell.anchor && cell.outcome && std::isfinite(cell.outcome->primary.interval.high);
  };
  if (std::ranges::none_of(results.cells, shows)) return "";
  return shorten(fmt::format("  ± half of the {}, {}", interval_name(results), pairs_words(results)), columns) + "\n";
}

struct Row {
  std::string name, verdict, difference, note, cause;
  const char* css;
  bool is_expected;
};

std::vector<Row> rows_of(const Results& results) {
  const int decimals = decimals_for(results.primary.margin);
  std::vector<Row> rows;
  const std::optional<AnswerGrid> grid = grid_of(results);
  for (const bool controls : {false, true}) {
    for (const CellResult& cell : results.cells) {
      if (cell.power_control != controls || cell.noise || cell.anchor) continue;
      // The table of losses speaks for the cases that are certified, the grid for those that it shows.
      if ((results.certificate || (grid && grid->holds(cell))) && is_as_expected(cell)) continue;
      const VerdictStyle& style = style_of(cell.verdict);
      rows.push_back({(controls ? "control " : "") + name_words(cell.scenario),
                      std::string(style.symbol) + " " + style.words, difference_words(results, cell, decimals),
                      note_words(cell), cause_of(cell) ? with_cause("", *cause_of(cell)) : "", style.css, is_as_expected(cell)});
    }
  }
  return rows;
}

int widest(const std::vector<Row>& rows, std::string Row::*column) {
  int width = 0;
  for (const Row& row : rows) width = std::max(width, display_width(row.*column));
  return width;
}

/// What noise alone does; nothing is judged by it.
std::string noise_lines(const Results& results, int columns) {
  const int decimals = decimals_for(results.primary.margin);
  std::string out;
  int name = 0;
  for (const CellResult& cell : results.cells) {
    if (cell.noise) name = std::max(name, std::min(columns / 2, display_width(name_words(cell.scenario))));
  }
  for (const CellResult& cell : results.cells) {
    if (!cell.noise || !cell.outcome) continue;
    if (out.empty()) out = shorten("A/A pairs (noise only, not judged)", columns) + "\n";
    out += shorten(fmt::format("  {}  {}", pad_right(shorten(name_words(cell.scenario), name), name),
                               difference_words(results, cell, decimals)),
                   columns) +
           "\n";
  }
  return out;
}

}  // namespace

std::string terminal_table(const Results& results, bool colour, int width) {
  if (results.suite) return suite_text(results, colour, width);
  const int columns = width > 0 ? std::max(width, kNarrowestWidth) : kUnlimited, tables = table_width(width);
  const Paint paint{colour};
  const Status status = status_of(results);
  std::string out =
      paint(shorten(clean_line(results.name) + " · " + question_words(results), columns), "bold") + "\n";
  if (const std::string changed = changed_words(results); !changed.empty()) out += wrapped(changed, columns);
  if (results.detection) {
    out += detection_text(*results.detection, tables) + "\n" +
           wrapped(detection_caption(*results.detection), std::min(columns, 118));
  }
  out += grid_text(results, std::min(columns, kWidestGrid));
  out += terminal_answers(results, columns);
  const std::vector<Row> rows = results.detection ? std::vector<Row>{} : rows_of(results);
  const int name = std::min(widest(rows, &Row::name), std::max(12, columns / 3));
  const int verdict = widest(rows, &Row::verdict), difference = widest(rows, &Row::difference);
  for (const Row& row : rows) {
    std::string head = "  " + pad_right(shorten(row.name, name), name) + "  ";
    const std::string shown = pad_right(row.verdict, verdict) + "  ";
    std::string tail;
    if (difference > 0) tail += pad_right(row.difference, difference) + "  ";
    const int left = columns - display_width(head) - display_width(shown);
    const std::string whole = tail + (row.is_expected ? "" : "✗ ") + row.note;
    std::string end = shorten(whole, left);
    end.erase(end.find_last_not_of(' ') + 1);
    out += head + paint(end.empty() ? row.verdict : shown, row.css) +
           (row.is_expected ? end : paint(end, "bold")) + "\n";
    // What explains it, and how to fix it, stand at the note's end.
    if (row.is_expected || row.cause.empty() || display_width(whole) <= left) continue;
    std::istringstream lines(wrapped(row.cause, columns - kIndent));
    for (std::string line; std::getline(lines, line);) out += std::string(kIndent, ' ') + line + "\n";
  }
  const std::string noise = noise_lines(results, columns);
  out += noise;
  if (difference > 0 || !noise.empty()) out += legend(results, columns);
  if (const std::string more = more_seeds_words(results); difference > 0 && !more.empty())
    out += shorten("  " + more, columns) + "\n";
  if (varies_batch_or_rate_rule(results)) {
    for (const Growth& growth : results.growth) {
      out += growth_text(growth, decimals_for(results.primary.margin), columns) +
             wrapped(clean_line(growth.sentence), columns);
    }
    out += noise_scale_text(results, columns);
  }
  for (const CellResult& cell : results.cells) {
    if (const std::string drift = drift_sentence(cell.drift); !drift.empty())
      out += wrapped(fmt::format("{}: {}", name_words(cell.scenario), drift), std::min(columns, 118));
  }
  if (results.timing) {
    out +=
        timing_table(*results.timing, tables) + wrapped(clean_line(results.timing->sentence), std::min(columns, 118));
  }
  if (const std::string certified = certification_words(results); !certified.empty())
    out += wrapped(certified, columns);
  if (!status.detail.empty()) {
    const std::string detail = wrapped(status.word + ": " + clean_line(status.detail), columns - 2);
    out += paint(std::string(status.symbol) + " " + detail.substr(0, detail.size() - 1), status.css) + "\n";
  }
  if (!results.rerun.empty()) out += shorten("again: " + clean_line(results.rerun), columns) + "\n";
  return out;
}

}  // namespace lockstep
