#include "reports/plots/row_plot.h"

#include <algorithm>

#include "reports/grid.h"

namespace lockstep {

std::vector<std::size_t> row_order(const Results& results) {
  std::vector<std::size_t> order;
  const auto kind_of = [&results](const CellResult& cell) {
    return cell.noise ? 3 : cell.power_control ? 2 : is_of_grown_batch(results, cell) ? 1 : 0;
  };
  for (std::size_t i = 0; i < results.cells.size(); ++i) {
    if (!results.cells[i].anchor) order.push_back(i);
  }
  // A column of the grid is one objective: read down, its rows show what the layout does.
  const std::optional<AnswerGrid> grid = grid_of(results);
  const auto column_of = [&](const CellResult& cell) {
    if (!grid) return std::size_t{0};
    for (const auto& row : grid->cells) {
      const auto found = std::find(row.begin(), row.end(), &cell);
      if (found != row.end()) return static_cast<std::size_t>(found - row.begin());
    }
    return grid->columns.size();
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const CellResult &x = results.cells[a], &y = results.cells[b];
    return std::pair(kind_of(x), column_of(x)) < std::pair(kind_of(y), column_of(y));
  });
  return order;
}

void row_label(Markup& out, const CellResult& cell, const std::string& anchor) {
  out.open("th", {{"scope", "row"}, {"class", "name"}});
  out.element("a", {{"href", "#" + anchor}}, name_words(cell.scenario));
  if (cell.power_control) out.text(" ").element("span", {{"class", "tag"}}, "power control");
  out.close();
}

void row_verdict(Markup& out, const CellResult& cell, VerdictKind kind) {
  const VerdictStyle& style = style_of(kind);
  out.open("td", {{"class", "v"}});
  if (cell.noise) {
    out.element("span", {{"class", "sub"}}, "A/A pair: shown, not judged").close();
    return;
  }
  out.element("b", {{"class", "t-" + row_css(cell, kind)}}, std::string(style.symbol) + " " + style.words);
  if (is_missed_control(cell)) {
    out.element("span", {{"class", "sub t-bad"}}, "✗ must be found to differ");
  } else if (!cell.as_expected) {
    out.element("span", {{"class", "sub t-bad"}},
                cell.expected.empty() ? "✗ it must not fail" : "✗ expected " + expected_words(cell));
  } else if (cell.power_control) {
    out.element("span", {{"class", "sub"}}, "✓ found, as required");
  } else {
    out.element("span", {{"class", "sub"}}, cell.expected.empty() ? "no expectation stated" : "✓ as expected");
  }
  out.close();
}

void open_row_drawing(Markup& out, std::string_view title, std::string_view description) {
  out.open("svg", {{"class", "row"}, {"role", "img"}});
  out.element("title", {}, title).element("desc", {}, description);
}

void row_mark(Markup& out, double x_percent, std::string_view shape, std::string_view css,
              std::string_view y) {
  out.open("svg", {{"x", percent(x_percent)}, {"y", std::string(y)}, {"class", "mark"}});
  const std::string name = "m " + std::string(css);
  if (shape == "diamond") {
    out.empty("path", {{"d", "M-5.8 0 0-5.8 5.8 0 0 5.8z"}, {"class", name}});
  } else if (shape == "left") {
    out.empty("path", {{"d", "M1 0 10-6 10 6z"}, {"class", name}});
  } else if (shape == "right") {
    out.empty("path", {{"d", "M-1 0-10-6-10 6z"}, {"class", name}});
  } else {
    out.empty("circle", {{"r", "4.3"}, {"class", name}});
  }
  out.close();
}

void axis_label(Markup& out, double x_percent, std::string_view text) {
  out.empty(
      "line",
      {{"x1", percent(x_percent)}, {"x2", percent(x_percent)}, {"y1", "0"}, {"y2", "5"}, {"class", "tk"}});
  out.element("text", {{"x", percent(x_percent)}, {"y", "18"}, {"class", "tick mid"}}, text);
}

std::string row_css(const CellResult& cell, VerdictKind kind) {
  if (cell.noise) return "aa";
  return cell.power_control && !is_missed_control(cell) ? "ctl" : style_of(kind).css;
}

}  // namespace lockstep
