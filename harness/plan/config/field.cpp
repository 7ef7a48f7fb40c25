#include "harness/plan/config/field.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "harness/base/machine.h"
#include "harness/base/text.h"

namespace lockstep {

/// The same for whole numbers: "1000" for 1e3.
static std::string plain_integer(std::string_view text);

/// A number in another spelling, respelled for a suggestion: "16" for 0x10, "1000" for 1_000, "10" for 010;
/// empty if it is no number.
static std::string plain_number(std::string_view text);

int Problems::add_source(std::string name) {
  sources_.push_back(std::move(name));
  return static_cast<int>(sources_.size()) - 1;
}

void Problems::add(const Place& place, std::string message, std::string_view suggestion) {
  found_.push_back({place, std::move(message), std::string(suggestion)});
}

void Problems::throw_if_any() const {
  if (!found_.empty()) throw ConfigError(list());
}

std::vector<ConfigProblem> Problems::list() const {
  std::vector<Found> sorted = found_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Found& a, const Found& b) {
    return std::tie(a.place.source, a.place.line, a.place.column) <
           std::tie(b.place.source, b.place.line, b.place.column);
  });
  std::vector<ConfigProblem> problems;
  for (Found& found : sorted) {
    ConfigProblem problem;
    problem.file = sources_[static_cast<std::size_t>(found.place.source)];
    problem.line = found.place.line;
    problem.column = found.place.column;
    problem.message = std::move(found.message);
    problem.suggestion = std::move(found.suggestion);
    problems.push_back(std::move(problem));
  }
  return problems;
}

namespace {

/// A config has five levels.
constexpr std::size_t kMostYamlDepth = 50;
struct TooDeep {};

/// yaml-cpp takes other encodings by guess, and replaces what it cannot read.
bool is_utf8(const std::string& text, int source, Problems& problems) {
  Place place{0, 1, 1};
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter next = decode_utf8(text, at);
    if (text[at] == '\0' || (next.length == 1 && next.code > 0x7F)) {
      problems.add(source == 0 ? place : Place{source},
                   text[at] == '\0' ? "a NUL byte: a config must be text" : "a byte that is not UTF-8");
      return false;
    }
    at += next.length;
    ++place.column;
    if (next.code == '\n') ++place.line, place.column = 1;
  }
  return true;
}

// yaml-cpp's own nodes drop nothing but hide duplicates; its events do not.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(int source, Problems& problems) : source_(source), problems_(problems) {}

  YamlNode take() { return std::move(root_); }
  Place place_of(const YAML::Mark& mark) const {
    if (source_ != 0 || mark.is_null()) return {source_, 0, 0};
    return {source_, mark.line + 1, mark.column + 1};
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(node_of(YamlNode::Kind::null, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    problems_.add(place_of(mark), "aliases (*name) are not supported; write the value out");
    add(node_of(YamlNode::Kind::null, mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (const std::string unclean = unclean_character(value); !unclean.empty()) {
      problems_.add(place_of(mark),
                    fmt::format("{} holds {}: write visible characters only", in_quotes(value), unclean));
    }
    YamlNode node = node_of(YamlNode::Kind::scalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::sequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override {
    check_keys(open_.back());
    close();
  }

 private:
  YamlNode node_of(YamlNode::Kind kind, const YAML::Mark& mark) const {
    YamlNode node;
    node.kind = kind;
    node.place = place_of(mark);
    return node;
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      problems_.add(place_of(mark), "anchors (&name) are not supported; write the value out");
    }
  }
  // What yaml-cpp gives for a plain node is "?", for a quoted one "!".
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    problems_.add(place_of(mark),
                  fmt::format("tags ({}) are not supported: the key says what its value is",
                              clean_line(tag)));
  }
  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (open_.size() == kMostYamlDepth) {
      problems_.add(place_of(mark), fmt::format("nested deeper than {} levels", kMostYamlDepth));
      throw TooDeep{};
    }
    open_.push_back(node_of(kind, mark));
  }
  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    add(std::move(node));
  }
  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    const bool is_key = parent.is_map() && parent.keys.size() == parent.items.size();
    (is_key ? parent.keys : parent.items).push_back(std::move(node));
  }
  // Drops keys that cannot be used, so that the readers see each key once and as a word.
  void check_keys(YamlNode& map) {
    std::unordered_map<std::string, Place> first;
    YamlNode kept;
    for (std::size_t i = 0; i < map.keys.size() && i < map.items.size(); ++i) {
      const YamlNode& key = map.keys[i];
      if (!key.is_scalar()) {
        problems_.add(key.place, fmt::format("a key must be a word, not {}", name_of(key.kind)));
        continue;
      }
      const auto [at, is_new] = first.emplace(key.text, key.place);
      if (!is_new) {
        const std::string where = at->second.line > 0
                                      ? fmt::format("; it was given at line {} already", at->second.line)
                                      : std::string();
        problems_.add(key.place, fmt::format("duplicate key {}{}", in_quotes(key.text), where));
        continue;
      }
      kept.keys.push_back(std::move(map.keys[i]));
      kept.items.push_back(std::move(map.items[i]));
    }
    map.keys = std::move(kept.keys);
    map.items = std::move(kept.items);
  }

  int source_;
  Problems& problems_;
  std::vector<YamlNode> open_;
  YamlNode root_;
};

}  // namespace

const char* name_of(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return "a single value";
    case YamlNode::Kind::sequence:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
  }
  return "?";
}

YamlNode read_yaml(const std::string& text, int source, Problems& problems) {
  if (!is_utf8(text, source, problems)) return {};
  TreeBuilder builder(source, problems);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      YamlNode root = builder.take();
      TreeBuilder rest(source, problems);
      if (parser.HandleNextDocument(rest)) {
        problems.add(rest.take().place, "a second document; a config is one document");
      }
      return root;
    }
  } catch (const TooDeep&) {
    // It has been reported where it stands.
  } catch (const YAML::Exception& error) {
    problems.add(builder.place_of(error.mark), fmt::format("not YAML: {}", error.msg));
  }
  return {};
}

namespace {

using Names = WordList;

constexpr std::string_view kNever = "never";
constexpr int kMostRanks = 4096;
constexpr int kMostRows = 65536;

bool in_range(const Range& range, double value) {
  const bool above = range.low_open ? value > range.low : value >= range.low;
  const bool below = range.high_open ? value < range.high : value <= range.high;
  return above && below;
}

// One value of one field: the words of its complaints are made in one place.
struct Reader {
  const FieldSpec& spec;
  const YamlNode& node;
  Problems& problems;

  bool refuse(const std::string& wanted, std::string_view suggestion = {}) const {
    const std::string got = node.is_scalar() ? in_quotes(node.text) : name_of(node.kind);
    problems.add(node.place, fmt::format("{} must be {}, not {}", spec.key, wanted, got), suggestion);
    return false;
  }
  bool refuse_range(const YamlNode& at) const {
    const std::string unit = spec.unit.empty() ? "" : fmt::format(" ({})", spec.unit);
    problems.add(at.place,
                 fmt::format("{} must be {}{}, not {}", spec.key, text_of(spec.range), unit, at.text));
    return false;
  }
  bool plain() const { return node.is_scalar() && !node.quoted; }

  bool read(bool& out) const {
    if (plain() && (node.text == "true" || node.text == "false")) {
      out = node.text == "true";
      return true;
    }
    return refuse("true or false");
  }
  bool read_integer(const YamlNode& at, int64_t& out) const {
    int64_t value = 0;
    if (!at.is_scalar() || at.quoted || !parse_integer(at.text, value)) {
      const std::string got = at.is_scalar() ? in_quotes(at.text) : name_of(at.kind);
      const std::string meant = at.is_scalar() && !at.quoted ? plain_integer(at.text) : "";
      problems.add(at.place, fmt::format("{} must be a whole number, not {}", spec.key, got), meant);
      return false;
    }
    if (!in_range(spec.range, static_cast<double>(value))) return refuse_range(at);
    out = value;
    return true;
  }
  bool read(int64_t& out) const { return read_integer(node, out); }
  bool read(int& out) const {
    int64_t value = 0;
    if (!read_integer(node, value)) return false;
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
      return refuse("a number of at most 32 bits");
    }
    out = static_cast<int>(value);
    return true;
  }
  bool read(double& out) const {
    double value = 0;
    if (!plain() || !parse_double(node.text, value)) {
      return refuse("a finite number", plain() ? plain_number(node.text) : "");
    }
    if (!in_range(spec.range, value)) return refuse_range(node);
    // Where a number has no sign there is one zero, so that equal configs have equal hashes.
    out = value == 0 && spec.range.low >= 0 ? 0.0 : value;
    return true;
  }
  bool read(std::string& out) const {
    // An empty text is written "" in YAML; `key:` alone was probably not meant.
    if (!node.is_scalar()) return refuse("a text");
    const std::vector<std::string_view> words = choices_of(spec, &out);
    if (!words.empty() && std::find(words.begin(), words.end(), node.text) == words.end()) {
      constexpr std::size_t kMostListed = 12;
      const std::string wanted = words.size() <= kMostListed
                                     ? join_words(words, "or")
                                     : fmt::format("one of the {} names of `lockstep list`", words.size());
      return refuse(wanted, nearest(node.text, words));
    }
    const auto is_name_char = [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-' || c == '.';
    };
    if (spec.words == Words::name &&
        (node.text.empty() || node.text.size() > 100 || node.text.front() == '.' ||
         !std::all_of(node.text.begin(), node.text.end(), is_name_char))) {
      return refuse("letters, digits, '_', '-' and '.' (at most 100, not beginning with '.')");
    }
    out = node.text;
    return true;
  }
  bool read(Layout& out) const {
    const std::string_view text = node.text;
    const std::size_t cross = text.find('x');
    int64_t ranks = 0, rows = 0;
    const bool fits = text.substr(0, cross) == "fit";
    if (fits) ranks = room_for_ranks();
    if (!node.is_scalar() || cross == std::string_view::npos ||
        (!fits && !parse_integer(text.substr(0, cross), ranks)) || !parse_integer(text.substr(cross + 1), rows)) {
      return refuse("VxB, ranks x rows of each, such as 8x3, or fitx3");
    }
    if (ranks < 1 || ranks > kMostRanks || rows < 1 || rows > kMostRows) {
      return refuse(fmt::format("VxB with 1 to {} ranks of 1 to {} rows", kMostRanks, kMostRows));
    }
    out = Layout{static_cast<int>(ranks), static_cast<int>(rows)};
    return true;
  }
  bool read(EvaluationPeriod& out) const {
    int64_t steps = 0;
    if (node.is_scalar() && node.text == kNever) {
      out = EvaluationPeriod::never();
      return true;
    }
    if (plain() && !parse_integer(node.text, steps)) {
      return refuse("a whole number or never", nearest(node.text, std::vector<std::string_view>{kNever}));
    }
    if (!read_integer(node, steps)) return false;
    out = steps;
    return true;
  }
  bool read(std::vector<int64_t>& out) const {
    if (!node.is_sequence()) return refuse("a list of whole numbers");
    std::vector<int64_t> values;
    bool good = true;
    for (const YamlNode& item : node.items) {
      int64_t value = 0;
      good = read_integer(item, value) && good;
      values.push_back(value);
    }
    if (!good) return false;
    // Lists of numbers are sets of steps: one order, so that equal sets have equal hashes.
    std::sort(values.begin(), values.end());
    if (std::adjacent_find(values.begin(), values.end()) != values.end()) {
      problems.add(node.place, fmt::format("{} names a number twice", spec.key));
      return false;
    }
    out = std::move(values);
    return true;
  }
  bool read(const WordRef& out) const {
    const Names names = out.words;
    const auto at = node.is_scalar() ? std::find(names.begin(), names.end(), node.text) : names.end();
    if (at == names.end()) {
      return refuse(join_words(names, "or"),
                    node.is_scalar() ? nearest(node.text, names) : std::string_view());
    }
    out.set(out.place, static_cast<int>(at - names.begin()));
    return true;
  }
};

void append_number(std::string& out, auto value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

struct TextWriter {
  std::string& out;
  void operator()(const bool* value) const { out += *value ? "true" : "false"; }
  void operator()(const int* value) const { append_number(out, *value); }
  void operator()(const int64_t* value) const { append_number(out, *value); }
  void operator()(const double* value) const { append_number(out, *value); }
  void operator()(const std::string* value) const { out += *value; }
  void operator()(const EvaluationPeriod* value) const {
    if (value->is_never()) {
      out += kNever;
    } else {
      append_number(out, value->steps());
    }
  }
  void operator()(const Layout* value) const {
    append_number(out, value->world_size);
    out += 'x';
    append_number(out, value->rows_per_rank);
  }
  void operator()(const std::vector<int64_t>* value) const { list(*value, ", "); }
  void list(const std::vector<int64_t>& values, std::string_view separator) const {
    out += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out += separator;
      append_number(out, values[i]);
    }
    out += ']';
  }
  void operator()(const WordRef& word) const { out += word.words[static_cast<std::size_t>((*word).index)]; }
};

struct JsonWriter : TextWriter {
  using TextWriter::operator();
  void operator()(const double* value) const {
    const std::size_t start = out.size();
    append_number(out, *value);
    // A point keeps it a floating-point number in every reader, and -0.0 negative.
    if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
  }
  void operator()(const std::string* value) const { append_json(out, std::string_view(*value)); }
  void operator()(const std::vector<int64_t>* value) const { list(*value, ","); }
  void operator()(const Layout* value) const { quote(value); }
  void operator()(const EvaluationPeriod* value) const {
    if (value->is_never()) return quote(value);
    TextWriter::operator()(value);
  }
  void operator()(const WordRef& word) const { quote(word); }
  void quote(const auto& value) const {
    out += '"';
    TextWriter::operator()(value);
    out += '"';
  }
};

}  // namespace

std::vector<std::string_view> choices_of(const FieldSpec& spec, const FieldRef& ref) {
  std::vector<std::string_view> words;
  if (spec.choices != nullptr) words = spec.choices();
  if (const auto* word = std::get_if<WordRef>(&ref)) words.assign(word->words.begin(), word->words.end());
  return words;
}

FieldValue load(const FieldRef& ref) {
  return std::visit([](const auto& field) { return FieldValue(*field); }, ref);
}

void store(const FieldRef& ref, const FieldValue& value) {
  if (const auto* word = std::get_if<WordRef>(&ref)) {
    word->set(word->place, std::get<Word>(value).index);
    return;
  }
  std::visit(
      [&value]<class T>(const T& field) {
        if constexpr (std::is_pointer_v<T>) *field = std::get<std::remove_pointer_t<T>>(value);
      },
      ref);
}

bool equal(const FieldRef& ref, const FieldValue& value) { return load(ref) == value; }

bool equal(const FieldRef& a, const FieldRef& b) {
  return std::visit([&b]<class T>(const T& field) { return *field == *std::get<T>(b); }, a);
}

bool read_field(const FieldSpec& spec, const FieldRef& ref, const YamlNode& node, Problems& problems) {
  const Reader reader{spec, node, problems};
  return std::visit(
      [&reader]<class T>(const T& field) {
        if constexpr (std::is_pointer_v<T>) {
          return reader.read(*field);
        } else {
          return reader.read(field);
        }
      },
      ref);
}

std::string text_of(const FieldRef& ref) {
  std::string out;
  std::visit(TextWriter{out}, ref);
  return out;
}

void append_json(std::string& out, const FieldRef& ref) { std::visit(JsonWriter{{out}}, ref); }

void append_json(std::string& out, std::string_view text) {
  const auto is_plain = [](unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), is_plain)) {
    out += '"';
    out += text;
    out += '"';
    return;
  }
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {

/// 010 is 8 to YAML 1.1 and 10 to YAML 1.2: whoever writes it may mean either.
bool begins_with_zero(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

}  // namespace

std::string plain_number(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  const int base = digits.starts_with("0x")   ? 16
                   : digits.starts_with("0o") ? 8
                   : digits.starts_with("0b") ? 2
                                              : 10;
  if (base != 10) {
    uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [read, error] = std::from_chars(digits.data() + 2, end, value, base);
    if (error != std::errc() || read != end) return "";
    return fmt::format("{}{}", negative && value > 0 ? "-" : "", value);
  }
  while (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') digits.erase(0, 1);
  if (negative && digits != "0") digits.insert(0, 1, '-');
  double value = 0;
  return digits != text && parse_double(digits, value) ? digits : "";
}

std::string plain_integer(std::string_view text) {
  const std::string number = plain_number(text);
  int64_t whole = 0;
  if (parse_integer(number, whole)) return number;
  double value = 0;
  // 1e3 and 5.0 are whole too, up to where a double counts every number.
  constexpr double kMostExact = 9007199254740991.0;
  if (!parse_double(number.empty() ? text : std::string_view(number), value)) return "";
  return std::abs(value) <= kMostExact && value == std::trunc(value) ? fmt::format("{:.0f}", value) : "";
}

std::string text_of(const Range& range) {
  const bool has_low = std::isfinite(range.low), has_high = std::isfinite(range.high);
  if (has_low && has_high) {
    return fmt::format("in {}{}, {}{}", range.low_open ? '(' : '[', range.low, range.high,
                       range.high_open ? ')' : ']');
  }
  if (has_low) return fmt::format("{} {}", range.low_open ? "greater than" : "at least", range.low);
  if (has_high) return fmt::format("{} {}", range.high_open ? "less than" : "at most", range.high);
  return "";
}

bool parse_integer(std::string_view text, int64_t& value) {
  if (begins_with_zero(text) || text == "-0") return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_double(std::string_view text, double& value) {
  if (begins_with_zero(text)) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

namespace {

using Json = SchemaJson;

std::string description(const FieldSpec& spec) {
  std::string text(spec.help);
  if (!spec.unit.empty()) text += " [" + std::string(spec.unit) + "]";
  return text;
}

void add_range(Json& schema, const Range& range) {
  if (std::isfinite(range.low)) schema[range.low_open ? "exclusiveMinimum" : "minimum"] = range.low;
  if (std::isfinite(range.high)) schema[range.high_open ? "exclusiveMaximum" : "maximum"] = range.high;
}

}  // namespace

Json object_schema() {
  return {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
}

Json number_schema(const char* type, const Range& range) {
  Json schema{{"type", type}};
  add_range(schema, range);
  return schema;
}

Json list_schema(Json items, const std::string& help) {
  return {{"description", help}, {"type", "array"}, {"items", std::move(items)}};
}

SchemaJson field_schema(const FieldSpec& spec, const FieldRef& ref) {
  Json schema;
  if (const auto* const* flag = std::get_if<bool*>(&ref)) {
    schema = {{"type", "boolean"}, {"default", **flag}};
  } else if (const auto* const* small = std::get_if<int*>(&ref)) {
    schema = number_schema("integer", spec.range);
    schema["default"] = **small;
  } else if (const auto* const* whole = std::get_if<int64_t*>(&ref)) {
    schema = number_schema("integer", spec.range);
    schema["default"] = **whole;
  } else if (const auto* const* period = std::get_if<EvaluationPeriod*>(&ref)) {
    schema = {{"anyOf", {number_schema("integer", spec.range), {{"const", "never"}}}}, {"default", (**period).steps()}};
  } else if (const auto* const* number = std::get_if<double*>(&ref)) {
    schema = number_schema("number", spec.range);
    schema["default"] = **number;
  } else if (std::holds_alternative<std::vector<int64_t>*>(ref)) {
    schema = {{"type", "array"}, {"items", number_schema("integer", spec.range)}, {"uniqueItems", true}};
  } else {
    schema["type"] = "string";
    for (const std::string_view choice : choices_of(spec, ref)) schema["enum"].push_back(std::string(choice));
    if (std::holds_alternative<Layout*>(ref)) schema["pattern"] = "^([0-9]+|fit)x[0-9]+$";
    if (spec.words == Words::name) schema["pattern"] = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$";
    // An empty text is no default worth offering in an editor.
    if (const std::string text = text_of(ref); !text.empty()) schema["default"] = text;
  }
  schema["description"] = description(spec);
  return schema;
}

void add_property(Json& object, const std::string& key, const Json& schema) {
  object["properties"][key] = schema;
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return;
  Json& group = object["properties"][key.substr(0, dot)];
  if (group.is_null()) group = object_schema();
  group["properties"][key.substr(dot + 1)] = schema;
}

}  // namespace lockstep
