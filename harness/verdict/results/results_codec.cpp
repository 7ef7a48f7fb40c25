#include "harness/verdict/results/results_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "harness/base/hex.h"
#include "harness/base/json_number.h"

namespace lockstep::results_format {
namespace {

std::string read_text(const Json& json) {
  if (!json.is_string()) refuse("a text", json);
  return json.get<std::string>();
}

double read_number(const Json& json) {
  if (const std::optional<double> number = number_in_json(json)) return *number;
  if (!json.is_string()) refuse("a number", json);
  throw Unreadable("\"" + json.get<std::string>() + "\" is not a number");
}

/// The bits; throws if the value beside them says something else.
double read_exact(const Json& json) {
  if (!json.is_object() || !json.contains("value") || !json.contains("bits"))
    refuse("a number as an object of value and bits", json);
  const std::string text = read_text(json.at("bits"));
  const std::optional<uint64_t> raw = from_hex16(text);
  if (!raw) throw Unreadable("\"" + text + "\" is not 16 hexadecimal digits");
  const double value = std::bit_cast<double>(*raw), said = read_number(json.at("value"));
  if (value != said && !(std::isnan(value) && std::isnan(said)))
    throw Unreadable("value " + json.at("value").dump() + " and bits " + text + " disagree");
  return value;
}

int64_t read_whole(const Json& json, int64_t least, int64_t most) {
  if (!json.is_number_integer()) refuse("a whole number", json);
  const bool too_large = json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(most);
  if (too_large || json.get<int64_t>() < least) throw Unreadable(json.dump() + " is out of range");
  return json.get<int64_t>();
}

Json schema_of_number(Definitions& definitions) {
  return definitions.ref("number", [] {
    return Json{{"description", "A number; NaN and infinities as strings, never null."},
                {"anyOf", Json::array({Json{{"type", "number"}},
                                       Json{{"type", "string"}, {"enum", {"nan", "inf", "-inf"}}}})}};
  });
}

Json schema_of_exact(Definitions& definitions) {
  return definitions.ref("exact", [&definitions] {
    return Json{{"type", "object"},
                {"description", "A statistic: its value, and the 16 hexadecimal digits of its 64 bits."},
                {"required", {"value", "bits"}},
                {"properties",
                 {{"value", schema_of_number(definitions)},
                  {"bits", {{"type", "string"}, {"pattern", "^[0-9a-f]{16}$"}}}}},
                {"additionalProperties", false}};
  });
}

}  // namespace

void Unreadable::stands_in(const std::string& step) {
  where_ = step + (where_.empty() || where_.front() == '[' ? "" : ".") + where_;
}

std::string Unreadable::text() const { return where_.empty() ? what() : where_ + ": " + what(); }

void refuse(const char* expected, const Json& found) {
  const std::string what = found.is_primitive() ? found.dump(-1, ' ', false, Json::error_handler_t::replace)
                                                : fmt::format("an {}", found.type_name());
  throw Unreadable(fmt::format("{} was expected, found {}", expected, what));
}

Json Definitions::ref(const std::string& name, const std::function<Json()>& make) {
  if (!all_.contains(name)) all_[name] = make();
  return {{"$ref", "#/definitions/" + name}};
}

Codec<double> exact() {
  return {json_number_and_bits<Json>, [](const Json& json, double& value) { value = read_exact(json); },
          schema_of_exact};
}

Codec<double> number() {
  return {json_number<Json>, [](const Json& json, double& value) { value = read_number(json); },
          schema_of_number};
}

Codec<double> finite() {
  Codec<double> codec = number();
  codec.schema = [](Definitions&) { return Json{{"type", "number"}}; };
  return codec;
}

template <class T>
Codec<T> whole(std::optional<int64_t> least) {
  return {[](const T& value) { return Json(value); },
          [](const Json& json, T& value) {
            using Limits = std::numeric_limits<T>;
            value = static_cast<T>(read_whole(json, Limits::min(), Limits::max()));
          },
          [least](Definitions&) {
            Json schema{{"type", "integer"}};
            if (least) schema["minimum"] = *least;
            return schema;
          }};
}
template Codec<int> whole(std::optional<int64_t>);
template Codec<int64_t> whole(std::optional<int64_t>);

Codec<int> constant(int value) {
  return {[](int written) { return Json(written); },
          [value](const Json& json, int& read) {
            if (json != value) refuse(std::to_string(value).c_str(), json);
            read = value;
          },
          [value](Definitions&) { return Json{{"const", value}}; }};
}

Codec<bool> flag() {
  return {[](bool value) { return Json(value); },
          [](const Json& json, bool& value) {
            if (!json.is_boolean()) refuse("true or false", json);
            value = json.get<bool>();
          },
          [](Definitions&) { return Json{{"type", "boolean"}}; }};
}

Codec<std::string> text() {
  return {[](const std::string& value) { return Json(value); },
          [](const Json& json, std::string& value) { value = read_text(json); },
          [](Definitions&) { return Json{{"type", "string"}}; }};
}

Codec<std::string> one_of(std::vector<std::string> words) {
  return {[](const std::string& value) { return Json(value); },
          [words](const Json& json, std::string& value) {
            value = read_text(json);
            if (std::ranges::find(words, value) == words.end()) throw Unreadable("unknown word \"" + value + "\"");
          },
          [words](Definitions&) { return Json{{"type", "string"}, {"enum", words}}; }};
}

std::size_t index_of_word(const Json& json, std::span<const std::string_view> names, const char* what) {
  const std::string word = read_text(json);
  const auto found = std::ranges::find(names, word);
  if (found == names.end()) throw Unreadable(fmt::format("unknown {} \"{}\"", what, word));
  return static_cast<std::size_t>(found - names.begin());
}

Json schema_of_words(Definitions& definitions, std::span<const std::string_view> names,
                     const std::string& name) {
  const auto make = [names] {
    Json schema{{"type", "string"}, {"enum", Json::array()}};
    for (const std::string_view word : names) schema["enum"].push_back(word);
    return schema;
  };
  return name.empty() ? make() : definitions.ref(name, make);
}

AnyField field_at(std::ptrdiff_t offset, const char* name, const AnyCodec& codec, const char* help) {
  return field_of_part(offset, {{name, help, codec.may_lack, {}, false}, codec});
}

AnyField field_of_part(std::ptrdiff_t offset, const AnyField& inner) {
  AnyField field = inner;
  field.key.members = {offset};
  field.codec.writer = [offset, write = inner.codec.writer](const void* owner) {
    return write(static_cast<const char*>(owner) + offset);
  };
  field.codec.reader = [offset, read = inner.codec.reader](const Json& json, void* owner) {
    read(json, static_cast<char*>(owner) + offset);
  };
  return field;
}

Json write_object(const AnyObject& description, const void* owner) {
  Json object = Json::object();
  for (const AnyField& field : description.fields) {
    Json value = field.codec.writer(owner);
    if (!field.key.may_lack || !value.is_null()) object[field.key.name] = std::move(value);
  }
  return object;
}

void read_object(const AnyObject& description, const Json& json, void* owner) {
  if (!json.is_object()) refuse("an object", json);
  for (const bool last : {false, true}) {
    for (const AnyField& field : description.fields) {
      if (field.key.last != last) continue;
      const auto found = json.find(field.key.name);
      if (found != json.end()) {
        within(field.key.name, [&] { field.codec.reader(*found, owner); });
      } else if (!field.key.may_lack) {
        throw Unreadable("the key \"" + field.key.name + "\" is missing");
      }
    }
  }
}

Json schema_of(const AnyObject& description, Definitions& definitions) {
  Json schema{{"type", "object"}};
  if (!description.help.empty()) schema["description"] = description.help;
  schema["required"] = Json::array();
  schema["properties"] = Json::object();
  for (const AnyField& field : description.fields) {
    const Key& key = field.key;
    const Json value = field.codec.schema(definitions);
    if (!key.may_lack) schema["required"].push_back(key.name);
    // Beside $ref draft-07 reads nothing else.
    const bool wrapped = !key.help.empty() && value.contains("$ref");
    Json& property = schema["properties"][key.name] = wrapped ? Json{{"anyOf", Json::array({value})}} : value;
    if (!key.help.empty()) property["description"] = key.help;
  }
  schema["additionalProperties"] = false;
  return schema;
}

Json named_schema_of(const AnyObject& description, Definitions& definitions) {
  const auto make = [&] { return schema_of(description, definitions); };
  return description.name.empty() ? make() : definitions.ref(description.name, make);
}

}  // namespace lockstep::results_format
