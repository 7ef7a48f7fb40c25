#include "reports/plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "reports/text.h"
#include "reports/words.h"

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

namespace {

constexpr double kChartTickPx = 11.5;
constexpr std::size_t kSeriesColours = 6;
constexpr const char *kMiddle = "median", *kMost = "at most";  ///< what stands behind a row of dots

/// Names of series in the order in which they come: each has its colour and dashes in every panel.
std::vector<std::string> names_of(const SuiteChart& chart) {
  std::vector<std::string> names;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      if (std::ranges::find(names, series.name) == names.end()) names.push_back(series.name);
    }
  }
  return names;
}

std::string css_of(const ChartSeries& series, const std::vector<std::string>& names) {
  if (series.verdict == CaseVerdict::fault) return "bad";
  const auto place = static_cast<std::size_t>(std::ranges::find(names, series.name) - names.begin());
  return fmt::format("c{}", place % kSeriesColours);
}

void key(Markup& out, std::string_view css, std::string_view words) {
  out.open("span").open("svg", {{"class", "key"}, {"viewBox", "0 0 34 14"}, {"aria-hidden", "true"}});
  line(out, css, 1, 7, 33, 7);
  out.close().text(words).close();
}

void write_keys(Markup& out, const SuiteChart& chart, const std::vector<std::string>& names) {
  if (names.empty() && chart.marks.empty()) return;
  out.open("p", {{"class", "keys"}});
  for (const std::string& name : names) key(out, "line " + css_of({name, CaseVerdict::good, {}}, names), clean_line(name));
  // A panel has no room for the names of its axes.
  if (!chart.by_row && chart.panels.size() > 1)
    out.element("span", {}, "up: " + axis_words(chart.y) + ", to the right: " + axis_words(chart.x));
  for (const ChartMark& mark : chart.marks) key(out, "edge", clean_line(mark.name) + ": " + value_words(chart.x, mark.at));
  out.close();
}

/// "8 ranks: 35.2 us at 32 B, 4100 us at 8 MiB": the ends of each line.
std::string ends_words(const SuiteChart& chart, const ChartPanel& panel) {
  std::string text;
  for (const ChartSeries& series : panel.series) {
    if (series.points.empty()) continue;
    const auto at = [&](const ChartPoint& point) { return value_words(chart.y, point.y) + " at " + value_words(chart.x, point.x); };
    text += (text.empty() ? "" : "; ") + clean_line(series.name) + ": " + at(series.points.front());
    if (series.points.size() > 1) text += ", " + at(series.points.back());
  }
  return text + ".";
}

void draw_line(Markup& out, const SuiteChart& chart, const Chart& place, const ChartSeries& series, const std::string& css) {
  std::vector<std::pair<double, double>> points;
  for (const ChartPoint& point : series.points) {
    const double x = on_axis(chart.x, point.x), y = on_axis(chart.y, point.y);
    if (std::isfinite(x) && std::isfinite(y)) points.emplace_back(place.x(x), place.y(y));
  }
  if (points.size() > 1)
    out.open("path", {{"class", "line " + css}, {"d", path_through(points)}}).element("title", {}, clean_line(series.name)).close();
  for (const auto& [x, y] : points) out.empty("circle", {{"class", "m " + css}, {"cx", px(x)}, {"cy", px(y)}, {"r", "2.7"}});
}

std::string panel_drawing(const SuiteChart& chart, const ChartPanel& panel, const ChartFrame& frame,
                          const std::vector<std::string>& names) {
  const bool alone = chart.panels.size() == 1;
  Chart place = alone ? Chart{580, 320, 44, 20, 12, 46, {}, {}} : Chart{260, 168, 30, 14, 8, 26, {}, {}};
  const std::vector<Tick> xs = ticks_of(chart.x, frame.x, alone ? 6 : 4), ys = ticks_of(chart.y, frame.y, alone ? 6 : 4);
  for (const Tick& tick : ys) place.left = std::max(place.left, text_width_px(tick.text, kChartTickPx) + 10);
  lockstep::place(place, frame.x.low, frame.x.high, frame.y.low, frame.y.high);
  Markup out;
  open_chart(out, place, clean_line(panel.name.empty() ? chart.title : panel.name), ends_words(chart, panel));
  draw_y_axis(out, place, ys);
  draw_x_axis(out, place, xs, alone ? axis_words(chart.x) : "");
  for (const ChartMark& mark : chart.marks) {
    const double x = on_axis(chart.x, mark.at);
    if (std::isfinite(x)) line(out, "edge", place.x(x), place.top, place.x(x), place.floor());
  }
  for (const ChartSeries& series : panel.series) draw_line(out, chart, place, series, css_of(series, names));
  return out.take();
}

/// The panel's name, and which of its lines hold a fault: colour alone would not tell.
void write_caption(Markup& out, const ChartPanel& panel) {
  std::string wrong;
  for (const ChartSeries& series : panel.series) {
    if (series.verdict == CaseVerdict::fault) wrong += (wrong.empty() ? "" : ", ") + clean_line(series.name);
  }
  const std::string name = clean_line(panel.name);
  if (!wrong.empty())
    out.element("figcaption", {{"class", "t-bad"}}, "✗ " + name + (name.empty() ? "" : ": ") + wrong);
  else if (!name.empty())
    out.element("figcaption", {}, name);
}

std::string panels(const SuiteChart& chart, const ChartFrame& frame) {
  const std::vector<std::string> names = names_of(chart);
  Markup out;
  write_keys(out, chart, names);
  out.open("div", {{"class", chart.panels.size() == 1 ? "one" : "small"}});
  for (const ChartPanel& panel : chart.panels) {
    out.open("figure", {{"class", "panel"}});
    write_caption(out, panel);
    out.raw(panel_drawing(chart, panel, frame, names)).close();
  }
  return out.take();
}

/// From the axis to percent of a row's drawing.
Scale row_scale(const ChartFrame& frame) { return {frame.x.low, frame.x.high, 1, 99}; }

void write_row(Markup& out, const SuiteChart& chart, const ChartSeries& series, const Scale& scale) {
  const bool fault = series.verdict == CaseVerdict::fault;
  const std::string css = fault ? "bad" : series.verdict == CaseVerdict::undecided ? "und" : "c0";
  std::vector<double> values;
  for (const ChartPoint& point : series.points) values.push_back(point.x);
  std::ranges::sort(values);
  const double middle = median_of_sorted(values);
  const std::string words = values.empty() ? "no time" : fmt::format("median {}, at most {}", value_words(chart.x, middle), value_words(chart.x, values.back()));
  out.open("tr").open("th", {{"scope", "row"}, {"class", fault ? "name t-bad" : "name"}}).text((fault ? "✗ " : "") + clean_line(series.name)).close();
  out.open("td", {{"class", "plot"}});
  open_row_drawing(out, clean_line(series.name) + ": " + words, counted(static_cast<int64_t>(values.size()), "value"));
  out.empty("line", {{"class", "grid"}, {"x1", "0"}, {"x2", "100%"}, {"y1", "50%"}, {"y2", "50%"}});
  for (const ChartMark& mark : chart.marks) {
    const std::string x = percent(scale(on_axis(chart.x, mark.at)));
    out.empty("line", {{"class", "edge"}, {"x1", x}, {"x2", x}, {"y1", "0"}, {"y2", "100%"}});
  }
  for (const double value : values) {
    const double at = on_axis(chart.x, value);
    if (std::isfinite(at))
      out.empty("circle", {{"class", "seed " + css}, {"cx", percent(scale(at))}, {"cy", "50%"}, {"r", "3"}});
    else
      row_mark(out, 0, "left", css, "50%");
  }
  out.close().close();
  for (const auto& [label, value] : {std::pair(kMiddle, middle), std::pair(kMost, values.empty() ? 0 : values.back())})
    out.element("td", {{"class", "n"}, {"data-label", label}}, values.empty() ? "—" : value_words(chart.x, value));
  out.close();
}

std::string rows_of_dots(const SuiteChart& chart, const ChartFrame& frame) {
  const Scale scale = row_scale(frame);
  Markup out;
  write_keys(out, chart, {});
  out.open("table", {{"class", "rows dots"}}).open("thead").open("tr");
  out.element("th", {{"scope", "col"}}, "").element("th", {{"scope", "col"}}, axis_words(chart.x));
  for (const char* head : {kMiddle, kMost}) out.element("th", {{"scope", "col"}, {"class", "n"}}, head);
  out.close().close().open("tbody");
  for (const ChartPanel& panel : chart.panels) {
    if (!panel.name.empty()) out.open("tr", {{"class", "group"}}).element("td", {{"colspan", "4"}}, clean_line(panel.name)).close();
    for (const ChartSeries& series : panel.series) write_row(out, chart, series, scale);
  }
  out.close().open("tfoot").open("tr").element("td", {{"class", "gap"}}, "").open("td", {{"class", "plot axis"}});
  open_row_drawing(out, "Axis", axis_words(chart.x));
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  for (const Tick& tick : ticks_of(chart.x, frame.x, 6)) axis_label(out, scale(tick.at), tick.text);
  out.close().close().element("td", {{"class", "gap"}, {"colspan", "2"}}, "");
  return out.take();
}

}  // namespace

std::string chart_drawing(const SuiteChart& chart) {
  const ChartFrame frame = frame_of(chart);
  if (frame.empty) return "";
  return chart.by_row ? rows_of_dots(chart, frame) : panels(chart, frame);
}

namespace {

constexpr double kRoom = 0.04;       ///< beyond the outermost points, of the axis
constexpr double kLeastDecades = 1;   ///< of a logarithmic axis

/// The range of points, grown value by value.
struct Reach {
  double low = kInfinity, high = -kInfinity;
  void take(double at) {
    if (!std::isfinite(at)) return;
    low = std::min(low, at);
    high = std::max(high, at);
  }
  bool empty() const { return low > high; }
};

AxisRange with_room(const ChartAxis& axis, Reach reach) {
  if (reach.empty()) return {0, 1};
  if (!axis.log) reach.take(0);
  if (const double lacking = kLeastDecades - (reach.high - reach.low); axis.log && lacking > 0) {
    reach.low -= lacking / 2;
    reach.high += lacking / 2;
  }
  const double room = kRoom * (reach.high - reach.low);
  return drawable(!axis.log && reach.low == 0 ? 0 : reach.low - room, reach.high + room);
}

std::string axis_bytes_words(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) bytes /= 1024, ++unit;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

std::vector<Tick> powers_of_two(AxisRange range, int most) {
  const double per_power = std::log10(2.0);
  const int first = static_cast<int>(std::ceil(range.low / per_power)), last = static_cast<int>(std::floor(range.high / per_power));
  int stride = 1;
  for (const int wider : {2, 5, 10, 20, 50}) {
    if ((last - first) / stride > most) stride = wider;
  }
  std::vector<Tick> ticks;
  for (int power = first; power <= last; ++power) {
    if (power % stride == 0) ticks.push_back({power * per_power, axis_bytes_words(std::exp2(power))});
  }
  return ticks;
}

/// 1, 2 and 5 times the powers of ten, where the powers alone are too few.
std::vector<Tick> ones_twos_and_fives(AxisRange range) {
  std::vector<Tick> ticks;
  for (int power = static_cast<int>(std::floor(range.low)); power <= static_cast<int>(std::floor(range.high)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      if (at >= range.low && at <= range.high) ticks.push_back({at, fmt::format("{:g}", factor * std::pow(10.0, power))});
    }
  }
  return ticks;
}

}  // namespace

double on_axis(const ChartAxis& axis, double value) {
  if (!axis.log) return value;
  return value > 0 ? std::log10(value) : -kInfinity;
}

ChartFrame frame_of(const SuiteChart& chart) {
  Reach x, y;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      for (const ChartPoint& point : series.points) {
        x.take(on_axis(chart.x, point.x));
        y.take(on_axis(chart.y, point.y));
      }
    }
  }
  const bool empty = x.empty() || (!chart.by_row && y.empty());
  for (const ChartMark& mark : chart.marks) x.take(on_axis(chart.x, mark.at));
  return {with_room(chart.x, x), with_room(chart.y, y), empty};
}

std::vector<Tick> ticks_of(const ChartAxis& axis, AxisRange range, int most) {
  if (!axis.log) return numbered(nice_ticks(range.low, range.high, most));
  if (axis.unit == "B") return powers_of_two(range, most);
  std::vector<Tick> ticks = powers_of_ten(range.low, range.high);
  return ticks.size() >= 2 ? ticks : ones_twos_and_fives(range);
}

std::string axis_words(const ChartAxis& axis) { return name_with_unit(axis.name, axis.unit); }

std::string value_words(const ChartAxis& axis, double value) {
  if (axis.unit == "B") return axis_bytes_words(value);
  // Three digits say it; of large numbers all before the point.
  const std::string number = std::abs(value) >= 1000 && std::abs(value) < 1e7 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  return number + (axis.unit.empty() ? "" : " " + clean_line(axis.unit));
}

}  // namespace lockstep
