#include "harness/lib/checkpoint/state.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep::checkpoint {
namespace {

struct Dtype {
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<Dtype, 13> kDtypes{{{"BOOL", 1},
                                         {"U8", 1},
                                         {"I8", 1},
                                         {"I16", 2},
                                         {"U16", 2},
                                         {"F16", 2},
                                         {"BF16", 2},
                                         {"I32", 4},
                                         {"U32", 4},
                                         {"F32", 4},
                                         {"F64", 8},
                                         {"I64", 8},
                                         {"U64", 8}}};

constexpr std::array<Kind, 16> kKinds{{{kind::parameters, "parameters"},
                                       {kind::moments, "moments"},
                                       {kind::optimizer_step, "optimizer step"},
                                       {kind::scheduler, "scheduler"},
                                       {kind::accumulation, "accumulation position"},
                                       {kind::sampler_epoch, "sampler epoch"},
                                       {kind::sampler_permutation, "sampler permutation"},
                                       {kind::sampler_cursor, "sampler cursor"},
                                       {kind::best_metric, "best metric"},
                                       {kind::patience, "early-stop patience"},
                                       {kind::loss_scale, "loss scale"},
                                       {kind::averaged_weights, "averaged weights"},
                                       {kind::normalisers, "running normalisers"},
                                       {kind::control_values, "control values"},
                                       {kind::cached_controls, "cached control values"},
                                       {kind::curves, "curves"}}};

constexpr std::array<std::string_view, 3> kPlacements{"replicated", "sharded", "per_rank"};

}  // namespace

std::optional<std::size_t> element_bytes(std::string_view dtype) {
  for (const Dtype& known : kDtypes) {
    if (known.name == dtype) return known.bytes;
  }
  return std::nullopt;
}

std::string_view name_of(Placement placement) { return kPlacements[static_cast<std::size_t>(placement)]; }

std::optional<Placement> placement_named(std::string_view name) {
  const auto at = std::find(kPlacements.begin(), kPlacements.end(), name);
  if (at == kPlacements.end()) return std::nullopt;
  return static_cast<Placement>(at - kPlacements.begin());
}

Slice even_slice(int64_t count, int part, int parts) {
  const int64_t whole = count / parts, rest = count % parts;
  const auto begin_of = [&](int64_t index) { return whole * index + rest * index / parts; };
  return {begin_of(part), begin_of(part + 1)};
}

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

Tensor owning(Tensor tensor, std::span<const std::byte> bytes) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  tensor.bytes = *copy;
  tensor.keeps = std::move(copy);
  return tensor;
}

std::span<const Kind> kinds() { return kKinds; }

std::string words_of(std::string_view kind_name) {
  if (kind_name.starts_with(kind::stream_prefix)) {
    return "random stream " + std::string(kind_name.substr(kind::stream_prefix.size()));
  }
  for (const Kind& known : kKinds) {
    if (known.name == kind_name) return std::string(known.words);
  }
  return std::string(kind_name);
}

Section& State::operator[](std::string_view kind_name) {
  const bool known =
      kind_name.starts_with(kind::stream_prefix) ||
      std::any_of(kKinds.begin(), kKinds.end(), [&](const Kind& kind) { return kind.name == kind_name; });
  LOCKSTEP_CHECK(known, "no kind of state is called " + std::string(kind_name));
  return sections[std::string(kind_name)];
}

const Section* State::find(std::string_view kind_name) const {
  const auto at = sections.find(kind_name);
  return at == sections.end() ? nullptr : &at->second;
}

State snapshot_of(const State& state) {
  State copy;
  for (const auto& [name, section] : state.sections) {
    Section& own = copy.sections[name];
    own.values = section.values;
    own.rank_values = section.rank_values;
    for (const Tensor& tensor : section.tensors) own.tensors.push_back(owning(tensor, tensor.bytes));
  }
  return copy;
}

namespace {

/// A value for people: {"value", "bits"} gives the value and, where values read alike, the bits.
std::string shown(const nlohmann::json& value, const nlohmann::json& other) {
  if (!value.is_object() || !value.contains("value") || !other.is_object()) return value.dump();
  const bool alike = other.contains("value") && other["value"] == value["value"];
  return alike ? fmt::format("{} (bits {})", value["value"].dump(), value.value("bits", ""))
               : value["value"].dump();
}

/// "sampler cursor: sample 371 expected, 355 seen": a value's name says what is counted.
void compare_values(const std::string& words, const nlohmann::json& expected, const nlohmann::json& seen,
                    std::vector<std::string>& differences) {
  for (const auto& [name, value] : expected.items()) {
    if (!seen.contains(name)) {
      differences.push_back(fmt::format("{}: {} {} expected, none seen", words, name, value.dump()));
    } else if (seen[name] != value) {
      differences.push_back(fmt::format("{}: {} {} expected, {} seen", words, name, shown(value, seen[name]),
                                        shown(seen[name], value)));
    }
  }
  for (const auto& [name, value] : seen.items()) {
    if (!expected.contains(name))
      differences.push_back(fmt::format("{}: no {} expected, {} seen", words, name, value.dump()));
  }
}

std::string form_of(const Tensor& tensor) {
  return fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "));
}

void compare_tensor(const std::string& words, const Tensor& expected, const Tensor& seen,
                    std::vector<std::string>& differences) {
  if (form_of(expected) != form_of(seen)) {
    differences.push_back(
        fmt::format("{}: {}: {} expected, {} seen", words, expected.name, form_of(expected), form_of(seen)));
    return;
  }
  if (!(expected.held() == seen.held()) || expected.bytes.size() != seen.bytes.size()) {
    differences.push_back(fmt::format("{}: {}: elements {} to {} expected, {} to {} seen", words,
                                      expected.name, expected.held().begin, expected.held().end,
                                      seen.held().begin, seen.held().end));
    return;
  }
  if (expected.bytes.empty() ||
      std::memcmp(expected.bytes.data(), seen.bytes.data(), expected.bytes.size()) == 0)
    return;
  const std::size_t size = std::max<std::size_t>(element_bytes(expected.dtype).value_or(1), 1);
  std::size_t count = 0, first = 0;
  const std::size_t elements = expected.bytes.size() / size;
  for (std::size_t at = 0; at < elements; ++at) {
    if (std::memcmp(expected.bytes.data() + at * size, seen.bytes.data() + at * size, size) == 0) continue;
    if (count++ == 0) first = at + static_cast<std::size_t>(expected.held().begin);
  }
  differences.push_back(fmt::format("{}: {} differs in {} of {} elements, first in element {}", words,
                                    expected.name, count, elements, first));
}

void compare_tensors(const std::string& words, const std::vector<Tensor>& expected,
                     const std::vector<Tensor>& seen, std::vector<std::string>& differences) {
  const auto named = [](const std::vector<Tensor>& all, const std::string& name) {
    return std::find_if(all.begin(), all.end(), [&](const Tensor& tensor) { return tensor.name == name; });
  };
  for (const Tensor& tensor : expected) {
    const auto found = named(seen, tensor.name);
    if (found == seen.end()) {
      differences.push_back(fmt::format("{}: {} is missing", words, tensor.name));
    } else {
      compare_tensor(words, tensor, *found, differences);
    }
  }
  for (const Tensor& tensor : seen) {
    if (named(expected, tensor.name) == expected.end()) {
      differences.push_back(fmt::format("{}: {} was not expected", words, tensor.name));
    }
  }
}

}  // namespace

std::vector<std::string> state_differences(const State& expected, const State& seen) {
  std::vector<std::string> differences;
  for (const auto& [name, section] : expected.sections) {
    const std::string words = words_of(name);
    const Section* const found = seen.find(name);
    if (found == nullptr) {
      differences.push_back(words + ": missing");
      continue;
    }
    compare_values(words, section.values, found->values, differences);
    compare_values(words, section.rank_values, found->rank_values, differences);
    compare_tensors(words, section.tensors, found->tensors, differences);
  }
  for (const auto& [name, section] : seen.sections) {
    if (expected.find(name) == nullptr) differences.push_back(words_of(name) + ": not expected");
  }
  return differences;
}

std::string permutation_hash(const std::vector<int64_t>& ids) {
  return long_hash_in_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
}

void put_position(State& state, const SamplerPosition& position) {
  state[kind::sampler_epoch].values["epoch"] = position.epoch;
  state[kind::sampler_permutation].values = {
      {"samples", position.samples}, {"seed", position.seed}, {"hash", position.permutation_hash}};
  state[kind::sampler_cursor].values["sample"] = position.cursor;
}

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
