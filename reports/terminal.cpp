#include "reports/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/answers.h"
#include "reports/detection.h"
#include "reports/numbers.h"
#include "reports/text.h"
#include "reports/timing_text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

constexpr int kNoLimit = 1 << 20, kNarrowest = 40;

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

std::string ascii_minus(std::string text) {
  for (std::size_t at; (at = text.find("−")) != std::string::npos;)
    text.replace(at, std::string_view("−").size(), "-");
  return text;
}

/// "+0.000 ± 0.006": the mean and half of its interval.
std::string difference_words(const CellResult& cell, int decimals) {
  if (!cell.outcome) return "";
  const MetricDifference& d = cell.outcome->primary;
  std::string text = ascii_minus(signed_number(d.mean, decimals));
  const double half = (d.interval.high - d.interval.low) / 2;
  if (std::isfinite(half)) text += fmt::format(" ± {:.{}f}", half, decimals);
  return text;
}

struct Row {
  std::string name, verdict, difference, note;
  const char* css;
  bool is_expected;
};

std::vector<Row> rows_of(const Results& results) {
  const int decimals = decimals_for(results.primary.margin);
  std::vector<Row> rows;
  for (const bool controls : {false, true}) {
    for (const CellResult& cell : results.cells) {
      if (cell.power_control != controls) continue;
      // The table of losses speaks for the cases that are certified.
      if (results.certificate && is_as_expected(cell)) continue;
      const VerdictStyle& style = style_of(cell.verdict);
      rows.push_back({(controls ? "control " : "") + name_words(cell.scenario),
                      std::string(style.symbol) + " " + style.words, difference_words(cell, decimals),
                      note_words(cell), style.css, is_as_expected(cell)});
    }
  }
  return rows;
}

int widest(const std::vector<Row>& rows, std::string Row::*column) {
  int width = 0;
  for (const Row& row : rows) width = std::max(width, display_width(row.*column));
  return width;
}

/// Words of a paragraph in lines of at most `width` columns.
std::string wrapped(std::string_view text, int width) {
  std::string out, line;
  const auto flush = [&] {
    if (!line.empty()) out += line + "\n";
    line.clear();
  };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t space = std::min(text.find(' ', begin), text.size());
    const std::string word = shorten(text.substr(begin, space - begin), width);
    begin = space + 1;
    if (word.empty()) continue;
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) flush();
    line += (line.empty() ? "" : " ") + word;
  }
  flush();
  return out;
}

}  // namespace

std::string terminal_table(const Results& results, bool colour, int width) {
  const int columns = width > 0 ? std::max(width, kNarrowest) : kNoLimit;
  const Paint paint{colour};
  const Status status = status_of(results);
  std::string out =
      paint(shorten(clean_line(results.name) + " · " + question_words(results), columns), "bold") + "\n";
  if (results.detection) {
    out += detection_text(*results.detection) + "\n" +
           wrapped(detection_caption(*results.detection), std::min(columns, 118));
  }
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
    std::string end = shorten(tail + (row.is_expected ? "" : "✗ ") + row.note, left);
    end.erase(end.find_last_not_of(' ') + 1);
    out += head + paint(end.empty() ? row.verdict : shown, row.css) +
           (row.is_expected ? end : paint(end, "bold")) + "\n";
  }
  if (results.timing) {
    out +=
        timing_table(*results.timing) + wrapped(clean_line(results.timing->sentence), std::min(columns, 118));
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
