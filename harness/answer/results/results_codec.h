#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/plan/matrix/matrix.h"

// How the JSON document of a struct is described: by codecs for values, fields for members, objects for
// structs. One description gives the writer, the reader and the JSON Schema. Only files that describe results
// include this: nlohmann's headers stay out of what others include.

namespace lockstep::results_format {

using Json = nlohmann::ordered_json;

/// A document that cannot be read: where, as "verdicts[0].statistics.power", and what is wrong there.
class Unreadable : public std::runtime_error {
 public:
  explicit Unreadable(const std::string& problem) : std::runtime_error(problem) {}
  /// Adds a step in front of the place: a key, or "[3]".
  void stands_in(const std::string& step);
  /// "verdicts[0].statistics.power: a number was expected, found null".
  std::string text() const;

 private:
  std::string where_;
};

/// Throws Unreadable: "a list was expected, found null".
[[noreturn]] void refuse(const char* expected, const Json& found);

/// The schema's definitions, by name; each is made when it is first asked for.
class Definitions {
 public:
  /// {"$ref": ...} to the definition of that name.
  Json ref(const std::string& name, const std::function<Json()>& make);
  const std::map<std::string, Json>& all() const { return all_; }

 private:
  std::map<std::string, Json> all_;
};

/// How a value stands in JSON, whatever its type: objects are made of these, so that a member costs the compiler no
/// function of its own.
struct AnyCodec {
  std::function<Json(const void*)> writer;
  std::function<void(const Json&, void*)> reader;  ///< throws Unreadable
  std::function<Json(Definitions&)> schema;
  /// The key is left out where null would be written, and need not be there to be read.
  bool may_lack = false;
};

/// How a value of type T stands in JSON.
template <class T>
struct Codec : AnyCodec {
  /// `write`: Json(const T&). `read`: void(const Json&, T&).
  template <class Write, class Read>
  Codec(Write write, Read read, std::function<Json(Definitions&)> schema, bool may_lack = false)
      : AnyCodec{[write](const void* value) -> Json { return write(*static_cast<const T*>(value)); },
                 [read](const Json& json, void* value) { read(json, *static_cast<T*>(value)); }, std::move(schema), may_lack} {}

  Json write(const T& value) const { return writer(&value); }
  void read(const Json& json, T& value) const { reader(json, &value); }
};

// Numbers. A double has no codec of its own: a description says which of the three it means.
/// {"value", "bits"}: a statistic, its value for people, its bits for those who compare.
Codec<double> exact();
/// As it is; NaN and infinities as "nan", "inf", "-inf", never null.
Codec<double> number();
/// The same for a number that is never NaN or infinite; the schema then allows no text.
Codec<double> finite();

/// A whole number, not below `least` by the schema. For int and int64_t.
template <class T>
Codec<T> whole(std::optional<int64_t> least = std::nullopt);
/// `whole(least)` for the type that the member has.
struct AtLeast {
  int64_t least;
  template <class T>
  operator Codec<T>() const {
    return whole<T>(least);
  }
};
inline AtLeast at_least(int64_t least) { return {least}; }

Codec<int> constant(int value);  ///< that number and no other
Codec<bool> flag();
Codec<std::string> text();
Codec<std::string> one_of(std::vector<std::string> words);

/// What `words` needs, whatever the enum: the index of a word, and the schema of them all.
std::size_t index_of_word(const Json& json, std::span<const std::string_view> names, const char* what);
Json schema_of_words(Definitions& definitions, std::span<const std::string_view> names,
                     const std::string& name);

/// An enum by its words, which stand in the order of its enumerators; `what` names it in errors ("verdict"),
/// `definition` in the schema (empty: written where it stands).
template <class E>
Codec<E> words(std::span<const std::string_view> names, const char* what, std::string definition = "") {
  return {[names](const E& value) { return Json(names[static_cast<std::size_t>(value)]); },
          [names, what](const Json& json, E& value) {
            value = static_cast<E>(index_of_word(json, names, what));
          },
          [names, definition](Definitions& definitions) {
            return schema_of_words(definitions, names, definition);
          }};
}

/// Calls `read`; an Unreadable that it throws gets `step` in front of its place.
template <class F>
void within(const std::string& step, F read) {
  try {
    read();
  } catch (Unreadable& problem) {
    problem.stands_in(step);
    throw;
  }
}

template <class T>
Codec<std::vector<T>> list(Codec<T> item) {
  return {[item](const std::vector<T>& values) {
            Json array = Json::array();
            for (const T& value : values) array.push_back(item.write(value));
            return array;
          },
          [item](const Json& json, std::vector<T>& values) {
            if (!json.is_array()) refuse("a list", json);
            values.assign(json.size(), T{});
            for (std::size_t i = 0; i < values.size(); ++i)
              within("[" + std::to_string(i) + "]", [&] { item.read(json[i], values[i]); });
          },
          [item](Definitions& definitions) {
            return Json{{"type", "array"}, {"items", item.schema(definitions)}};
          }};
}

/// null where there is no value.
template <class T>
Codec<std::optional<T>> nullable(Codec<T> inner) {
  return {[inner](const std::optional<T>& value) { return value ? inner.write(*value) : Json(nullptr); },
          [inner](const Json& json, std::optional<T>& value) {
            if (json.is_null()) return;
            inner.read(json, value.emplace());
          },
          [inner](Definitions& definitions) {
            return Json{{"anyOf", Json::array({inner.schema(definitions), Json{{"type", "null"}}})}};
          }};
}

/// One more object of a member that another key has read before: null exactly where that one was, else
/// `problem` is thrown.
template <class T>
Codec<std::optional<T>> rest_of(Codec<T> inner, std::string problem) {
  const Codec<std::optional<T>> codec = nullable(inner);
  return {[codec](const std::optional<T>& value) { return codec.write(value); },
          [inner, problem](const Json& json, std::optional<T>& value) {
            if (json.is_null() == value.has_value()) throw Unreadable(problem);
            if (value) inner.read(json, *value);
          },
          codec.schema};
}

/// The key is left out where there is no value.
template <class T>
Codec<std::optional<T>> if_any(Codec<T> inner) {
  Codec<std::optional<T>> codec = nullable(inner);
  codec.schema = inner.schema;
  codec.may_lack = true;
  return codec;
}
/// The key is left out where the list is empty.
template <class T>
Codec<std::vector<T>> if_any(Codec<std::vector<T>> list) {
  return {[list](const std::vector<T>& values) { return values.empty() ? Json(nullptr) : list.write(values); },
          [list](const Json& json, std::vector<T>& values) { list.read(json, values); }, list.schema, true};
}

/// A key that documents of this schema version did not have from the beginning: always written, and where it
/// is missing the member keeps its default.
template <class T>
Codec<T> added(Codec<T> codec) {
  codec.may_lack = true;
  return codec;
}

/// Keys that are data, with values of one kind.
template <class T>
Codec<std::map<std::string, T>> map_of(Codec<T> item) {
  return {[item](const std::map<std::string, T>& values) {
            Json object = Json::object();
            for (const auto& [key, value] : values) object[key] = item.write(value);
            return object;
          },
          [item](const Json& json, std::map<std::string, T>& values) {
            if (!json.is_object()) refuse("an object", json);
            for (const auto& [key, value] : json.items()) within(key, [&] { item.read(value, values[key]); });
          },
          [item](Definitions& definitions) {
            return Json{{"type", "object"}, {"additionalProperties", item.schema(definitions)}};
          }};
}

template <class T>
struct Object;

/// Written by hand as a specialisation for each struct; there is no general definition.
template <class T>
Object<T> describe();

template <class T>
const Object<T>& described();

/// `description` is called only when a value is written or read, since descriptions refer to each other.
template <class T>
Codec<T> object(const Object<T>& (*description)());

/// The codec that a member of type T has where its line names none.
template <class T>
struct Usual {
  static Codec<T> codec() { return object(&described<T>); }
};
template <class T>
Codec<T> usual() {
  return Usual<T>::codec();
}
template <>
struct Usual<double>;  // exact, number or finite?
template <>
struct Usual<bool> {
  static Codec<bool> codec() { return flag(); }
};
template <>
struct Usual<int> {
  static Codec<int> codec() { return whole<int>(); }
};
template <>
struct Usual<int64_t> {
  static Codec<int64_t> codec() { return whole<int64_t>(); }
};
template <>
struct Usual<std::string> {
  static Codec<std::string> codec() { return text(); }
};
template <class T>
struct Usual<std::vector<T>> {
  static Codec<std::vector<T>> codec() { return list(usual<T>()); }
};
template <class T>
struct Usual<std::optional<T>> {
  static Codec<std::optional<T>> codec() { return nullable(usual<T>()); }
};

/// A key of an object.
struct Key {
  std::string name;
  std::string help;  ///< for the schema
  bool may_lack = false;
  /// Offsets in the struct of the members that it stands for: a test counts them.
  std::vector<std::ptrdiff_t> members;
  bool last = false;  ///< read when all members are there, since it looks at other ones
};

/// One line of a description: a key and where in its struct the value stands.
struct AnyField {
  Key key;
  AnyCodec codec;  ///< of the owner: `codec.writer` takes the struct, and knows where in it the value stands
};

/// The value stands `offset` bytes into the owner.
AnyField field_at(std::ptrdiff_t offset, const char* name, const AnyCodec& codec, const char* help);
/// The field of a part that stands `offset` bytes into the owner.
AnyField field_of_part(std::ptrdiff_t offset, const AnyField& inner);

/// Where a member stands in its struct, in bytes.
template <class T, class M>
std::ptrdiff_t offset_of(M T::*member) {
  static const T owner{};
  return reinterpret_cast<const char*>(&(owner.*member)) - reinterpret_cast<const char*>(&owner);
}

/// A key and the member of T that it stands for.
template <class T>
struct Field : AnyField {
  template <class M>
  Field(const char* name, M T::*member, const char* help = "")
      : AnyField(field_at(offset_of(member), name, usual<M>(), help)) {}

  template <class M>
  Field(const char* name, M T::*member, const std::type_identity_t<Codec<M>>& codec, const char* help = "")
      : AnyField(field_at(offset_of(member), name, codec, help)) {}

  /// A member of a member: its key stands in the outer object.
  template <class P, class M>
  Field(const char* name, P T::*part, M P::*member, const std::type_identity_t<Codec<M>>& codec, const char* help = "")
      : AnyField(field_of_part(offset_of(part), field_at(offset_of(member), name, codec, help))) {}

  /// A value that is made from several members, and read back into them when the others have been read.
  template <class V, class... M>
  Field(const char* name, const Codec<V>& codec, std::type_identity_t<std::function<V(const T&)>> get,
        std::type_identity_t<std::function<void(T&, V)>> set, const char* help = "", M T::*... members)
      : AnyField{{name, help, codec.may_lack, {offset_of(members)...}, true},
                 Codec<T>([codec, get](const T& owner) { return codec.write(get(owner)); },
                          [codec, set](const Json& json, T& owner) {
                            V value{};
                            codec.read(json, value);
                            set(owner, std::move(value));
                          },
                          codec.schema, codec.may_lack)} {}
};

/// A JSON object as a view over a struct: all of its members, or some of them where a document splits the
/// struct.
struct AnyObject {
  std::string name;  ///< of its definition in the schema; empty: written where it stands
  std::string help;
  std::vector<AnyField> fields;
};

template <class T>
struct Object : AnyObject {
  /// `finish` is called on what was read: refuses members that contradict each other, sets those that no key holds.
  Object(std::string name, std::string help, std::initializer_list<Field<T>> fields, std::function<void(T&)> finish = nullptr)
      : AnyObject{std::move(name), std::move(help), {fields.begin(), fields.end()}}, finish(std::move(finish)) {}
  Object(std::string name, std::string help, std::vector<AnyField> fields, std::function<void(T&)> finish = nullptr)
      : AnyObject{std::move(name), std::move(help), std::move(fields)}, finish(std::move(finish)) {}

  std::function<void(T&)> finish;
};

template <class T>
const Object<T>& described() {
  static const Object<T> description = describe<T>();
  return description;
}

/// Fields of a part, to stand among those of the outer object.
template <class T, class P>
std::vector<AnyField> with_part(std::initializer_list<Field<T>> fields, P T::*part) {
  std::vector<AnyField> all(fields.begin(), fields.end());
  for (const AnyField& field : described<P>().fields) all.push_back(field_of_part(offset_of(part), field));
  return all;
}

/// The parts of an object's codec that need not know its struct.
Json write_object(const AnyObject& description, const void* owner);
void read_object(const AnyObject& description, const Json& json, void* owner);
/// As it is, and by its name among the definitions where it has one.
Json schema_of(const AnyObject& description, Definitions& definitions);
Json named_schema_of(const AnyObject& description, Definitions& definitions);

template <class T>
Codec<T> object(const Object<T>& (*description)()) {
  return {[description](const T& owner) { return write_object(description(), &owner); },
          [description](const Json& json, T& owner) {
            read_object(description(), json, &owner);
            if (description().finish) description().finish(owner);
          },
          [description](Definitions& definitions) { return named_schema_of(description(), definitions); }};
}

// results.json described: for each struct of results.h one list of its keys. The writer, the reader and the
// schema are made from it, and nothing else says what stands in the document.
//
// To add a field:
//   1. a member in results.h, with its default and its `///` line;
//   2. a line in the struct's description (results_cells.cpp, results_matrix.cpp), where its key shall stand:
//        KEY(half_life, added(exact()), "Seeds until ..."),
//      Member and key, codec, help for the schema; {"key", &S::member, ...} where the two differ. The codec
//      may be left out but for a double, which is exact() if anybody compares it, number() if it may be NaN
//      or infinite, finite() otherwise. `added` lets documents that were written before the key be read;
//      without it kResultsSchemaVersion must rise.
//   3. `lockstep schema results` prints the new schema.
// A test counts the members of every struct, so that none is forgotten here.

using Row = std::pair<std::string, std::string>;

template <>
struct Usual<VerdictKind> {
  static Codec<VerdictKind> codec() { return words<VerdictKind>(verdict_names(), "verdict", "verdict"); }
};
template <>
struct Usual<OutcomeTest> {
  static Codec<OutcomeTest> codec() { return words<OutcomeTest>(outcome_test_names(), "test"); }
};
template <>
struct Usual<InterimEnd> {
  static Codec<InterimEnd> codec() { return words<InterimEnd>(interim_end_names(), "end of the looks"); }
};

template <>
struct Usual<CaseVerdict> {
  static Codec<CaseVerdict> codec() {
    return words<CaseVerdict>(case_verdict_names(), "verdict of a case", "case_verdict");
  }
};

/// The questions of matrices, then the word that stands where a suite asked.
inline std::span<const std::string_view> asked_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all(question_names().begin(), question_names().end());
    all.push_back(kSuiteQuestion);
    return all;
  }();
  return names;
}

/// A question by its name.
inline Codec<std::string> question_name() {
  return {[](const std::string& value) { return Json(value); },
          [](const Json& json, std::string& value) {
            value = asked_names()[index_of_word(json, asked_names(), "question")];
          },
          [](Definitions& definitions) { return schema_of_words(definitions, asked_names(), ""); }};
}

// Descriptions that both files use. Within a file, a description stands above its uses.
template <>
Object<Row> describe();
template <>
Object<Layout> describe();
template <>
Object<Interval> describe();
template <>
Object<GradientSignature> describe();
template <>
Object<MetricDifference> describe();
template <>
Object<StepCosts> describe();
template <>
Object<SuiteResult> describe();
template <>
Object<SuiteTable> describe();
template <>
Object<SuiteChart> describe();
template <>
Object<CellResult> describe();
template <>
Object<ReferenceResult> describe();
template <>
Object<Results> describe();

/// The part of an outcome that stands under a cell's key "statistics"; the rest is described<Outcome>().
const Object<Outcome>& statistics_of_an_outcome();

}  // namespace lockstep::results_format
