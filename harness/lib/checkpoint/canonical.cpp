#include "harness/lib/checkpoint/canonical.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/clean_text.h"
#include "harness/base/json_text.h"
#include "harness/base/sealed_json.h"

namespace lockstep::checkpoint {
namespace {

std::string text_of(const nlohmann::json& object) {
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string shown(const nlohmann::json& value) {
  if (value.is_discarded()) return "nothing";
  const std::string text = clean_line(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return text.size() > 60 ? text.substr(0, 60) + "…" : text;
}

const nlohmann::json kNothing(nlohmann::json::value_t::discarded);
const nlohmann::json kNoList = nlohmann::json::array();
const nlohmann::json kNoObject = nlohmann::json::object();

}  // namespace

std::string canonical_text(nlohmann::json object) {
  seal(object);
  return text_of(object);
}

nlohmann::json canonical_object(std::string_view text, std::string& problem) {
  JsonProblem unread;
  nlohmann::json object = parse_json(text, &unread);
  problem.clear();
  if (text.empty()) {
    problem = "is empty";
  } else if (!unread.message.empty()) {
    problem = "is " + unread.text();
  } else {
    problem = seal_problem(object);
    // White space and ways to write a number are not in the checksum.
    if (problem.empty() && text_of(object) != text)
      problem = "is damaged: its bytes are not those that were written";
  }
  return object;
}

const nlohmann::json& Fields::at(const char* name) {
  if (!object_.is_object()) return kNothing;
  const auto found = object_.find(name);
  return found == object_.end() ? kNothing : *found;
}

void Fields::expect(bool right, const std::string& field, const std::string& expected,
                    const nlohmann::json& found) {
  if (!right && problem_.empty())
    problem_ = fmt::format("{}: {} expected, found {}", field, expected, shown(found));
}

int64_t Fields::count(const char* name, int64_t least) {
  const nlohmann::json& value = at(name);
  const bool right = value.is_number_integer() && value.get<int64_t>() >= least;
  expect(right, name, fmt::format("a whole number from {}", least), value);
  return right ? value.get<int64_t>() : least;
}

std::string Fields::text(const char* name) {
  const nlohmann::json& value = at(name);
  expect(value.is_string(), name, "a text", value);
  return value.is_string() ? value.get<std::string>() : "";
}

bool Fields::flag(const char* name) {
  const nlohmann::json& value = at(name);
  expect(value.is_boolean() || value.is_discarded(), name, "true or false", value);
  return value.is_boolean() && value.get<bool>();
}

std::string Fields::hash(const char* name, std::size_t digits) {
  const nlohmann::json& value = at(name);
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const bool right = text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  expect(right, name, fmt::format("{} hexadecimal digits", digits), value);
  return right ? text : "";
}

const nlohmann::json& Fields::list(const char* name) {
  const nlohmann::json& value = at(name);
  expect(value.is_array(), name, "a list", value);
  return value.is_array() ? value : kNoList;
}

const nlohmann::json& Fields::object(const char* name) {
  const nlohmann::json& value = at(name);
  expect(value.is_object(), name, "an object", value);
  return value.is_object() ? value : kNoObject;
}

void Fields::only(std::initializer_list<std::string_view> names) {
  if (!object_.is_object()) return;
  for (const auto& [name, value] : object_.items()) {
    expect(std::find(names.begin(), names.end(), name) != names.end(), name, "no such field", value);
  }
}

}  // namespace lockstep::checkpoint
