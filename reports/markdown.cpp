#include "reports/markdown.h"

#include <fmt/format.h>

#include <algorithm>

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

constexpr int kLongestRowName = 120, kLongestNote = 400, kLongestDetail = 4000, kLongestLine = 300;
/// Kept free for what closes the text.
constexpr std::size_t kReserve = 4096;

/// Appends whole pieces as long as there is room.
class Budget {
 public:
  bool add(const std::string& piece) {
    if (full_ || text_.size() + piece.size() + kReserve > kLargestMarkdownBytes) {
      full_ = true;
      return false;
    }
    text_ += piece;
    return true;
  }
  bool full() const { return full_; }
  std::string take(const std::string& end) { return std::move(text_) + end; }

 private:
  std::string text_;
  bool full_ = false;
};

std::string cell_text(std::string_view text, int longest) {
  return escape_markdown(short_line(text, longest));
}

/// A fenced block whose fence no line of the text can close.
std::string fenced(const std::string& text) {
  std::size_t longest = 2, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + "text\n" + text + "\n" + fence + "\n";
}

/// The interval, and its own level where cells differ in it.
std::string interval_of(const Results& results, const CellResult& cell, int decimals) {
  const Interval& interval = cell.outcome->primary.interval;
  if (cell.outcome->n < 2) return "one seed: none";
  const std::string level = common_level(results) ? "" : ", " + level_words(interval.level);
  return interval_words(interval, decimals) + level;
}

std::string row(const Results& results, const CellResult& cell, int decimals) {
  const VerdictStyle& style = style_of(cell.verdict);
  std::string difference = "—", interval = "—", n = "—";
  if (cell.outcome) {
    difference = signed_number(cell.outcome->primary.mean, decimals);
    interval = interval_of(results, cell, decimals);
    n = std::to_string(cell.outcome->n);
  }
  return fmt::format("| {} | {} {} | {} | {} | {} | {} | {} | {} |\n",
                     cell_text(cell.scenario, kLongestRowName) + (cell.power_control ? " (power control)" : ""),
                     style.symbol, is_as_expected(cell) ? style.words : fmt::format("**{}**", style.words),
                     states_nothing(cell) ? "–" : is_as_expected(cell) ? "✓" : "✗", difference, interval, n,
                     cell_text(mechanism_words(cell), kLongestNote),
                     cell_text(note_words(cell), kLongestNote));
}

/// What noise alone does; nothing is judged by it.
std::string noise_table(const Results& results, int decimals) {
  std::string out;
  for (const CellResult& cell : results.cells) {
    if (!cell.noise || !cell.outcome) continue;
    const MetricDifference& d = cell.outcome->primary;
    if (out.empty()) {
      out = fmt::format("\n| A/A pair, not judged | difference | {} | n |\n|---|--:|--:|--:|\n",
                        interval_name(results));
    }
    out += fmt::format("| {} | {} | {} | {} |\n", cell_text(cell.scenario, kLongestRowName),
                       signed_number(d.mean, decimals), interval_of(results, cell, decimals), cell.outcome->n);
  }
  return out;
}

std::string unexpected(const CellResult& cell) {
  std::string text =
      fmt::format("\n### {} {}\n\n", style_of(cell.verdict).symbol, cell_text(cell.scenario, kLongestRowName));
  text += cell_text(note_words(cell), kLongestDetail) + "\n\n";
  std::string lines;
  if (cell.failure) {
    for (const std::string& line : cell.failure->last_lines) lines += short_line(line, kLongestLine) + "\n";
  }
  if (!lines.empty()) {
    lines.pop_back();
    text += fenced(lines) + "\n";
  }
  if (!cell.rerun.empty()) text += "Run it again:\n\n" + fenced(clean_line(cell.rerun));
  return text;
}

}  // namespace

std::string markdown_summary(const Results& results) {
  if (results.suite) return suite_markdown(results);
  constexpr int kLongestSentence = 4000;
  const Status status = status_of(results);
  const int decimals = decimals_for(results.primary.margin);
  Budget out;
  out.add(fmt::format("## {} {}: {}\n\n", status.symbol, status.word, cell_text(results.name, kLongestRowName)));
  if (!status.detail.empty()) out.add(cell_text(status.detail, kLongestSentence) + "\n\n");
  const std::string grid = grid_markdown(results);
  if (!results.summary.sentence.empty() && grid.empty())
    out.add("**" + cell_text(results.summary.sentence, kLongestSentence) + "**\n\n");
  out.add(cell_text(question_words(results), kLongestNote) + "\n\n");
  if (const std::string changed = changed_words(results); !changed.empty())
    out.add(cell_text(changed, kLongestNote) + "\n\n");
  out.add(grid);
  out.add(markdown_answers(results));
  std::size_t rows = 0;
  if (results.detection) out.add(detection_markdown(*results.detection));
  // The table of losses speaks for the cases that are certified; the others follow one by one.
  if (!results.cells.empty() && !results.detection && !results.certificate) {
    out.add(
        fmt::format("| cell | verdict | expected | difference | {} | n | mechanism | note |\n"
                    "|---|---|:-:|--:|--:|--:|---|---|\n",
                    interval_name(results)));
    while (rows < results.cells.size() &&
           (!is_judged(results.cells[rows]) || out.add(row(results, results.cells[rows], decimals))))
      ++rows;
    out.add(noise_table(results, decimals));
    if (const std::string more = more_seeds_words(results); !more.empty())
      out.add("\n" + cell_text(more, kLongestNote) + "\n");
  }
  if (const std::string grown = growth_markdown(results); !grown.empty()) out.add(grown);
  if (results.timing) out.add("\n" + timing_markdown(*results.timing));
  if (const std::string certified = certification_words(results); !certified.empty()) {
    out.add("\n" + cell_text(certified, kLongestNote) + "\n");
  }
  std::size_t details = 0, wanted = 0;
  for (const CellResult& cell : results.cells) {
    if (is_as_expected(cell)) continue;
    ++wanted;
    if (!out.full() && out.add(unexpected(cell))) ++details;
  }
  std::string end;
  if (out.full() && !results.certificate) {
    end = fmt::format(
        "\nShown: {} of {} cells and {} of {} details; the rest is in report.html and results.json.\n",
        rows, results.cells.size(), details, wanted);
  }
  if (!results.rerun.empty())
    end += "\nThe whole matrix again:\n\n" + fenced(short_line(results.rerun, 1000));
  return out.take(end);
}

}  // namespace lockstep
