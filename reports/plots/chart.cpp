#include "reports/plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

constexpr double kMostPower = 400;  ///< no double has a larger power of ten

}  // namespace

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

std::vector<Tick> step_axis(double last, int most) {
  std::vector<Tick> ticks;
  for (const double step : step_ticks(last, most).values) ticks.push_back({step, fmt::format("{:.0f}", step)});
  return ticks;
}

namespace {

struct Block {
  double centre, height;
  std::size_t count;
};

}  // namespace

std::vector<double> push_apart(const std::vector<double>& wanted, const std::vector<double>& heights,
                               double top, double bottom) {
  // Neighbours that would overlap become one block around the mean of what they want; blocks merge until none
  // overlap.
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Block block{wanted[i], heights[i], 1};
    const auto settle = [&](Block& b) {
      b.centre = std::min(std::max(b.centre, top + b.height / 2),
                          std::max(bottom - b.height / 2, top + b.height / 2));
    };
    settle(block);
    while (!blocks.empty() &&
           blocks.back().centre + blocks.back().height / 2 > block.centre - block.height / 2) {
      const Block& above = blocks.back();
      const double count = static_cast<double>(above.count + block.count);
      block.centre = (above.centre * static_cast<double>(above.count) +
                      block.centre * static_cast<double>(block.count)) /
                     count;
      block.height += above.height;
      block.count += above.count;
      blocks.pop_back();
      settle(block);
    }
    blocks.push_back(block);
  }
  std::vector<double> centres;
  for (const Block& block : blocks) {
    double at = block.centre - block.height / 2;
    for (std::size_t i = 0; i < block.count; ++i) {
      const double height = heights[centres.size()];
      centres.push_back(at + height / 2);
      at += height;
    }
  }
  return centres;
}

std::vector<PlotPoint> thin(const std::vector<PlotPoint>& points, int columns) {
  const std::size_t room = static_cast<std::size_t>(std::max(columns, 2));
  if (points.size() <= 2 * room) return points;
  std::vector<PlotPoint> kept;
  for (std::size_t column = 0; column < room; ++column) {
    const std::size_t begin = column * points.size() / room, end = (column + 1) * points.size() / room;
    std::size_t low = begin, high = begin;
    double band_low = points[begin].low, band_high = points[begin].high;
    for (std::size_t i = begin; i < end; ++i) {
      if (points[i].y < points[low].y) low = i;
      if (points[i].y > points[high].y) high = i;
      band_low = std::min(band_low, points[i].low);
      band_high = std::max(band_high, points[i].high);
    }
    std::vector<std::size_t> chosen{low, high};
    if (column == 0) chosen.push_back(0);
    if (column + 1 == room) chosen.push_back(points.size() - 1);
    std::ranges::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t i : chosen)
      kept.push_back({points[i].x, points[i].y, band_low, band_high, points[i].hollow});
  }
  return kept;
}

namespace {

constexpr double kLabelPx = 12, kTickPx = 11.5, kLinePx = 14, kLabelRoom = 45, kWidestLabel = 135;
constexpr int kColumns = 180, kSmallColumns = 60, kManyColumns = 20;

/// A coordinate in tenths of a pixel.
std::string px(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

void line(Markup& out, std::string_view css, double x1, double y1, double x2, double y2) {
  out.empty("line",
            {{"class", std::string(css)}, {"x1", px(x1)}, {"x2", px(x2)}, {"y1", px(y1)}, {"y2", px(y2)}});
}

void text(Markup& out, std::string_view css, double x, double y, std::string_view words) {
  out.element("text", {{"class", std::string(css)}, {"x", px(x)}, {"y", px(y)}}, words);
}

/// The plot's frame in pixels of the drawing.
struct Frame {
  double width = 580, height = 320, left = 44, right = 20, top = 10, bottom = 46;
  Scale x, y;
  double floor() const { return height - bottom; }
  double edge() const { return width - right; }
  /// Far off the frame nothing is seen, and browsers draw huge coordinates badly.
  std::string point(double at_x, double at_y) const { return px(x(at_x)) + " " + px(std::clamp(y(at_y), -2000.0, 4000.0)); }
};

/// A name in at most two lines of a label.
std::vector<std::string> lines_of_label(std::string_view name) {
  std::vector<std::string> lines{""};
  std::istringstream words(name_words(name));
  for (std::string word; words >> word;) {
    const std::string longer = lines.back().empty() ? word : lines.back() + " " + word;
    if (text_width_px(longer, kLabelPx) <= kWidestLabel || lines.back().empty())
      lines.back() = longer;
    else
      lines.push_back(word);
  }
  if (lines.size() > 2) lines[1] += " …", lines.resize(2);
  for (std::string& each : lines) {
    for (int columns = display_width(each); columns > 1 && text_width_px(each, kLabelPx) > kWidestLabel;) each = shorten(each, --columns);
  }
  return lines;
}

/// And its note below.
std::vector<std::string> label_lines(const PlotLine& line) {
  std::vector<std::string> lines = lines_of_label(line.label);
  if (!line.note.empty()) lines.push_back(line.note);
  return lines;
}

Frame frame_of(const Plot& plot) {
  Frame frame = plot.small ? Frame{260, 168, 30, 14, 8, 26, {}, {}} : Frame{};
  if (plot.flagged) frame.bottom += 9;
  if (plot.small && !plot.x_name.empty()) frame.bottom += 15, frame.height += 15;
  if (!plot.y_name.empty()) frame.top += 13, frame.height += 13;
  for (const Tick& tick : plot.y_ticks) frame.left = std::max(frame.left, text_width_px(tick.text, kTickPx) + 10);
  for (const PlotLine& each : plot.lines) {
    if (each.label.empty()) continue;
    for (const std::string& words : label_lines(each)) frame.right = std::max(frame.right, text_width_px(words, kLabelPx) + kLabelRoom + 7);
  }
  const AxisRange x = drawable(plot.x.low, plot.x.high), y = drawable(plot.y.low, plot.y.high);
  frame.x = {x.low, x.high, frame.left, frame.edge()};
  frame.y = {y.low, y.high, frame.floor(), frame.top};
  return frame;
}

std::string axis_name(const std::string& name, bool log) { return name + (log ? ", log scale" : ""); }

void draw_axes(Markup& out, const Plot& plot, const Frame& frame) {
  for (const Tick& tick : plot.y_ticks) {
    line(out, "grid", frame.left, frame.y(tick.at), frame.edge(), frame.y(tick.at));
    text(out, "tick end", frame.left - 6, frame.y(tick.at) + 4, tick.text);
  }
  line(out, "tk", frame.left, frame.floor(), frame.edge(), frame.floor());
  const double below = frame.floor() + (plot.flagged ? 26 : 17);
  for (const Tick& tick : plot.x_ticks) {
    if (!plot.flagged) line(out, "tk", frame.x(tick.at), frame.floor(), frame.x(tick.at), frame.floor() + 4);
    text(out, "tick mid", frame.x(tick.at), below, tick.text);
  }
  if (!plot.x_name.empty())
    text(out, "tick mid", (frame.left + frame.edge()) / 2, below + (plot.small ? 15 : 18),
         axis_name(plot.x_name, plot.x_log));
  if (!plot.y_name.empty()) text(out, "tick", 0, 10, axis_name(plot.y_name, plot.y_log));
}

/// Medians of as many points on each side, of fewer towards both ends.
std::vector<PlotPoint> smoothed(const std::vector<PlotPoint>& points, std::size_t window) {
  std::vector<PlotPoint> out = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t side = std::min({window / 2, i, points.size() - 1 - i});
    std::vector<double> values;
    for (std::size_t k = i - side; k <= i + side; ++k) values.push_back(points[k].y);
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(side));
    out[i].y = values[side];
  }
  return out;
}

std::string path_of(const std::vector<PlotPoint>& points, const Frame& frame) {
  std::string path;
  for (const PlotPoint& p : points)
    if (std::isfinite(p.y)) path += (path.empty() ? "M" : " ") + frame.point(p.x, p.y);
  return path;
}

/// The line with what its points are in numbers: x and y of each, for who points at it.
void draw_middle(Markup& out, const PlotLine& curve, const Plot& plot, const Frame& frame, int columns) {
  const std::string css = (curve.dashed ? "line dashed " : "line ") + curve.css;
  const std::vector<PlotPoint> raw = thin(curve.points, columns);
  if (curve.window > 0) out.empty("path", {{"class", "raw " + curve.css}, {"d", path_of(raw, frame)}});
  const std::vector<PlotPoint> points = curve.window > 0 ? thin(smoothed(curve.points, curve.window), columns) : raw;
  const auto value = [](double at, bool log) { return log ? std::pow(10.0, at) : at; };
  std::string numbers;
  for (const PlotPoint& p : points) {
    if (!std::isfinite(p.y)) continue;
    numbers += fmt::format("{:.7g} {:.3g} ", value(p.x, plot.x_log), value(p.y, plot.y_log));
  }
  if (numbers.empty()) return;
  numbers.pop_back();
  out.open("path", {{"class", css}, {"d", path_of(points, frame)}, {"data-v", numbers}});
  out.element("title", {}, name_words(curve.name)).close();
}

/// The band as a closed outline, the line, its marks.
void draw_line(Markup& out, const PlotLine& curve, const Plot& plot, const Frame& frame, int columns) {
  const std::vector<PlotPoint> points = thin(curve.points, columns);
  std::string band, back;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const PlotPoint& p = points[i];
    // Thinned points of one column share their band: once is enough, but for the last, which reaches the edge.
    const bool repeated = i > 0 && i + 1 < points.size() && p.low == points[i - 1].low && p.high == points[i - 1].high;
    if (repeated || !(p.high > p.low)) continue;
    if (curve.points.size() == 1) line(out, "ci " + curve.css, frame.x(p.x), frame.y(p.low), frame.x(p.x), frame.y(p.high));
    band += (band.empty() ? "M" : " ") + frame.point(p.x, p.high);
    back = " " + frame.point(p.x, p.low) + back;
  }
  if (curve.points.size() > 1) {
    if (!band.empty()) out.empty("path", {{"class", "band " + curve.css}, {"d", band + back + "z"}});
    draw_middle(out, curve, plot, frame, columns);
  }
  // An arrow where it leaves the frame.
  const auto outside = [&frame](const PlotPoint& p) {
    return std::isfinite(p.y) && (p.y > frame.y.high || p.y < frame.y.low);
  };
  if (const auto leaves = std::ranges::find_if(points, outside); leaves != points.end()) {
    const bool up = leaves->y > frame.y.high;
    out.empty("path", {{"class", "m " + curve.css},
                       {"d", fmt::format("M{} {}l5 {}h-10z", px(frame.x(leaves->x)), px(up ? frame.top : frame.floor()),
                                         up ? 9 : -9)}});
  }
  for (const PlotPoint& p : curve.points) {
    if ((curve.dotted || curve.points.size() == 1) && std::isfinite(p.y))
      out.empty("circle", {{"class", (p.hollow ? "hollow " : "m ") + curve.css}, {"cx", px(frame.x(p.x))}, {"cy", px(frame.y(p.y))}, {"r", "3"}});
  }
}

void draw_labels(Markup& out, const Plot& plot, const Frame& frame) {
  struct Label {
    const PlotLine* line;
    PlotPoint end;
    double y;
  };
  std::vector<Label> labels;
  for (const PlotLine& each : plot.lines) {
    if (each.label.empty() || each.points.empty()) continue;
    const PlotPoint& end = each.points.back();
    labels.push_back({&each, end, std::clamp(frame.y(std::isfinite(end.y) ? end.y : plot.y.low), frame.top, frame.floor())});
  }
  std::ranges::stable_sort(labels, {}, &Label::y);
  std::vector<double> wanted, heights;
  for (const Label& label : labels) {
    wanted.push_back(label.y);
    heights.push_back(kLinePx * static_cast<double>(label_lines(*label.line).size()) + 3);
  }
  const std::vector<double> centres = push_apart(wanted, heights, 0, frame.height - 18);
  const double column = frame.edge();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const PlotLine& curve = *labels[i].line;
    const double from = frame.x(labels[i].end.x);
    // A leader across the drawing would read as a curve: its end is crossed out instead.
    const bool ended = !curve.note.empty();
    out.open("g", {{"data-key", curve.name}});
    const std::string cross = fmt::format("M{} {}l8 8m0-8l-8 8", px(from - 4), px(wanted[i] - 4)),
                      leader = fmt::format("M{} {}L{} {}", px(from + 2), px(wanted[i]), px(column + 14), px(centres[i]));
    out.empty("path", {{"class", ended ? "ended " + curve.css : "leader"}, {"d", ended ? cross : leader}, {"fill", "none"}});
    out.empty("path", {{"class", (curve.dashed ? "line dashed " : "line ") + curve.css}, {"d", fmt::format("M{} {}h24", px(column + 16), px(centres[i]))}});
    const std::vector<std::string> lines = label_lines(curve);
    double y = centres[i] - kLinePx * (static_cast<double>(lines.size()) - 1) / 2 + 4;
    for (const std::string& words : lines) {
      text(out, ended && &words == &lines.back() ? "tick" : "lab", column + kLabelRoom, y, words);
      y += kLinePx;
    }
    out.close();
  }
}

void draw_flags(Markup& out, const Plot& plot, const Frame& frame) {
  double taken = -1e9;
  for (const PlotFlag& flag : plot.flags) {
    const double at = frame.x(std::min(flag.at, frame.x.high));
    out.open("g", {{"class", "flag"}}).element("title", {}, flag.title);
    out.empty("path", {{"class", "pole"}, {"d", fmt::format("M{} {}v9", px(at), px(frame.floor()))}});
    double bead = std::max(at + 5, taken);
    for (const std::string& css : flag.beads) {
      out.empty("circle", {{"class", css}, {"cx", px(bead)}, {"cy", px(frame.floor() + 7)}, {"r", "3.4"}});
      bead += 9;
    }
    taken = bead;
    out.close();
  }
}

}  // namespace

void key(Markup& out, std::string_view css, std::string_view words, bool series) {
  out.open("span", series ? Attributes{{"data-key", std::string(words)}} : Attributes{});
  out.open("svg", {{"class", "key"}, {"viewBox", "0 0 34 14"}, {"aria-hidden", "true"}});
  line(out, css, 1, 7, 33, 7);
  out.close().text(words).close();
}

std::vector<std::string> told_apart(std::vector<std::string> names) {
  names = without_shared_words(names);
  std::map<std::vector<std::string>, int> seen;
  for (std::string& name : names) {
    if (name.empty()) continue;
    if (const int copy = ++seen[lines_of_label(name)]; copy > 1) name = fmt::format("{} {}", copy, name);
  }
  return names;
}

std::string plot_drawing(const Plot& given) {
  Plot plot = given;
  std::vector<std::string> labels;
  for (const PlotLine& each : plot.lines) labels.push_back(each.label);
  labels = told_apart(std::move(labels));
  for (std::size_t i = 0; i < labels.size(); ++i) plot.lines[i].label = labels[i];
  const Frame frame = frame_of(plot);
  Markup out;
  const std::string box = fmt::format("0 0 {} {}", px(frame.width), px(frame.height));
  out.open("svg", {{"viewBox", box}, {"role", "img"}, {"data-x", plot.x_name}});
  out.element("title", {}, plot.title).element("desc", {}, plot.description);
  for (const PlotArea& area : plot.areas) {
    const double left = frame.x(std::max(area.x_low, frame.x.low)), right = frame.x(std::min(area.x_high, frame.x.high)),
                 top = frame.y(std::min(area.y_high, frame.y.high)), bottom = frame.y(std::max(area.y_low, frame.y.low));
    out.empty("rect", {{"class", area.css}, {"x", px(left)}, {"width", px(right - left)}, {"y", px(top)}, {"height", px(bottom - top)}});
  }
  draw_axes(out, plot, frame);
  for (const PlotRule& rule : plot.rules) {
    const double at = rule.upright ? frame.x(rule.at) : frame.y(rule.at);
    if (!std::isfinite(at)) continue;
    if (rule.upright) {
      line(out, rule.css, at, frame.top, at, frame.floor());
      if (!rule.words.empty()) text(out, "tick", at + 5, frame.floor() - 6, rule.words);
    } else {
      line(out, rule.css, frame.left, at, frame.edge(), at);
      if (!rule.words.empty()) text(out, "tick end", frame.edge() - 4, at + 14, rule.words);
    }
  }
  // A drawing of its own cuts what leaves the frame.
  const double width = frame.edge() - frame.left, height = frame.floor() - frame.top;
  out.open("svg", {{"x", px(frame.left)}, {"y", px(frame.top)}, {"width", px(width)}, {"height", px(height)},
                   {"viewBox", fmt::format("{} {} {} {}", px(frame.left), px(frame.top), px(width), px(height))}});
  const int columns = !plot.small ? kColumns : plot.many ? kManyColumns : kSmallColumns;
  for (auto curve = plot.lines.rbegin(); curve != plot.lines.rend(); ++curve) {
    draw_line(out.open("g", {{"data-s", curve->name}}), *curve, plot, frame, columns);
    out.close();
  }
  out.close();
  draw_labels(out, plot, frame);
  draw_flags(out, plot, frame);
  return out.take();
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

void Reach::take(double at) {
  if (!std::isfinite(at)) return;
  low = std::min(low, at);
  high = std::max(high, at);
}

AxisRange Reach::decades(AxisRange otherwise) const {
  if (empty()) return otherwise;
  return {std::floor(low), std::max(std::ceil(high), std::floor(low) + 1)};
}

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
      const auto found = std::ranges::find(row, &cell);
      if (found != row.end()) return static_cast<std::size_t>(found - row.begin());
    }
    return grid->columns.size();
  };
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const CellResult &x = results.cells[a], &y = results.cells[b];
    return std::pair(kind_of(x), column_of(x)) < std::pair(kind_of(y), column_of(y));
  });
  return order;
}

Strip::Strip(const Scale& axis, std::string_view title, std::string_view description, double middle, const char* css)
    : axis_(axis), y_(percent(middle)) {
  if (title.empty()) {
    out_.open("svg", {{"class", css}, {"aria-hidden", "true"}});
    return;
  }
  out_.open("svg", {{"class", css}, {"role", "img"}});
  out_.element("title", {}, title).element("desc", {}, description);
}

Strip& Strip::area(double from, double to) {
  const double low = from < axis_.low ? 0 : axis_(from), high = to > axis_.high ? 100 : axis_(to);
  out_.empty("rect", {{"x", percent(low)}, {"width", percent(high - low)}, {"y", "0"}, {"height", "100%"}, {"class", "margin"}});
  return *this;
}

Strip& Strip::rule(double at, std::string_view css) {
  const std::string x = percent(axis_(at));
  out_.empty("line", {{"x1", x}, {"x2", x}, {"y1", "0"}, {"y2", "100%"}, {"class", std::string(css)}});
  return *this;
}

Strip& Strip::span(double from, double to, const std::string& css, bool capped) {
  if (std::isnan(from) || std::isnan(to) || to < axis_.low || from > axis_.high) return *this;
  out_.empty("line", {{"x1", percent(axis_(std::max(from, axis_.low)))}, {"x2", percent(axis_(std::min(to, axis_.high)))}, {"y1", y_}, {"y2", y_}, {"class", css}});
  for (const double end : {from, to}) {
    if (!capped || end < axis_.low || end > axis_.high) continue;
    out_.open("svg", {{"x", percent(axis_(end))}, {"y", y_}, {"class", "mark"}});
    out_.empty("path", {{"d", "M0-4.5v9"}, {"class", "cap " + css.substr(css.find(' ') + 1)}}).close();
  }
  return *this;
}

Strip& Strip::value(double at, const std::string& css, double y) {
  if (at >= axis_.low && at <= axis_.high)
    out_.empty("circle", {{"cx", percent(axis_(at))}, {"cy", percent(y)}, {"r", "2.8"}, {"class", css}});
  return *this;
}

Strip& Strip::mark(double at, std::string_view shape, const std::string& css) {
  if (std::isnan(at)) return *this;
  const bool left = at < axis_.low, right = at > axis_.high;
  out_.open("svg", {{"x", left ? "0%" : right ? "100%" : percent(axis_(at))}, {"y", y_}, {"class", "mark"}});
  if (left || right)
    out_.empty("path", {{"d", left ? "M1 0 10-6 10 6z" : "M-1 0-10-6-10 6z"}, {"class", "m " + css}});
  else if (shape == "diamond")
    out_.empty("path", {{"d", "M-5.8 0 0-5.8 5.8 0 0 5.8z"}, {"class", "m " + css}});
  else
    out_.empty("circle", {{"r", "4.3"}, {"class", (shape == "ring" ? "hollow " : "m ") + css}});
  out_.close();
  return *this;
}

std::string Strip::take(std::string_view nothing) {
  if (!nothing.empty()) out_.close().element("span", {{"class", "nothing"}}, nothing);
  return out_.take();
}

std::string bar_drawing(const std::vector<std::pair<double, std::string>>& parts, const char* css) {
  double at = 0;
  Markup out;
  out.open("svg", {{"class", css}, {"aria-hidden", "true"}});
  out.empty("rect", {{"width", "100%"}, {"height", "100%"}, {"class", "bar-of"}});
  for (const auto& [share, colour] : parts) {
    if (!(share > 0)) continue;
    const double width = 100 * std::min(share, 1.0);
    out.empty("rect", {{"x", percent(at)}, {"width", percent(width)}, {"height", "100%"}, {"class", "part " + colour}});
    at += width;
  }
  return out.take();
}

std::string axis_drawing(const Scale& axis, const std::vector<Tick>& ticks, std::string_view name, std::string_view left, std::string_view right) {
  Markup out;
  out.open("svg", {{"class", "row"}, {"role", "img"}}).element("title", {}, "Axis").element("desc", {}, name);
  out.empty("line", {{"x1", "0"}, {"x2", "100%"}, {"y1", "0.5"}, {"y2", "0.5"}, {"class", "tk"}});
  for (const Tick& tick : ticks) {
    const std::string x = percent(axis(tick.at));
    out.empty("line", {{"x1", x}, {"x2", x}, {"y1", "0"}, {"y2", "5"}, {"class", "tk"}});
    out.element("text", {{"x", x}, {"y", "18"}, {"class", "tick mid"}}, tick.text);
  }
  out.close();
  if (!left.empty() || !right.empty())
    out.open("div", {{"class", "ends"}}).element("span", {}, left).element("span", {}, right).close();
  return out.take();
}

std::string row_css(const CellResult& cell, VerdictKind kind) {
  if (cell.noise) return "aa";
  return cell.power_control && !is_missed_control(cell) ? "ctl" : style_of(kind).css;
}

namespace {

constexpr double kRoom = 0.04;       ///< beyond the outermost points, of the axis
constexpr double kLeastDecades = 1;   ///< of a logarithmic axis

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

std::vector<Tick> powers_of_two(AxisRange range, int most) {
  const double per_power = std::log10(2.0);
  const int first = static_cast<int>(std::ceil(range.low / per_power)), last = static_cast<int>(std::floor(range.high / per_power));
  int stride = 1;
  for (const int wider : {2, 5, 10, 20, 50}) {
    if ((last - first) / stride > most) stride = wider;
  }
  std::vector<Tick> ticks;
  for (int power = first; power <= last; ++power) {
    if (power % stride == 0) ticks.push_back({power * per_power, bytes_words(std::exp2(power))});
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

std::string bytes_words(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (!std::isfinite(bytes)) return "—";
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) bytes /= 1024, ++unit;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

std::string axis_words(const ChartAxis& axis) { return name_with_unit(axis.name, axis.unit); }

std::string value_words(const ChartAxis& axis, double value) {
  if (axis.unit == "B") return bytes_words(value);
  // Three digits say it; of large numbers all before the point.
  const std::string number = std::abs(value) >= 1000 && std::abs(value) < 1e7 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
  return number + (axis.unit.empty() ? "" : " " + clean_line(axis.unit));
}

}  // namespace lockstep
