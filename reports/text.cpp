#include "reports/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/config/run_config.h"

namespace lockstep {
namespace {

struct AxisRange {
  char32_t first, last;
};

constexpr AxisRange kZeroWidth[] = {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200D},
                                {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}};
constexpr AxisRange kDoubleWidth[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},  {0xAC00, 0xD7A3},
                                  {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6},
                                  {0x1F300, 0x1F64F}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

bool within(char32_t code, std::span<const AxisRange> ranges) {
  return std::ranges::any_of(ranges, [code](const AxisRange& range) { return code >= range.first && code <= range.last; });
}

int width_of(char32_t code) {
  if (within(code, kZeroWidth)) return 0;
  return within(code, kDoubleWidth) ? 2 : 1;
}

using Escape = std::pair<char, std::string_view>;

std::string escaped(const std::string& text, std::span<const Escape> escapes) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto found = std::ranges::find(escapes, c, &Escape::first);
    found == escapes.end() ? out += c : out += found->second;
  }
  return out;
}

constexpr Escape kMarkup[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
// GitHub must not take an @ for a mention of a user.
constexpr Escape kMarkdown[] = {{'&', "&amp;"}, {'<', "&lt;"},  {'>', "&gt;"}, {'@', "&#64;"}, {'|', "\\|"},
                                {'\\', "\\\\"}, {'`', "\\`"},   {'*', "\\*"},  {'_', "\\_"},   {'[', "\\["},
                                {']', "\\]"},   {'#', "\\#"},   {'~', "\\~"},  {'!', "\\!"},   {'$', "\\$"}};

}  // namespace

std::string escape_markup(std::string_view text) { return escaped(clean_text(text), kMarkup); }

std::string escape_markdown(std::string_view text) { return escaped(clean_line(text), kMarkdown); }

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter next = decode_utf8(text, i);
    width += width_of(next.code);
    i += next.length;
  }
  return width;
}

std::string shorten(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  std::string out;
  int used = 0;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter next = decode_utf8(text, i);
    if (used + width_of(next.code) > width - 1) break;
    used += width_of(next.code);
    out.append(text.substr(i, next.length));
    i += next.length;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return width > 0 ? out + "…" : out;
}

std::string short_line(std::string_view text, int width) {
  // No character takes more than 4 bytes; what terminal sequences and combining marks take besides is cut off
  // with the rest.
  const std::size_t enough = 8 * static_cast<std::size_t>(std::max(width, 0)) + 64;
  if (text.size() <= enough) return shorten(clean_line(text), width);
  return shorten(clean_line(text.substr(0, enough)) + "…", width);
}

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

std::string hanging(std::string_view text, int width) {
  std::string out = wrapped(text, std::max(1, width - 2));
  for (std::size_t at = out.find('\n'); at + 1 < out.size(); at = out.find('\n', at + 1)) out.insert(at + 1, "  ");
  return out;
}

std::string ascii_minus(std::string text) {
  for (std::size_t at; (at = text.find("−")) != std::string::npos;)
    text.replace(at, std::string_view("−").size(), "-");
  return text;
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) +
         std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
}

std::string painted(std::string_view text, std::string_view css, bool colour) {
  if (!colour) return std::string(text);
  const char* const code = css == "ok"     ? "32"
                           : css == "bad"  ? "31"
                           : css == "und"  ? "33"
                           : css == "fail" ? "35"
                           : css == "bold" ? "1"
                                           : "2";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string name_with_unit(std::string_view name, std::string_view unit) {
  return clean_line(name) + (unit.empty() ? "" : " (" + clean_line(unit) + ")");
}

std::string slug(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string out;
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || upper || c == '.' || c == '_';
    if (kept) out += static_cast<char>(upper ? c - 'A' + 'a' : c);
    if (!kept && !out.empty() && out.back() != '-') out += '-';
    if (out.size() >= kLongest) break;
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "cell" : out;
}

double text_width_px(std::string_view text, double font_px) {
  double ems = 0;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter next = decode_utf8(text, i);
    i += next.length;
    const char32_t c = next.code;
    if (width_of(c) != 1) {
      ems += width_of(c) == 2 ? 1.05 : 0;
    } else if (c < 0x80 &&
               std::string_view("iljtfr.,:;|!'()[] ").find(static_cast<char>(c)) != std::string_view::npos) {
      ems += 0.38;
    } else if (c < 0x80 && std::string_view("mwMW@%").find(static_cast<char>(c)) != std::string_view::npos) {
      ems += 0.96;
    } else {
      ems += c >= 'A' && c <= 'Z' ? 0.72 : 0.62;
    }
  }
  return ems * font_px;
}

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

}  // namespace lockstep
