#include "reports/text_table.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "reports/text.h"

namespace lockstep {
namespace {

using Cells = std::vector<std::string>;
constexpr int kGap = 2, kLeastText = 14, kLeastName = 20;

int widest(const std::vector<Cells>& rows, std::size_t column) {
  int width = 0;
  for (const Cells& row : rows) width = std::max(width, display_width(row[column]));
  return width;
}

int width_of(const std::vector<int>& widths) {
  int all = -kGap;
  for (const int width : widths) all += width + kGap;
  return all;
}

/// As wide as what stands below the head and the head's longest word.
int width_with_broken_head(const std::vector<Cells>& rows, const std::string& head, std::size_t column) {
  int width = widest(rows, column);
  std::istringstream words(head);
  for (std::string word; words >> word;) width = std::max(width, display_width(word));
  return width;
}

/// Takes from the widest texts what is too much for a line, as long as they stay texts.
std::vector<int> squeezed(const std::vector<Column>& heads, std::vector<int> widths, int width) {
  while (width_of(widths) > width) {
    int* widest = nullptr;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const int least = i == 0 ? kLeastName : kLeastText;
      if (!heads[i].numbers && widths[i] > least && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) return widths;
    --*widest;
  }
  return widths;
}

/// The columns of each block; the first column stands in all of them.
std::vector<std::vector<std::size_t>> blocks_of(std::vector<int>& widths, int width) {
  if (widths.empty()) return {};
  if (width_of(widths) > width) widths[0] = std::min(widths[0], std::max(kLeastText, width / 3));
  std::vector<std::vector<std::size_t>> blocks{{0}};
  int used = widths[0];
  for (std::size_t i = 1; i < widths.size(); ++i) {
    widths[i] = std::min(widths[i], std::max(1, width - widths[0] - kGap));
    if (used + kGap + widths[i] > width && blocks.back().size() > 1) {
      blocks.push_back({0});
      used = widths[0];
    }
    blocks.back().push_back(i);
    used += kGap + widths[i];
  }
  return blocks;
}

/// Heads in as many lines as the columns' widths need; none where all are empty.
std::vector<Cells> broken_heads(const std::vector<Column>& heads, const std::vector<std::size_t>& block,
                                const std::vector<int>& widths) {
  std::vector<Cells> lines;
  for (const std::size_t i : block) {
    std::istringstream text(wrapped(heads[i].head, std::max(1, widths[i])));
    std::string line;
    for (std::size_t k = 0; std::getline(text, line); ++k) {
      if (k == lines.size()) lines.emplace_back(heads.size());
      lines[k][i] = line;
    }
  }
  return lines;
}

/// A name in as many lines as its column needs; what goes on stands two columns in.
Cells lines_of_name(const std::string& name, int width) {
  if (display_width(name) <= width) return {name};
  Cells lines;
  std::istringstream text(wrapped(name, width - kGap));
  for (std::string line; std::getline(text, line);) lines.push_back((lines.empty() ? "" : std::string(kGap, ' ')) + line);
  return lines;
}

}  // namespace

int table_width(int width) { return width > 0 ? std::max(width, kNarrowestWidth) : 80; }

std::vector<TableLine> table_lines(const std::vector<Column>& heads, const std::vector<Cells>& rows, std::string_view margin,
                                   int width) {
  const int room = std::max(1, width - display_width(margin));
  std::vector<int> widths;
  for (std::size_t i = 0; i < heads.size(); ++i) widths.push_back(std::max(widest(rows, i), display_width(heads[i].head)));
  for (std::size_t i = 0; i < widths.size() && width_of(widths) > room; ++i)
    widths[i] = width_with_broken_head(rows, heads[i].head, i);
  // Where not even that is enough, texts have the room of lines of their own.
  if (std::vector<int> tight = squeezed(heads, widths, room); width_of(tight) <= room) widths = std::move(tight);
  std::vector<TableLine> lines;
  for (const std::vector<std::size_t>& block : blocks_of(widths, room)) {
    const auto add = [&](const Cells& cells, std::optional<std::size_t> row) {
      std::string line(margin);
      for (const std::size_t i : block) {
        const std::string cell = shorten(cells[i], widths[i]);
        const std::string space(static_cast<std::size_t>(widths[i] - display_width(cell)), ' ');
        line += (i > 0 ? std::string(kGap, ' ') : "") + (heads[i].numbers ? space + cell : cell + space);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      lines.push_back({shorten(line, width), row});
    };
    for (const Cells& line : broken_heads(heads, block, widths)) add(line, std::nullopt);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      Cells cells = rows[row];
      for (const std::string& line : lines_of_name(rows[row].front(), widths[0])) {
        cells[0] = line;
        add(cells, row);
        cells.assign(cells.size(), "");
      }
    }
  }
  return lines;
}

std::string aligned_columns(const std::vector<Cells>& rows, std::string_view margin, int width) {
  if (rows.empty()) return "";
  std::vector<Column> heads;
  for (const std::string& head : rows.front()) heads.push_back(heads.empty() ? Column(head) : numbers(head));
  std::string out;
  for (const TableLine& line : table_lines(heads, {rows.begin() + 1, rows.end()}, margin, width)) out += line.text + "\n";
  return out;
}

}  // namespace lockstep
