#include "reports/plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/grid.h"

namespace lockstep {
namespace {

constexpr double kMostPower = 400;  ///< no double has a larger power of ten

}  // namespace

void place(Chart& chart, double x_low, double x_high, double y_low, double y_high) {
  const AxisRange x = drawable(x_low, x_high), y = drawable(y_low, y_high);
  chart.x = {x.low, x.high, chart.left, chart.edge()};
  chart.y = {y.low, y.high, chart.floor(), chart.top};
}

std::vector<Tick> numbered(const Ticks& ticks) {
  std::vector<Tick> out;
  for (const double value : ticks.values) {
    std::string text = tick_text(value, ticks);
    if (value == 0) text = "0";
    if (text.starts_with('-')) text = "−" + text.substr(1);
    out.push_back({value, std::move(text)});
  }
  return out;
}

std::vector<Tick> powers_of_ten(double log_low, double log_high) {
  std::vector<Tick> out;
  if (!std::isfinite(log_low) || !std::isfinite(log_high)) return out;
  log_low = std::clamp(log_low, -kMostPower, kMostPower),
  log_high = std::clamp(log_high, -kMostPower, kMostPower);
  const int first = static_cast<int>(std::ceil(log_low - 1e-9)),
            last = static_cast<int>(std::floor(log_high + 1e-9));
  const int stride = (last - first) / 6 + 1;
  for (int power = first; power <= last; power += stride) {
    out.push_back({static_cast<double>(power), power >= -3 && power <= 5
                                                   ? fmt::format("{:g}", std::pow(10.0, power))
                                                   : fmt::format("1e{}", power)});
  }
  return out;
}

void open_chart(Markup& out, const Chart& chart, std::string_view title, std::string_view description) {
  out.open("svg",
           {{"viewBox", fmt::format("0 0 {} {}", px(chart.width), px(chart.height))}, {"role", "img"}});
  out.element("title", {}, title).element("desc", {}, description);
}

void draw_y_axis(Markup& out, const Chart& chart, const std::vector<Tick>& ticks) {
  for (const Tick& tick : ticks) {
    const double y = chart.y(tick.at);
    line(out, "grid", chart.left, y, chart.edge(), y);
    text(out, "tick end", chart.left - 6, y + 4, tick.text);
  }
}

void draw_x_axis(Markup& out, const Chart& chart, const std::vector<Tick>& ticks, std::string_view name) {
  line(out, "tk", chart.left, chart.floor(), chart.edge(), chart.floor());
  for (const Tick& tick : ticks) {
    line(out, "tk", chart.x(tick.at), chart.floor(), chart.x(tick.at), chart.floor() + 4);
    text(out, "tick mid", chart.x(tick.at), chart.floor() + 17, tick.text);
  }
  if (!name.empty()) text(out, "tick mid", (chart.left + chart.edge()) / 2, chart.floor() + 35, name);
}

std::string px(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string path_through(const std::vector<std::pair<double, double>>& points) {
  std::string path;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    path += (path.empty() ? "M" : " ") + px(x) + " " + px(std::clamp(y, -2000.0, 4000.0));
  }
  return path;
}

void line(Markup& out, std::string_view css, double x1, double y1, double x2, double y2) {
  out.empty("line",
            {{"class", std::string(css)}, {"x1", px(x1)}, {"x2", px(x2)}, {"y1", px(y1)}, {"y2", px(y2)}});
}

void text(Markup& out, std::string_view css, double x, double y, std::string_view words) {
  out.element("text", {{"class", std::string(css)}, {"x", px(x)}, {"y", px(y)}}, words);
}

void mark(Markup& out, int series, std::string_view css, double x, double y, bool hollow) {
  const std::string name = (hollow ? "hollow " : "m ") + std::string(css);
  switch (series % 4) {
    case 0:
      out.empty("circle", {{"class", name}, {"cx", px(x)}, {"cy", px(y)}, {"r", "4.6"}});
      return;
    case 1:
      out.empty(
          "rect",
          {{"class", name}, {"x", px(x - 4.2)}, {"y", px(y - 4.2)}, {"width", "8.4"}, {"height", "8.4"}});
      return;
    case 2:
      out.empty("path", {{"class", name}, {"d", fmt::format("M{} {}l5.4 9.4h-10.8z", px(x), px(y - 6))}});
      return;
    default:
      out.empty("path",
                {{"class", name}, {"d", fmt::format("M{} {}l5.6 5.6-5.6 5.6-5.6-5.6z", px(x), px(y - 5.6))}});
  }
}

namespace {

constexpr double kLargestEnd = 8e307;       ///< twice that is still a number
constexpr double kLeastHeight = 1e-9;       ///< of an axis, against the larger of its ends
constexpr double kSmallestHeight = 1e-290;  ///< a power of ten below it has lost digits
constexpr double kMostTicks = 100;          ///< more than any axis is asked for

Ticks multiples(double low, double high, double step) {
  Ticks ticks;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  // Counted as a whole number: where steps are finer than the places of `first`, adding 1 to it changes
  // nothing.
  const auto count = static_cast<int>(std::clamp(last - first + 1, 0.0, kMostTicks));
  for (int i = 0; i < count; ++i) {
    const double multiple = first + i;
    ticks.values.push_back(multiple == 0 ? 0.0 : multiple * step);
  }
  while (ticks.decimals < 12) {
    const double shifted = step * std::pow(10.0, ticks.decimals);
    if (std::abs(shifted - std::round(shifted)) < 1e-6 * shifted) break;
    ++ticks.decimals;
  }
  const double largest = std::max(std::abs(low), std::abs(high));
  ticks.digits = std::clamp(static_cast<int>(std::ceil(std::log10(largest / step))) + 2, 6, 17);
  return ticks;
}

double nice_step(double low, double high, int most, double smallest) {
  const double raw = std::max((high - low) / std::max(1, most - 1), smallest);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    const double step = factor * power;
    if (step < raw * (1 - 1e-9)) continue;
    if (smallest >= 1 && step != std::floor(step)) continue;
    return step;
  }
  return 10 * power;
}

double least_height(double low, double high) {
  return std::max(kLeastHeight * std::max(std::abs(low), std::abs(high)), kSmallestHeight);
}

}  // namespace

AxisRange drawable(double low, double high) {
  if (std::isnan(low) || std::isnan(high)) return {};
  low = std::clamp(low, -kLargestEnd, kLargestEnd);
  high = std::clamp(high, -kLargestEnd, kLargestEnd);
  if (!(high > low)) high = low + 1;
  const double least = least_height(low, high);
  if (high - low >= least) return {low, high};
  const double middle = low + (high - low) / 2;
  // Twice what is needed, since sums round; the larger end may not leave the largest that there is.
  return {std::max(middle - least, -kLargestEnd), std::min(middle + least, kLargestEnd)};
}

Ticks nice_ticks(double low, double high, int most) {
  if (!(std::isfinite(low) && std::isfinite(high) && high > low)) return {};
  low = std::clamp(low, -kLargestEnd, kLargestEnd);
  high = std::clamp(high, -kLargestEnd, kLargestEnd);
  if (!(high - low >= 0.5 * least_height(low, high))) return {{low, high}, 12, 17};
  return multiples(low, high, nice_step(low, high, most, 1e-300));
}

Ticks step_ticks(double high, int most) {
  if (!(std::isfinite(high) && high > 0)) return {{0}, 0};
  return multiples(0, high, nice_step(0, high, most, 1));
}

std::string tick_text(double value, const Ticks& ticks) {
  return std::abs(value) >= 1e5 || ticks.decimals > 5 ? fmt::format("{:.{}g}", value, ticks.digits)
                                                      : fmt::format("{:.{}f}", value, ticks.decimals);
}

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
