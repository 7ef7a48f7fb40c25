#include "harness/lib/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/base/clean_text.h"
#include "harness/base/json_text.h"
#include "harness/lib/checkpoint/state.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";

/// Bytes of so many elements; nothing if they are more than can be counted.
std::optional<uint64_t> bytes_of(const std::vector<int64_t>& shape, std::size_t element) {
  uint64_t bytes = element;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

bool is_count(const nlohmann::ordered_json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
}

std::string read_tensor(const std::string& name, const nlohmann::ordered_json& entry, ShardTensor& tensor) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets") || !entry["dtype"].is_string() || !entry["shape"].is_array()) {
    return "dtype, shape and data_offsets expected, found " + entry.dump();
  }
  tensor.name = name;
  tensor.dtype = entry["dtype"].get<std::string>();
  const std::optional<std::size_t> element = element_bytes(tensor.dtype);
  if (!element) return "no type is called " + in_quotes(tensor.dtype);
  for (const auto& extent : entry["shape"]) {
    if (!is_count(extent)) return "a shape of counts expected, found " + entry["shape"].dump();
    tensor.shape.push_back(extent.get<int64_t>());
    if (tensor.shape.back() < 0) return "a shape of counts expected, found " + entry["shape"].dump();
  }
  const auto& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !is_count(offsets[0]) || !is_count(offsets[1])) {
    return "two data_offsets expected, found " + offsets.dump();
  }
  tensor.begin = offsets[0].get<uint64_t>();
  tensor.end = offsets[1].get<uint64_t>();
  const std::optional<uint64_t> expected = bytes_of(tensor.shape, *element);
  if (tensor.end < tensor.begin || !expected || *expected != tensor.end - tensor.begin) {
    return fmt::format("{} bytes expected of its shape, found offsets {} to {}", expected.value_or(0),
                       tensor.begin, tensor.end);
  }
  return "";
}

std::string read_metadata(const nlohmann::ordered_json& entries,
                          std::map<std::string, std::string>& metadata) {
  if (!entries.is_object()) return "__metadata__: an object expected";
  for (const auto& [name, value] : entries.items()) {
    if (!value.is_string())
      return fmt::format("__metadata__: {}: a text expected, found {}", name, value.dump());
    metadata[name] = value.get<std::string>();
  }
  return "";
}

uint64_t length_at(std::string_view file) {
  uint64_t length = 0;
  for (std::size_t byte = kLengthBytes; byte-- > 0;)
    length = length << 8 | static_cast<unsigned char>(file[byte]);
  return length;
}

}  // namespace

std::string encode_header(const ShardHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  for (const ShardTensor& tensor : header.tensors) {
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = json.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  std::string bytes;
  for (std::size_t byte = 0; byte < kLengthBytes; ++byte) {
    bytes.push_back(static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * byte) & 0xff));
  }
  return bytes + text;
}

ShardHeader decode_header(std::string_view file, uint64_t& data_begin, std::string& problem) {
  ShardHeader header;
  problem.clear();
  if (file.size() < kLengthBytes) {
    problem = fmt::format("8 bytes of length expected, found {} bytes", file.size());
    return header;
  }
  const uint64_t length = length_at(file);
  if (length > kMostHeaderBytes || length > file.size() - kLengthBytes) {
    problem =
        fmt::format("a header of {} bytes expected, found {} bytes", length, file.size() - kLengthBytes);
    return header;
  }
  data_begin = kLengthBytes + length;
  JsonProblem unread;
  const nlohmann::ordered_json json = parse_ordered_json(file.substr(kLengthBytes, length), &unread);
  if (!unread.message.empty() || !json.is_object()) {
    problem = "header: " + (unread.message.empty() ? "an object expected" : unread.text());
    return header;
  }
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadata) {
      problem = read_metadata(entry, header.metadata);
    } else {
      problem = read_tensor(name, entry, header.tensors.emplace_back());
      if (!problem.empty()) problem = "header: " + in_quotes(name) + ": " + problem;
    }
    if (!problem.empty()) return header;
  }
  const auto by_place = [](const ShardTensor& a, const ShardTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  };
  std::sort(header.tensors.begin(), header.tensors.end(), by_place);
  uint64_t at = 0;
  for (const ShardTensor& tensor : header.tensors) {
    if (tensor.begin != at) {
      problem = fmt::format("header: {}: data from {} on expected, found {}", in_quotes(tensor.name), at,
                            tensor.begin);
      return header;
    }
    at = tensor.end;
  }
  if (at != file.size() - data_begin) {
    problem = fmt::format("{} bytes of data expected, found {}", at, file.size() - data_begin);
  }
  return header;
}

}  // namespace lockstep::checkpoint
