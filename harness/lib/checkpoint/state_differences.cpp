#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "harness/lib/checkpoint/state.h"

namespace lockstep::checkpoint {
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

}  // namespace lockstep::checkpoint
