#pragma once
// A drawing with two axes in pixels: frame, ticks and paths. The caller decides what stands in it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/markup.h"
#include "reports/plots/scale.h"

namespace lockstep {

struct Chart {
  double width = 580, height = 320;
  double left = 52, right = 16, top = 12, bottom = 44;  ///< around the plot
  Scale x, y;                                           ///< to pixels of the drawing; set by place()
  double floor() const { return height - bottom; }
  double edge() const { return width - right; }
};

/// Lets the axes run over these values.
void place(Chart& chart, double x_low, double x_high, double y_low, double y_high);

struct Tick {
  double at = 0;  ///< value on the axis
  std::string text;
};

/// Ticks with their numbers, as many digits as all of them need.
std::vector<Tick> numbered(const Ticks& ticks);

/// Powers of ten within [low, high], both above 0, of a logarithmic axis whose scale takes log10: at most 6.
std::vector<Tick> powers_of_ten(double log_low, double log_high);

/// <svg> with its title and description; the caller closes it.
void open_chart(Markup& out, const Chart& chart, std::string_view title, std::string_view description);

/// Grid lines with their numbers at the left.
void draw_y_axis(Markup& out, const Chart& chart, const std::vector<Tick>& ticks);

/// The floor with its numbers, and the axis's name below them.
void draw_x_axis(Markup& out, const Chart& chart, const std::vector<Tick>& ticks, std::string_view name);

/// A coordinate in tenths of a pixel.
std::string px(double value);

/// "M1 2 3 4": a line through points in pixels, kept near the drawing.
std::string path_through(const std::vector<std::pair<double, double>>& points);

void line(Markup& out, std::string_view css, double x1, double y1, double x2, double y2);
void text(Markup& out, std::string_view css, double x, double y, std::string_view words);

/// A mark in the shape of its series, so that colour alone tells nothing: circle, square, triangle, diamond
/// by `series` 0 to 3 and again; hollow where `hollow`.
void mark(Markup& out, int series, std::string_view css, double x, double y, bool hollow = false);

}  // namespace lockstep
