#include "reports/text.h"

#include <algorithm>
#include <span>

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
  return std::any_of(ranges.begin(), ranges.end(),
                     [code](const AxisRange& range) { return code >= range.first && code <= range.last; });
}

int width_of(char32_t code) {
  if (within(code, kZeroWidth)) return 0;
  return within(code, kDoubleWidth) ? 2 : 1;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  const std::string clean = clean_text(text);
  std::string out;
  out.reserve(clean.size());
  for (const char c : clean) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string escape_markdown(std::string_view text) {
  std::string out;
  for (const char c : clean_line(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '@':
        out += "&#64;";
        break;  // GitHub must not take it for a mention of a user
      case '|':
      case '\\':
      case '`':
      case '*':
      case '_':
      case '[':
      case ']':
      case '#':
      case '~':
      case '!':
      case '$':
        out += '\\', out += c;
        break;
      default:
        out += c;
    }
  }
  return out;
}

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

std::string ascii_minus(std::string text) {
  for (std::size_t at; (at = text.find("−")) != std::string::npos;)
    text.replace(at, std::string_view("−").size(), "-");
  return text;
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) +
         std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
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

}  // namespace lockstep
