#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/base/read_file.h"
#include "harness/lib/data/series.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxProblems = 20;
constexpr int kMaxDimensions = 4096;
constexpr std::size_t kShownBytes = 24;
constexpr std::size_t kShownWords = 12;

/// Thrown inside the parser once enough problems are known.
struct EnoughProblems {};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// The file's own text inside a message: cut short, and without bytes that a terminal would act on.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  if (text.size() <= kShownBytes) return result;
  // A cut through a character of several bytes would leave text that is not UTF-8.
  while (!result.empty() && (static_cast<unsigned char>(result.back()) & 0xc0) == 0x80) result.pop_back();
  if (!result.empty() && static_cast<unsigned char>(result.back()) >= 0xc0) result.pop_back();
  return result + "…";
}

std::string quoted(std::string_view text) { return std::string("\"") += shown(text) + "\""; }

/// The first of them, for a message.
std::string listed(const std::vector<std::string>& words) {
  std::string result;
  for (std::size_t i = 0; i < words.size() && i < kShownWords; ++i) {
    result += (i == 0 ? "" : ", ") + shown(words[i]);
  }
  return words.size() > kShownWords ? result + ", …" : result;
}

class TsParser {
 public:
  TsParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  SeriesSet parse() {
    try {
      parse_lines();
    } catch (const EnoughProblems&) {
    }
    if (!problems_.empty()) throw ConfigError(std::move(problems_));
    return std::move(set_);
  }

 private:
  void parse_lines();
  void header(std::string_view line);
  void class_labels(std::string_view line, const std::vector<std::string_view>& words);
  void data_line(std::string_view line);
  /// Splits one dimension's text into values_ and its length into lengths_.
  void dimension(std::string_view field);
  std::optional<float> number(std::string_view text);
  void label(std::string_view field);
  void check_lengths(std::string_view line, std::size_t dimensions);

  bool boolean(std::string_view value, std::string_view name);
  int count_of(std::string_view value, std::string_view name, int most);

  /// `at` is a part of the file: its place gives the column.
  void problem(std::string_view at, const std::string& message) {
    const char* line_start = text_.data() + line_start_;
    const auto column = at.data() == nullptr ? 1 : static_cast<int>(at.data() - line_start) + 1;
    add({file_, line_, column, message, ""});
  }
  void add(ConfigProblem problem) {
    problems_.push_back(std::move(problem));
    if (problems_.size() < kMaxProblems) return;
    problems_.push_back(
        {file_, 0, 0, fmt::format("the first {} problems are shown; there may be more", kMaxProblems), ""});
    throw EnoughProblems{};
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t line_start_ = 0;
  int line_ = 0;
  bool last_line_ = false;  // the file ends in this line, without a line break: it may be cut short

  std::set<std::string> headers_;
  int dimensions_ = 0;     // 0: not known yet
  int series_length_ = 0;  // 0: may differ from series to series
  bool labelled_ = false;
  bool target_ = false;  // @targetLabel: the last field is a number to predict, kept as text
  std::vector<std::string> labels_;

  std::vector<ConfigProblem> problems_;
  SeriesSet set_;
  std::vector<float> values_;         // of one line, dimension after dimension
  std::vector<std::size_t> lengths_;  // of each dimension of the line
};

bool TsParser::boolean(std::string_view value, std::string_view name) {
  const std::string word = lower(value);
  if (word == "true") return true;
  if (word != "false") problem(value, fmt::format("@{} is true or false, not {}", name, quoted(value)));
  return false;
}

int TsParser::count_of(std::string_view value, std::string_view name, int most) {
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc{} || end != value.data() + value.size() || count < 1 || count > most) {
    problem(value, fmt::format("@{} is a whole number from 1 to {}, not {}", name, most, quoted(value)));
    return 0;
  }
  return count;
}

void TsParser::class_labels(std::string_view line, const std::vector<std::string_view>& words) {
  labelled_ = boolean(words[1], "classLabel");
  if (labelled_ && words.size() == 2) problem(line, "@classLabel true lists no class");
  for (std::size_t i = 2; i < words.size(); ++i) labels_.emplace_back(words[i]);
}

void TsParser::header(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < line.size();) {
    if (is_space(line[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < line.size() && !is_space(line[end])) ++end;
    words.push_back(line.substr(i, end - i));
    i = end;
  }
  const std::string name = lower(words[0].substr(1));
  if (!headers_.insert(name == "dimension" ? "dimensions" : name).second) {
    problem(words[0], fmt::format("{} stands twice", quoted(words[0])));
    return;
  }
  if (name == "data") {
    if (words.size() > 1)
      problem(words[1], "nothing may follow @data on its line; series start on the next line");
    return;
  }
  if (words.size() < 2) {
    problem(words[0], fmt::format("{} has no value", quoted(words[0])));
  } else if (name == "timestamps") {
    if (boolean(words[1], "timeStamps")) problem(words[1], "series with time stamps are not supported");
  } else if (name == "univariate") {
    if (boolean(words[1], "univariate") && dimensions_ == 0) dimensions_ = 1;
  } else if (name == "dimensions" || name == "dimension") {
    dimensions_ = count_of(words[1], "dimensions", kMaxDimensions);
  } else if (name == "serieslength") {
    series_length_ = count_of(words[1], "seriesLength", 1 << 30);
  } else if (name == "classlabel") {
    class_labels(line, words);
  } else if (name == "targetlabel") {
    target_ = boolean(words[1], "targetLabel");
  } else if (name == "missing" || name == "equallength") {
    boolean(words[1], words[0].substr(1));
  } else if (name != "problemname") {
    problem(words[0],
            fmt::format("unknown header {}; known are @problemName, @timeStamps, @missing, @univariate, "
                        "@dimensions, @equalLength, @seriesLength, @classLabel, @targetLabel and @data",
                        quoted(words[0])));
  }
}

std::optional<float> TsParser::number(std::string_view text) {
  const std::string_view value = trimmed(text);
  if (value.empty()) {
    problem(text, "a value is empty");
    return std::nullopt;
  }
  if (value == "?") {
    problem(value, "a value is missing (?); series with missing values are not supported");
    return std::nullopt;
  }
  std::string_view digits = value;
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  float result = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    problem(value, fmt::format("{} is not a number", quoted(value)));
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    // Too small is as good as 0; too large has no float.
    double wide = 0;
    const auto [wide_end, wide_error] = std::from_chars(digits.data(), digits.data() + digits.size(), wide);
    if (wide_error == std::errc{} && std::abs(wide) < 1.0) return static_cast<float>(wide);
    problem(value, fmt::format("{} lies outside the range of a 32-bit float", quoted(value)));
    return std::nullopt;
  }
  if (!std::isfinite(result)) {
    problem(value, fmt::format("{} is not a finite number", quoted(value)));
    return std::nullopt;
  }
  return result;
}

void TsParser::dimension(std::string_view field) {
  std::size_t count = 0;
  for (std::size_t start = 0;; ++count) {
    const std::size_t comma = field.find(',', start);
    const std::string_view value =
        field.substr(start, comma == std::string_view::npos ? comma : comma - start);
    if (const std::optional<float> parsed = number(value)) values_.push_back(*parsed);
    if (comma == std::string_view::npos) break;
    start = comma + 1;
  }
  lengths_.push_back(count + 1);
}

void TsParser::label(std::string_view field) {
  const std::string_view value = trimmed(field);
  if (target_ || labels_.empty()) {  // an empty @classLabel has been refused where it stands
    set_.labels.emplace_back(value);
    return;
  }
  for (const std::string& known : labels_) {
    if (lower(known) == lower(value)) {
      set_.labels.push_back(known);
      return;
    }
  }
  problem(
      field,
      fmt::format("the class {} is not one of @classLabel's: {}{}", quoted(value), listed(labels_),
                  last_line_ ? "; the file ends in this line without a line break: is it cut short?" : ""));
}

void TsParser::check_lengths(std::string_view line, std::size_t dimensions) {
  for (std::size_t d = 1; d < dimensions; ++d) {
    if (lengths_[d] == lengths_[0]) continue;
    problem(line, fmt::format(
                      "dimension {} has {}, dimension 1 has {}; all dimensions of a series are equally long",
                      d + 1, counted(static_cast<int64_t>(lengths_[d]), "step"), lengths_[0]));
    return;
  }
  if (series_length_ > 0 && lengths_[0] != static_cast<std::size_t>(series_length_)) {
    problem(line, fmt::format("the series has {}, but @seriesLength is {}",
                              counted(static_cast<int64_t>(lengths_[0]), "step"),
                              series_length_));
  }
}

void TsParser::data_line(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t start = 0;;) {
    const std::size_t colon = line.find(':', start);
    fields.push_back(line.substr(start, colon == std::string_view::npos ? colon : colon - start));
    if (colon == std::string_view::npos) break;
    start = colon + 1;
  }
  const std::size_t label_fields = labelled_ || target_ ? 1 : 0;
  if (dimensions_ == 0 && fields.size() > label_fields && fields.size() - label_fields <= kMaxDimensions) {
    dimensions_ = static_cast<int>(fields.size() - label_fields);
  }
  const auto dimensions = static_cast<std::size_t>(dimensions_);
  if (dimensions == 0 || fields.size() != dimensions + label_fields) {
    const std::string cut = last_line_ && fields.size() < dimensions + label_fields
                                ? "; the file ends in this line without a line break: is it cut short?"
                                : "";
    problem(line, fmt::format("the line has {} separated by ':', but {}{} {} expected{}",
                              counted(static_cast<int64_t>(fields.size()), "field"),
                              counted(static_cast<int64_t>(dimensions), "dimension"),
                              label_fields ? " and a class label" : "",
                              dimensions + label_fields == 1 ? "was" : "were", cut));
    return;
  }
  values_.clear();
  lengths_.clear();
  const std::size_t problems_before = problems_.size();
  for (std::size_t d = 0; d < dimensions; ++d) dimension(fields[d]);
  check_lengths(line, dimensions);
  if (label_fields > 0) label(fields.back());
  if (problems_.size() > problems_before) return;

  const std::size_t steps = lengths_[0];
  std::vector<float> series(steps * dimensions);
  for (std::size_t d = 0; d < dimensions; ++d) {
    for (std::size_t t = 0; t < steps; ++t) series[t * dimensions + d] = values_[d * steps + t];
  }
  set_.series.push_back(std::move(series));
}

void TsParser::parse_lines() {
  if (text_.empty()) {
    add({file_, 0, 0, "the file is empty", ""});
    return;
  }
  std::size_t position = text_.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0;
  bool in_data = false;
  bool any_series = false;
  while (position < text_.size()) {
    const std::size_t end = text_.find('\n', position);
    last_line_ = end == std::string_view::npos;
    const std::string_view whole =
        text_.substr(position, last_line_ ? std::string_view::npos : end - position);
    line_start_ = position;
    ++line_;
    position = last_line_ ? text_.size() : end + 1;

    const std::string_view line = trimmed(whole);
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '@') {
      if (in_data) {
        problem(line, "a header after @data");
        continue;
      }
      header(line);
      in_data = headers_.count("data") > 0;
    } else if (in_data) {
      any_series = true;
      data_line(line);
    } else {
      problem(line, "data before @data");
      throw EnoughProblems{};
    }
  }
  if (!in_data) {
    add({file_, line_, 1, "the file ends without @data: is it cut short?", ""});
  } else if (!any_series) {
    add({file_, line_, 1, "no series follows @data: is the file cut short?", ""});
  }
  set_.channels = dimensions_;
}

}  // namespace

SeriesSet parse_ts(const std::string& text, const std::string& file_name) {
  return TsParser(text, file_name).parse();
}

std::string read_data_file(const std::string& path) {
  FileText file = read_file(path);
  if (!file) throw ConfigError({ConfigProblem{path, 0, 0, file.problem, ""}});
  return std::move(file.text);
}

}  // namespace lockstep
