#include "reports/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/controls.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/base/text.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

struct CellsOfColumn {
  std::vector<const CellResult*> same, other, open, failed;
};

CellsOfColumn sort_column(const AnswerGrid& grid, std::size_t column) {
  CellsOfColumn sorted;
  for (const auto& row : grid.cells) {
    const CellResult* cell = row[column];
    if (!cell || cell->anchor) continue;
    switch (cell->failure ? VerdictKind::failed : cell->verdict) {
      case VerdictKind::equivalent:
        sorted.same.push_back(cell);
        break;
      case VerdictKind::divergent:
        sorted.other.push_back(cell);
        break;
      case VerdictKind::failed:
        sorted.failed.push_back(cell);
        break;
      default:
        sorted.open.push_back(cell);
        break;
    }
  }
  return sorted;
}

std::string rows_of(const AnswerGrid& grid, const std::vector<const CellResult*>& cells) {
  std::vector<std::string> names;
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    const auto in_row = [&](const CellResult* cell) {
      return std::find(grid.cells[row].begin(), grid.cells[row].end(), cell) != grid.cells[row].end();
    };
    if (std::any_of(cells.begin(), cells.end(), in_row)) names.push_back(name_words(grid.rows[row]));
  }
  return join_words(names);
}

/// "2x12 trains the same as 1x24; 4x6 and 8x3 do not; 3x8 is undecided"; where nothing shows that a difference
/// would have been seen, "2x12 came out equivalent to 1x24".
std::string column_words(const AnswerGrid& grid, const CellsOfColumn& c, const std::string& against, bool shown) {
  const std::string every = grid.row_axis == "layout" ? "layout" : "value of " + clean_line(grid.row_axis);
  const std::size_t all = c.same.size() + c.other.size() + c.open.size() + c.failed.size();
  if (all == 0) return "nothing was compared";
  if (all > 1 && c.same.size() == all)
    return fmt::format("every {} {} {}", every, shown ? "trains the same as" : "came out equivalent to", against);
  if (all > 1 && c.other.size() == all) return fmt::format("no {} trains the same as {}", every, against);
  std::vector<std::string> parts;
  if (!c.same.empty()) {
    const std::string verb = !shown               ? "came out equivalent to"
                             : c.same.size() == 1 ? "trains the same as"
                                                  : "train the same as";
    parts.push_back(fmt::format("{} {} {}", rows_of(grid, c.same), verb, against));
  }
  if (!c.other.empty()) {
    parts.push_back(fmt::format("{} {} not{}", rows_of(grid, c.other), c.other.size() == 1 ? "does" : "do",
                                c.same.empty() || !shown ? " train the same as " + against : ""));
  }
  if (!c.open.empty())
    parts.push_back(fmt::format("{} {} undecided", rows_of(grid, c.open), c.open.size() == 1 ? "is" : "are"));
  if (!c.failed.empty()) parts.push_back(rows_of(grid, c.failed) + " failed");
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : "; ") + parts[i];
  return text;
}

/// "; but neither a power control nor another cell came out divergent against 1x24 layer, so nothing shows that
/// ..." where that is so of cells of the column.
std::string uncontrolled_words(const std::vector<ControlledQuestion>& questions, const CellsOfColumn& column) {
  std::vector<std::string> references;
  std::size_t cells = 0;
  for (const CellResult* cell : column.same) {
    if (!is_uncontrolled(questions, *cell)) continue;
    ++cells;
    const std::string name = name_words(cell->reference);
    if (std::find(references.begin(), references.end(), name) == references.end()) references.push_back(name);
  }
  return cells == 0 ? "" : "; but " + uncontrolled_in_words(join_words(references), cells);
}

std::vector<std::string> grid_sentences(const Results& results, const AnswerGrid& grid) {
  const std::string against = held_against(results, grid);
  const std::vector<ControlledQuestion> questions = controlled_questions(results);
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < grid.columns.size(); ++i) {
    const CellsOfColumn column = sort_column(grid, i);
    const std::string uncontrolled = uncontrolled_words(questions, column);
    sentences.push_back(fmt::format("With {}: {}{}.", setting_words(grid.column_axis, grid.columns[i]),
                                    column_words(grid, column, against, uncontrolled.empty()), uncontrolled));
  }
  return sentences;
}

/// What was found first of cells that diverge: by cause, with the first cell's evidence. Whether it makes the outcome was not tried.
std::string first_words(const AnswerGrid& grid) {
  struct Reason {
    std::string text;
    std::vector<std::string> cells;
  };
  std::vector<Reason> reasons;
  const auto add = [&reasons](const std::string& text, const CellResult& cell) {
    auto found =
        std::find_if(reasons.begin(), reasons.end(), [&](const Reason& r) { return r.text == text; });
    if (found == reasons.end()) found = reasons.insert(reasons.end(), {text, {}});
    found->cells.push_back(name_words(cell.scenario));
  };
  for (std::size_t column = 0; column < grid.columns.size(); ++column) {
    for (const CellResult* cell : sort_column(grid, column).other) {
      const Mechanism* m = cell->mechanism ? &*cell->mechanism : nullptr;
      if (cell->no_negatives)
        add("a row has no negatives, so the loss is 0", *cell);
      else if (m && m->cause && m->cause->code != "unexplained" && !m->cause->evidence.empty())
        add(clean_line(m->cause->evidence), *cell);
      else if (m && m->first_divergence)
        add(divergence_words(*m->first_divergence), *cell);
      else
        add("no difference in the computation was found, or none was looked for", *cell);
    }
  }
  std::string text;
  for (Reason& reason : reasons) {
    if (reason.text.ends_with('.')) reason.text.pop_back();
    text += fmt::format("{}{}: {}.", text.empty() ? "" : " ", join_words(reason.cells), reason.text);
  }
  return text;
}

std::string predicted_words(const Growth& g) {
  const Interval& i = g.predicted_interval;
  if (std::isfinite(i.low) && std::isfinite(i.high) && i.low < i.high)
    return fmt::format("{:.2f} to {:.2f}", i.low, i.high);
  return fmt::format("{:.2f}", g.predicted_exponent);
}

std::string growth_words(const Growth& g) {
  std::string text = clean_line(g.sentence);
  if (text.empty()) return text;
  if (std::isfinite(g.measured_exponent)) {
    text += fmt::format(" Measured exponent {:.2f}", g.measured_exponent);
    if (std::isfinite(g.measured_interval.low) && std::isfinite(g.measured_interval.high))
      text += fmt::format(" ({} interval {:.2f} to {:.2f})", level_words(g.measured_interval.level),
                          g.measured_interval.low, g.measured_interval.high);
    if (std::isfinite(g.predicted_exponent))
      text += fmt::format(", predicted by the gradient noise {}", predicted_words(g));
    text += ".";
  }
  return text;
}

Answer sure_answer(const Results& results, const AnswerGrid& grid) {
  double least = 1;
  bool any = false, all_same = true;
  for (const CellResult& cell : results.cells) {
    if (!grid.holds(cell) || cell.anchor) continue;
    all_same = all_same && cell.verdict == VerdictKind::equivalent;  // A cell that failed is none of them.
    if (!cell.outcome) continue;
    if (cell.verdict == VerdictKind::divergent || cell.outcome->n < 2) continue;
    any = true;
    least = std::min(least, cell.outcome->power);
  }
  std::string text =
      fmt::format("Margin ± {:g} of {}, {}; {}; α {:g}.", results.primary.margin,
                  metric_words(results.primary.metric), declaration_words(results), pairs_words(results),
                  results.primary.alpha);
  if (any) {
    text += fmt::format(
        " If there were no difference, each cell that was not found to differ would be found equivalent with a "
        "probability of at least {}, at the upper bound of its spread.",
        // Rounded down: it is a bound.
        fmt::format("{:.2f}", std::floor(100 * least) / 100));
  }
  if (const std::string unseen = unseen_in_words(results.cells); !unseen.empty()) text += " " + unseen + ".";
  if (all_same) text += " The claim that all are equivalent needs no correction for multiple tests: each passed "
                        "its own.";
  return {"How sure is that?", text, any && least < 0.8 ? "und" : "ctl"};
}

/// "Against 1x24 global a true difference of ...", question by question.
std::string sight_words(const std::vector<ControlledQuestion>& questions) {
  std::string text;
  for (const ControlledQuestion& question : questions) {
    if (const std::string sight = sight_in_words(question); !sight.empty()) text += " " + clean_line(sight) + ".";
  }
  return text;
}

Answer controls_answer(const Results& results, int decimals) {
  std::vector<std::string> caught, missed, without;
  for (const CellResult& cell : results.cells) {
    if (!cell.power_control) continue;
    const std::string figure = cell.outcome ? " (" + figures_words(*cell.outcome, decimals) + ")" : "";
    (is_missed_control(cell) ? missed : caught).push_back(name_words(cell.scenario) + figure);
  }
  const std::vector<ControlledQuestion> questions = controlled_questions(results);
  for (const ControlledQuestion& question : questions) {
    if (!question.is_shown() && !question.cells.empty()) without.push_back(name_words(question.reference));
  }
  const std::string sight = sight_words(questions);
  if (!missed.empty())
    return {"Can this matrix detect a difference?", "No: " + join_words(missed) + " had to be found to differ." + sight, "bad"};
  if (caught.empty()) return {"Can this matrix detect a difference?", "Unknown: it has no power control." + sight, "und"};
  const std::string divergent = fmt::format("{} {} found to differ, as required: {}",
                                            counted(static_cast<int>(caught.size()), "power control"),
                                            caught.size() == 1 ? "was" : "were", join_words(caught));
  if (without.empty()) return {"Can this matrix detect a difference?", fmt::format("Yes: {}.{}", divergent, sight), "ok"};
  return {"Can this matrix detect a difference?",
          fmt::format("Not everywhere: {}; unknown for comparisons with {}, where no cell was found to "
                      "differ.{}",
                      divergent, join_words(without), sight),
          "und"};
}

/// What the verdicts rest on less firmly than their intervals say; no text: nothing.
Answer doubt_answer(const Results& results) {
  std::string text;
  const auto say = [&text](const CellResult& cell, const std::string& words) {
    text += fmt::format("{}{}: {}.", text.empty() ? "" : " ", name_words(cell.scenario), clean_line(words));
  };
  for (const CellResult& cell : results.cells) {
    if (!is_judged(cell) || cell.failure || !cell.outcome) continue;
    if (is_skewed(*cell.outcome)) say(cell, skew_in_words(*cell.outcome));
    if (is_unsteady(*cell.outcome)) say(cell, rounding_in_words(*cell.outcome));
  }
  return {"Which results are uncertain?", text, "und"};
}

}  // namespace

std::optional<Headline> headline_of(const Results& results) {
  const std::optional<AnswerGrid> grid = grid_of(results);
  if (!grid) return std::nullopt;
  const int decimals = decimals_for(results.primary.margin);
  Headline headline;
  headline.sentences = grid_sentences(results, *grid);
  if (const std::string first = first_words(*grid); !first.empty())
    headline.answers.push_back({"Where do they first differ?", first, "bad"});
  std::vector<std::string> failed;
  for (const CellResult& cell : results.cells) {
    if (cell.failure) failed.push_back(name_words(cell.scenario));
  }
  if (!failed.empty()) headline.answers.push_back({"Which cells failed or cannot be judged?", join_words(failed) + ".", "fail"});
  for (const Growth& growth : results.growth) {
    if (growth.from_batch == growth.to_batch || !varies_batch_or_rate_rule(results)) continue;
    if (const std::string text = growth_words(growth); !text.empty())
      headline.answers.push_back({"Which learning-rate rule fits when the batch grows?", text, "ctl"});
  }
  if (results.timing && !results.timing->rows.empty())
    headline.answers.push_back({"What does it cost?", clean_line(results.timing->sentence), "ctl"});
  headline.answers.push_back(sure_answer(results, *grid));
  if (Answer doubt = doubt_answer(results); !doubt.text.empty()) headline.answers.push_back(std::move(doubt));
  headline.answers.push_back(controls_answer(results, decimals));
  return headline;
}

Results with_telling_cells(const Results& results) {
  Results telling = results;
  if (!results.certificate) return telling;
  std::set<std::string> worst;
  for (const CertificateRow& row : results.certificate->rows) worst.insert(row.worst_cell);
  std::erase_if(telling.cells, [&worst](const CellResult& cell) {
    return is_as_expected(cell) && !worst.contains(cell.scenario);
  });
  return telling;
}

}  // namespace lockstep
