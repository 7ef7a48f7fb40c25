#include "reports/plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

}  // namespace lockstep
