#include "harness/lib/checkpoint/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/checkpoint/state.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kSaving = ".saving-";
constexpr std::string_view kReplaced = ".replaced-";

/// A number at the text's head, which is taken off; as this program writes it, without leading zeros.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  const std::size_t digits = static_cast<std::size_t>(end - text.data());
  if (digits > 1 && text[0] == '0') return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

bool take(std::string_view& text, std::string_view head) {
  if (!text.starts_with(head)) return false;
  text.remove_prefix(head.size());
  return true;
}

struct Place {
  int64_t epoch = 0, step = 0;
};

std::optional<Place> take_place(std::string_view& text) {
  if (!take(text, "epoch_")) return std::nullopt;
  const std::optional<int64_t> epoch = take_number(text);
  if (!epoch || !take(text, "_step_")) return std::nullopt;
  const std::optional<int64_t> step = take_number(text);
  if (!step) return std::nullopt;
  return Place{*epoch, *step};
}

/// "-PID-NONCE", up to the end.
std::optional<Writer> take_writer(std::string_view text) {
  if (!take(text, "-")) return std::nullopt;
  const std::optional<int64_t> process = take_number(text);
  if (!process || !take(text, "-") || !from_hex16(text)) return std::nullopt;
  return Writer{*process, std::string(text)};
}

std::string with_writer(std::string_view head, std::string_view name, const Writer& writer) {
  return fmt::format("{}{}-{}-{}", head, name, writer.process, writer.nonce);
}

bool is_shard_name(std::string_view name) {
  if (!take(name, "rank-")) return false;
  const std::optional<int64_t> rank = take_number(name);
  if (!rank || !take(name, "-of-")) return false;
  const std::optional<int64_t> world_size = take_number(name);
  return world_size && *rank < *world_size && name == ".safetensors";
}

}  // namespace

std::string checkpoint_name(int64_t epoch, int64_t step) {
  return fmt::format("epoch_{}_step_{}", epoch, step);
}

std::string shard_name(int rank, int world_size) {
  return fmt::format("rank-{}-of-{}.safetensors", rank, world_size);
}

bool is_part_name(std::string_view name) {
  if (name == kManifest || name == kCommit || is_shard_name(name)) return true;
  return take(name, ".") && take(name, kCommit) && take_writer(name);
}

EntryName parse_entry_name(std::string_view name) {
  EntryName entry;
  std::string_view rest = name;
  if (take(rest, kSaving)) {
    entry.kind = EntryKind::saving;
  } else if (take(rest, kReplaced)) {
    entry.kind = EntryKind::replaced;
  } else if (take(rest, ".")) {
    if (!take(rest, kLatest) && !take(rest, kBest)) return {};
    const std::optional<Writer> writer = take_writer(rest);
    if (!writer) return {};
    entry.kind = EntryKind::temporary;
    entry.writer = *writer;
    return entry;
  } else {
    entry.kind = EntryKind::checkpoint;
  }
  const std::optional<Place> place = take_place(rest);
  if (!place) return {};
  entry.epoch = place->epoch;
  entry.step = place->step;
  if (entry.kind == EntryKind::checkpoint) return rest.empty() ? entry : EntryName{};
  const std::optional<Writer> writer = take_writer(rest);
  if (!writer) return {};
  entry.writer = *writer;
  return entry;
}

std::string saving_name(const std::string& checkpoint, const Writer& writer) {
  return with_writer(kSaving, checkpoint, writer);
}

std::string replaced_name(const std::string& checkpoint, const Writer& writer) {
  return with_writer(kReplaced, checkpoint, writer);
}

std::string temporary_name_of(std::string_view file, const Writer& writer) {
  return with_writer(".", file, writer);
}

Failure failure_of(const std::string& path, std::string_view verb, std::error_code error) {
  if (!error) return {};
  return {fmt::format("{}: cannot {}: {}", path, verb, error.message()), error};
}

std::error_code write_fully(Storage& storage, int file, std::string_view bytes) {
  while (!bytes.empty()) {
    std::size_t written = 0;
    if (const auto error = uninterrupted([&] { return storage.write(file, bytes, written); })) return error;
    // A file that takes no byte and names no error would be written to for ever.
    if (written == 0) return std::make_error_code(std::errc::io_error);
    bytes.remove_prefix(written);
  }
  return {};
}

std::error_code close_fully(Storage& storage, int file) {
  const std::error_code error = storage.close(file);
  // Linux has closed it by then; the number may be another file's already.
  return error == std::errc::interrupted ? std::error_code() : error;
}

Failure look(Storage& storage, const std::string& path, PathStatus& status) {
  return attempt(path, "look", [&] { return storage.stat(path, status); });
}

Failure finish_file(Storage& storage, const std::string& path, int file, Failure failure, Durability durability) {
  // A failed sync is final: the next one on the same file would say that all is well.
  if (!failure && durability.sync_files) failure = attempt(path, "sync", [&] { return storage.sync(file); });
  const std::error_code unclosed = close_fully(storage, file);
  if (!failure) failure = failure_of(path, "close", unclosed);
  if (failure) uninterrupted([&] { return storage.unlink(path); });
  return failure;
}

Failure write_new_file(Storage& storage, const std::string& path, std::string_view bytes,
                       Durability durability) {
  int file = -1;
  if (Failure failure = attempt(path, "create", [&] { return storage.create(path, file); })) return failure;
  return finish_file(storage, path, file, failure_of(path, "write", write_fully(storage, file, bytes)), durability);
}

Failure replace_file(Storage& storage, const std::string& folder, std::string_view name,
                     std::string_view bytes, const Writer& writer, Durability durability, bool* renamed) {
  if (renamed != nullptr) *renamed = false;
  const std::string temporary = folder + "/" + temporary_name_of(name, writer);
  if (Failure failure = write_new_file(storage, temporary, bytes, durability)) return failure;
  if (Failure failure = rename_path(storage, temporary, fmt::format("{}/{}", folder, name))) {
    uninterrupted([&] { return storage.unlink(temporary); });
    return failure;
  }
  if (renamed != nullptr) *renamed = true;
  return sync_names(storage, folder, durability);
}

Failure sync_names(Storage& storage, const std::string& folder, Durability durability) {
  if (!durability.sync_folders) return {};
  return attempt(folder, "sync", [&] { return storage.sync_folder(folder); });
}

Failure rename_path(Storage& storage, const std::string& from, const std::string& to) {
  const std::string verb = "rename to " + to.substr(to.rfind('/') + 1);
  return attempt(from, verb, [&] { return storage.rename(from, to); });
}

bool is_refusal(std::error_code error) {
  constexpr std::errc kDamage[] = {
      std::errc::no_such_file_or_directory, std::errc::io_error,         std::errc::is_a_directory,
      std::errc::not_a_directory,           std::errc::invalid_argument, std::errc::file_too_large};
  return error && std::find(std::begin(kDamage), std::end(kDamage), error) == std::end(kDamage);
}

SmallFile read_small_file(Storage& storage, const std::string& path, uint64_t most_bytes) {
  SmallFile result;
  int file = -1;
  if (const auto error = uninterrupted([&] { return storage.open(path, file); })) {
    result.missing = error == std::errc::no_such_file_or_directory;
    result.failure = failure_of(path, "read", error);
    return result;
  }
  std::array<char, 65536> block;
  std::error_code error;
  for (std::size_t got = 1; got > 0 && !error;) {
    error = uninterrupted([&] { return storage.read(file, block, got); });
    if (!error) result.text.append(block.data(), got);
    if (result.text.size() > most_bytes) error = std::make_error_code(std::errc::file_too_large);
  }
  close_fully(storage, file);
  result.failure = failure_of(path, "read", error);
  return result;
}

namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "lockstep checkpoint";
constexpr int64_t kMostRanks = 1 << 20;

Json json_of(const TensorEntry& tensor) {
  Json json = {{"name", tensor.name}, {"dtype", tensor.dtype}, {"placement", name_of(tensor.placement)}};
  if (tensor.placement == Placement::per_rank) {
    json["shapes"] = tensor.shapes;
    return json;
  }
  json["shape"] = tensor.shape;
  if (tensor.placement == Placement::sharded) {
    Json slices = Json::array();
    for (const Slice& slice : tensor.slices) slices.push_back({slice.begin, slice.end});
    json["slices"] = std::move(slices);
  }
  return json;
}

Json json_of(const KindEntry& kind) {
  Json tensors = Json::array();
  for (const TensorEntry& tensor : kind.tensors) tensors.push_back(json_of(tensor));
  return {{"tensors", std::move(tensors)}, {"values", kind.values}, {"rank_values", kind.rank_values}};
}

bool is_shape(const Json& json) {
  if (!json.is_array()) return false;
  for (const Json& extent : json) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < 0) return false;
  }
  return true;
}

std::vector<int64_t> shape_from(const Json& json, const std::string& where, Fields& fields) {
  fields.expect(is_shape(json), where, "a shape of counts", json);
  return is_shape(json) ? json.get<std::vector<int64_t>>() : std::vector<int64_t>();
}

/// The ranks' slices must be each element once.
std::vector<Slice> slices_from(const Json& json, const TensorEntry& tensor, const std::string& where,
                               Fields& fields) {
  Tensor whole;
  whole.shape = tensor.shape;
  std::vector<Slice> slices;
  int64_t at = 0;
  for (const Json& slice : json) {
    const bool right = is_shape(slice) && slice.size() == 2 && slice[0].get<int64_t>() == at &&
                       slice[1].get<int64_t>() >= at;
    fields.expect(right, where, fmt::format("a slice from element {} on", at), slice);
    if (!right) return slices;
    at = slice[1].get<int64_t>();
    slices.push_back({slice[0].get<int64_t>(), at});
  }
  fields.expect(at == whole.elements(), where, fmt::format("slices of {} elements", whole.elements()),
                Json(at));
  return slices;
}

TensorEntry tensor_from(const Json& json, const std::string& kind, std::size_t ranks, std::string& problem) {
  Fields fields(json, problem);
  TensorEntry tensor;
  tensor.name = fields.text("name");
  const std::string where = fmt::format("kinds: {}: {}", kind, tensor.name);
  tensor.dtype = fields.text("dtype");
  fields.expect(element_bytes(tensor.dtype).has_value(), where + ": dtype", "a type of safetensors",
                Json(tensor.dtype));
  const std::string placement = fields.text("placement");
  fields.expect(placement_named(placement).has_value(), where + ": placement", "a placement",
                Json(placement));
  tensor.placement = placement_named(placement).value_or(Placement::replicated);
  if (tensor.placement == Placement::per_rank) {
    fields.only({"name", "dtype", "placement", "shapes"});
    const Json& shapes = fields.list("shapes");
    fields.expect(shapes.size() == ranks, where + ": shapes", fmt::format("{} shapes", ranks),
                  Json(shapes.size()));
    for (const Json& shape : shapes) tensor.shapes.push_back(shape_from(shape, where + ": shapes", fields));
    return tensor;
  }
  tensor.shape = shape_from(fields.list("shape"), where + ": shape", fields);
  if (tensor.placement == Placement::replicated) {
    fields.only({"name", "dtype", "placement", "shape"});
    return tensor;
  }
  fields.only({"name", "dtype", "placement", "shape", "slices"});
  const Json& slices = fields.list("slices");
  fields.expect(slices.size() == ranks, where + ": slices", fmt::format("{} slices", ranks),
                Json(slices.size()));
  tensor.slices = slices_from(slices, tensor, where + ": slices", fields);
  return tensor;
}

KindEntry kind_from(const Json& json, const std::string& name, std::size_t ranks, std::string& problem) {
  Fields fields(json, problem);
  KindEntry kind;
  fields.only({"tensors", "values", "rank_values"});
  for (const Json& tensor : fields.list("tensors"))
    kind.tensors.push_back(tensor_from(tensor, name, ranks, problem));
  kind.values = fields.object("values");
  const Json& rank_values = fields.list("rank_values");
  fields.expect(rank_values.size() == ranks, fmt::format("kinds: {}: rank_values", name),
                fmt::format("{} objects", ranks), Json(rank_values.size()));
  for (const Json& values : rank_values) kind.rank_values.push_back(values);
  return kind;
}

void read_common(Fields& fields, SaveIdentity& record) {
  record.save_id = fields.hash("save_id", 32);
  record.sequence = fields.count("sequence", 1);
  record.epoch = fields.count("epoch");
  record.step = fields.count("step");
  const int64_t ranks = fields.count("world_size", 1);
  fields.expect(ranks <= kMostRanks, "world_size", fmt::format("at most {}", kMostRanks), Json(ranks));
  record.world_size = static_cast<int>(std::min(ranks, kMostRanks));
  record.best = fields.flag("best");
  record.config_hash = fields.text("config_hash");
}

Json common_json(const SaveIdentity& record) {
  return {{"format", kFormat},
          {"format_version", kFormatVersion},
          {"save_id", record.save_id},
          {"sequence", record.sequence},
          {"epoch", record.epoch},
          {"step", record.step},
          {"world_size", record.world_size},
          {"best", record.best},
          {"config_hash", record.config_hash}};
}

/// Says of a newer format that it is one before anything else is compared with it.
std::string format_problem(const Json& object, int& version) {
  const Json found = object.value("format", Json());
  if (found != kFormat) return fmt::format("format: \"{}\" expected, found {}", kFormat, found.dump());
  const auto number = object.find("format_version");
  if (number == object.end() || !number->is_number_integer())
    return "format_version: a whole number expected";
  const int64_t at = number->get<int64_t>();
  version = static_cast<int>(std::clamp<int64_t>(at, 0, 1 << 30));
  if (at >= kOldestFormatVersion && at <= kFormatVersion) return "";
  return fmt::format("format_version: {} expected, found {}{}", kFormatVersion, at,
                     at > kFormatVersion ? "; a newer lockstep wrote it, use that one" : "");
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  Json json = common_json(manifest);
  json["writer"] = {{"process", manifest.writer.process}, {"nonce", manifest.writer.nonce}};
  json["files"] = Json::array();
  for (const FileEntry& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"length", file.length}, {"hash", file.hash}});
  }
  json["kinds"] = Json::object();
  for (const auto& [name, kind] : manifest.kinds) json["kinds"][name] = json_of(kind);
  return canonical_text(std::move(json));
}

Manifest manifest_from(std::string_view text, std::string& problem, bool* newer) {
  Manifest manifest;
  std::string damage;
  const Json json = canonical_object(text, damage);
  problem = damage.empty() ? format_problem(json, manifest.format_version) : damage;
  if (newer != nullptr) *newer = damage.empty() && manifest.format_version > kFormatVersion;
  // Of a damaged one too: the commit record tells which field was changed.
  std::string unread;
  Fields fields(json, problem.empty() ? problem : unread);
  fields.only({"checksum", "format", "format_version", "save_id", "sequence", "epoch", "step", "world_size",
               "best", "config_hash", "writer", "files", "kinds"});
  read_common(fields, manifest);
  // A field that cannot be read contradicts nothing.
  if (damage.empty() ? !problem.empty() : !unread.empty()) manifest.save_id.clear();
  if (!problem.empty()) return manifest;
  Fields writer(fields.object("writer"), problem);
  manifest.writer = {writer.count("process"), writer.hash("nonce", 16)};
  const Json& files = fields.list("files");
  const std::size_t ranks = static_cast<std::size_t>(manifest.world_size);
  fields.expect(files.size() == ranks, "files", fmt::format("{} files", ranks), Json(files.size()));
  for (const Json& entry : files) {
    Fields file(entry, problem);
    file.only({"name", "length", "hash"});
    const std::string expected = shard_name(static_cast<int>(manifest.files.size()), manifest.world_size);
    manifest.files.push_back(
        {file.text("name"), static_cast<uint64_t>(file.count("length")), file.hash("hash", 32)});
    fields.expect(manifest.files.back().name == expected, "files: name", expected,
                  Json(manifest.files.back().name));
    if (!problem.empty()) return manifest;
  }
  for (const auto& [name, kind] : fields.object("kinds").items()) {
    manifest.kinds[name] = kind_from(kind, name, ranks, problem);
  }
  return manifest;
}

CommitRecord commit_of(const Manifest& manifest, std::string_view manifest_text) {
  return {manifest, manifest_text.size(), long_hash_in_hex(manifest_text)};
}

std::string to_text(const CommitRecord& commit) {
  Json json = common_json(commit);
  json["manifest_length"] = commit.manifest_length;
  json["manifest_hash"] = commit.manifest_hash;
  return canonical_text(std::move(json));
}

CommitRecord commit_from(std::string_view text, std::string& problem, bool* newer) {
  CommitRecord commit;
  std::string damage;
  const Json json = canonical_object(text, damage);
  int version = 0;
  problem = damage.empty() ? format_problem(json, version) : damage;
  const bool later = damage.empty() && version > kFormatVersion;
  if (newer != nullptr) *newer = later;
  if (!problem.empty() && !later) return commit;
  // Of a later format what is known here is still read, so that its place among the others is known.
  std::string unread;
  Fields fields(json, problem.empty() ? problem : unread);
  read_common(fields, commit);
  if (!problem.empty()) return commit;
  fields.only({"checksum", "format", "format_version", "save_id", "sequence", "epoch", "step", "world_size",
               "best", "config_hash", "manifest_length", "manifest_hash"});
  commit.manifest_length = static_cast<uint64_t>(fields.count("manifest_length"));
  commit.manifest_hash = fields.hash("manifest_hash", 32);
  return commit;
}

std::string contradiction(const CommitRecord& commit, const Manifest& manifest) {
  const Json committed = common_json(commit), found = common_json(manifest);
  const auto shown = [](const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
  for (const char* field : {"save_id", "sequence", "epoch", "step", "world_size", "best", "config_hash"}) {
    if (committed[field] == found[field]) continue;
    return fmt::format("{}: {} was committed, the manifest has {}", field, shown(committed[field]),
                       shown(found[field]));
  }
  return "";
}

std::string to_text(const Pointer& pointer) {
  return canonical_text(
      {{"checkpoint", pointer.checkpoint}, {"save_id", pointer.save_id}, {"step", pointer.step}});
}

Pointer pointer_from(std::string_view text, std::string& problem) {
  Pointer pointer;
  const Json json = canonical_object(text, problem);
  if (!problem.empty()) return pointer;
  Fields fields(json, problem);
  fields.only({"checksum", "checkpoint", "save_id", "step"});
  pointer = {fields.text("checkpoint"), fields.hash("save_id", 32), fields.count("step")};
  return pointer;
}

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
