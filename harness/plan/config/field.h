#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/config/run_config.h"

// All mistakes of one reading, gathered and thrown at once.

namespace lockstep {

/// Where something was said. Source 0 is the file; the others are options of the command line.
struct Place {
  int source = 0;
  int line = 0;    ///< from 1; 0: nowhere in particular
  int column = 0;  ///< from 1
};

class Problems {
 public:
  explicit Problems(std::string file) : sources_{std::move(file)} {}

  /// Names another source, such as "--set lr=x", and returns its number.
  int add_source(std::string name);
  void add(const Place& place, std::string message, std::string_view suggestion = {});
  bool empty() const { return found_.empty(); }
  std::size_t size() const { return found_.size(); }
  /// Everything found, in the order of places.
  std::vector<ConfigProblem> list() const;
  /// Throws ConfigError with everything found; returns if there was nothing.
  void throw_if_any() const;

 private:
  struct Found {
    Place place;
    std::string message;
    std::string suggestion;
  };
  std::vector<std::string> sources_;
  std::vector<Found> found_;
};

// A YAML text as a tree that keeps every key, in order and with its place: duplicates included, so that they
// can be reported.

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Place place;
  std::string text;             ///< of scalars
  bool quoted = false;          ///< of scalars: "3" is a text, 3 is a number
  std::vector<YamlNode> keys;   ///< of maps, one for each item
  std::vector<YamlNode> items;  ///< of maps and sequences

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_sequence() const { return kind == Kind::sequence; }
  bool is_map() const { return kind == Kind::map; }
};

/// The kind in words, for messages: "a list", "nothing".
const char* name_of(YamlNode::Kind kind);

/// The first document of `text`. Reports syntax errors, duplicate keys, keys that are no plain words, anchors
/// and further documents; places are in `source` (all of them nowhere in particular if `source` is not 0).
YamlNode read_yaml(const std::string& text, int source, Problems& problems);

// One field of a config as data: its key, range and help, and typed access to it. YAML reading, --set, JSON,
// hashes, the schema and the reports' listings are all loops over tables of these.

/// Words of an enumeration, in the order of its enumerators, which count from 0.
using WordList = std::span<const std::string_view>;

WordList words_of(Backend);
WordList words_of(Transport);
WordList words_of(RowPartition);
WordList words_of(Precision);
WordList words_of(Arithmetic);
WordList words_of(ProcessStart);
WordList words_of(Perturbation);
WordList words_of(OptimizerKind);
WordList words_of(UpdatePartition);
WordList words_of(LrRule);
WordList words_of(Schedule);
WordList words_of(RankSeed);
WordList words_of(NanGuard);
WordList words_of(TraceLevel);
WordList words_of(DataSource);

/// An enumerator as data, whatever its type: trainers bring enumerations of their own.
struct Word {
  int index = 0;
  bool operator==(const Word&) const = default;
};

/// Where an enumerator lies.
struct WordRef {
  void* place = nullptr;
  WordList words;
  int (*get)(const void* place) = nullptr;
  void (*set)(void* place, int index) = nullptr;
  Word operator*() const { return {get(place)}; }
};

template <class... T>
struct FieldTypes {
  using Ref = std::variant<T*..., WordRef>;
  using Value = std::variant<T..., Word>;
};
using AllFieldTypes = FieldTypes<bool, int, int64_t, double, std::string, Layout, std::vector<int64_t>, EvaluationPeriod>;

/// Where a field of one object lies.
using FieldRef = AllFieldTypes::Ref;
/// A copy of a field's value.
using FieldValue = AllFieldTypes::Value;

/// The field of a member. An enumeration's words are found by words_of, which stands beside its type.
template <class T>
FieldRef ref_to(T& member) {
  if constexpr (std::is_enum_v<T>) {
    return WordRef{&member, words_of(T{}), [](const void* place) { return static_cast<int>(*static_cast<const T*>(place)); },
                   [](void* place, int index) { *static_cast<T*>(place) = static_cast<T>(index); }};
  } else {
    return &member;
  }
}

/// Allowed numbers; of lists, every element.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
};

/// What a text may be.
enum class Words {
  any,
  name,       ///< letters, digits, '.', '_', '-': usable as a folder
  path,       ///< a file; a relative path in a config file starts at the folder of that file
};

enum class Setter {
  user,      ///< config files and --set
  internal,  ///< the planner alone; refused in config files
};

struct FieldSpec {
  std::string_view key;  ///< dotted
  Range range;
  std::string_view unit;  ///< empty: a pure number or no number
  std::string_view help;
  Words words = Words::any;
  Setter setter = Setter::user;
  /// The words that a text may be; null: any.
  std::vector<std::string_view> (*choices)() = nullptr;
};

template <class Owner>
struct Field {
  FieldSpec spec;
  FieldRef (*ref)(Owner&);
  /// Of a key that users name themselves (`env.NAME`), instead of `ref`: the place of its value, which is made if it is not there and
  /// `make` says so; else that of an empty text, for reading.
  FieldRef (*named)(Owner&, std::string_view key, bool make) = nullptr;
  FieldRef of(Owner& owner) const { return ref != nullptr ? ref(owner) : named(owner, spec.key, true); }
  /// For reading alone; no table's accessor writes.
  FieldRef of(const Owner& owner) const {
    return ref != nullptr ? ref(const_cast<Owner&>(owner)) : named(const_cast<Owner&>(owner), spec.key, false);
  }
  bool is_open() const { return ref == nullptr; }
};
using RunField = Field<RunConfig>;

/// What every trainer's runs have, in the struct's order.
std::span<const RunField> core_fields();
/// Null if there is none of that key.
const RunField* find_core_field(std::string_view key);

/// Every field of a trainer's runs: the core's, then its own; of those that users name, the ones that have been looked for. Spans stay valid.
std::span<const RunField* const> fields_of(const TrainerSpec& trainer);
/// The same by key; null if its runs have none of that key. A key of an open group (OpenGroup) is there from the first look on.
const RunField* find_field(const TrainerSpec& trainer, std::string_view key);
/// Letters, digits and '_', not beginning with a digit: what may stand behind an open group's point.
bool is_open_name(std::string_view name);
/// The first trainer with an own key of that name; null if there is none.
const TrainerSpec* owner_of_key(std::string_view key);

/// The words that a field may be; empty if it is no choice.
std::vector<std::string_view> choices_of(const FieldSpec& spec, const FieldRef& ref);

FieldValue load(const FieldRef& ref);
/// `value` must have been loaded from the same field.
void store(const FieldRef& ref, const FieldValue& value);
bool equal(const FieldRef& ref, const FieldValue& value);
bool equal(const FieldRef& a, const FieldRef& b);

/// Reads `node` into the field. Reports a wrong type, an unknown word or a value out of range and returns
/// false.
bool read_field(const FieldSpec& spec, const FieldRef& ref, const YamlNode& node, Problems& problems);

/// The value in words: "8x3", "0.125", "true", "[0, 1]".
std::string text_of(const FieldRef& ref);
/// The value as JSON; doubles with as many digits as their bits need, and always with a point or an exponent.
void append_json(std::string& out, const FieldRef& ref);
/// A quoted JSON string.
void append_json(std::string& out, std::string_view text);

/// "in [0, 1)", "at least 1", or empty.
std::string text_of(const Range& range);

/// A whole decimal number and nothing else: no sign but -, no zero before another digit, no 0x, _ or
/// exponent.
bool parse_integer(std::string_view text, int64_t& value);
/// A finite decimal number and nothing else; its whole part is written as a whole number is.
bool parse_double(std::string_view text, double& value);

// JSON Schema of fields and of what holds them.

using SchemaJson = nlohmann::ordered_json;

/// An object without properties yet; it refuses properties that are not added.
SchemaJson object_schema();
/// type: "integer" or "number".
SchemaJson number_schema(const char* type, const Range& range);
SchemaJson list_schema(SchemaJson items, const std::string& help);

/// What a field may be, with the value that `ref` holds as its default.
SchemaJson field_schema(const FieldSpec& spec, const FieldRef& ref);
/// A key under its dotted name, and inside its group if it has one.
void add_property(SchemaJson& object, const std::string& key, const SchemaJson& schema);

}  // namespace lockstep

// Ranges that fields of configs share.

namespace lockstep::ranges {

inline constexpr double kMostInt = 2147483647.0;
inline constexpr double kMostExact = 9007199254740991.0;  // 2^53 - 1: every reader of JSON keeps it exactly

inline constexpr Range kAny{};
// Beyond these a value is a slip of the pen, or leaves what the arithmetic holds: float32 ends at 3e38 and
// 1e-38, and what is multiplied with such a value must not leave it either. docs/config.md gives the reasons.
inline constexpr Range kNotNegative{0, 1e6};
inline constexpr Range kPositive{0, 1e6, true, false};
inline constexpr Range kScale{1e-6, 1e6};
inline constexpr Range kLength{1, 1e6};        // of series and windows, in time steps
inline constexpr Range kMetricUnits{0, 1e12};  // activation_bytes has the largest unit
inline constexpr Range kFraction{0, 1, false, true};
inline constexpr Range from(double low) { return {low, kMostInt, false, false}; }
inline constexpr Range up_to(double high) { return {1, high}; }
inline constexpr Range kStep{0, 1e9, false, false};
inline constexpr Range kSteps{1, 1e9, false, false};
inline constexpr Range kSeed{0, kMostExact, false, false};

inline constexpr Setter kPlanner = Setter::internal;

}  // namespace lockstep::ranges

// Words of enumerations in a source file, a line each. What they define is declared beside the enumeration.

/// Defines words_of(type): the words of all enumerators in their order, of which `last` is the last one.
#define LOCKSTEP_WORDS(type, last, ...)                                            \
  WordList words_of(type) {                                                        \
    static constexpr auto kWords = std::to_array<std::string_view>({__VA_ARGS__}); \
    static_assert(kWords.size() == static_cast<std::size_t>(type::last) + 1);      \
    return kWords;                                                                 \
  }

/// Defines word_of(value) as well: that of one enumerator.
#define LOCKSTEP_WORDS_BOTH_WAYS(type, last, ...) \
  LOCKSTEP_WORDS(type, last, __VA_ARGS__)         \
  std::string_view word_of(type value) { return words_of(value)[static_cast<std::size_t>(value)]; }
