#include "harness/lib/checkpoint/shard.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "harness/base/json.h"

namespace lockstep::checkpoint {
namespace {

std::string form(const std::string& dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  Tensor tensor;
  tensor.shape = shape;
  return tensor.elements();
}

/// Null if none is called so.
template <class Named>
const Named* named(const std::vector<Named>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Named::name);
  return found == all.end() ? nullptr : &*found;
}

const Tensor* expected_tensor(const PartRequest& request, const std::string& kind, const std::string& name) {
  const Section* const section = request.expected == nullptr ? nullptr : request.expected->find(kind);
  return section == nullptr ? nullptr : named(section->tensors, name);
}

/// How this rank wants a tensor that is one for all ranks.
Tensor wanted(const TensorEntry& entry, const std::string& kind, const PartRequest& request) {
  Tensor tensor;
  tensor.name = entry.name;
  tensor.dtype = entry.dtype;
  tensor.shape = entry.shape;
  tensor.placement = entry.placement;
  tensor.slice = even_slice(elements_of(entry.shape), request.rank, request.world_size);
  if (const Tensor* const expected = expected_tensor(request, kind, entry.name)) {
    tensor.placement = expected->placement;
    tensor.slice = expected->slice;
  }
  return tensor;
}

/// Which elements of it each file holds.
std::vector<Slice> slices_of(const TensorEntry& entry, int world_size) {
  if (entry.placement == Placement::sharded) return entry.slices;
  std::vector<Slice> slices(static_cast<std::size_t>(world_size));
  slices[0] = {0, elements_of(entry.shape)};
  return slices;
}

/// An empty slice, as ranks have of a tensor with fewer elements than ranks, overlaps nothing.
bool overlap(const Slice& a, const Slice& b) { return std::max(a.begin, b.begin) < std::min(a.end, b.end); }

std::string tensor_misfit(const std::string& where, const TensorEntry& entry, const Tensor& expected) {
  if ((entry.placement == Placement::per_rank) != (expected.placement == Placement::per_rank)) {
    return fmt::format("{}: {} expected, found {}", where, name_of(expected.placement),
                       name_of(entry.placement));
  }
  if (entry.placement == Placement::per_rank) {
    if (entry.dtype == expected.dtype) return "";
    return fmt::format("{}: {} expected, found {}", where, expected.dtype, entry.dtype);
  }
  const std::string needed = form(expected.dtype, expected.shape), found = form(entry.dtype, entry.shape);
  return needed == found ? "" : fmt::format("{}: {} expected, found {}", where, needed, found);
}

std::string kind_misfit(const std::string& words, const KindEntry& entry, const Section& expected) {
  for (const Tensor& tensor : expected.tensors) {
    const TensorEntry* const found = named(entry.tensors, tensor.name);
    if (found == nullptr) {
      return fmt::format("{}: {}: the run needs it, the checkpoint has none", words, tensor.name);
    }
    if (std::string problem = tensor_misfit(words + ": " + tensor.name, *found, tensor); !problem.empty())
      return problem;
  }
  for (const TensorEntry& tensor : entry.tensors) {
    if (named(expected.tensors, tensor.name) == nullptr)
      return fmt::format("{}: {}: the checkpoint has it, the run does not know it", words, tensor.name);
  }
  for (const auto& [name, value] : expected.values.items()) {
    if (!entry.values.contains(name)) {
      return fmt::format("{}: {}: the run needs it, the checkpoint has none", words, name);
    }
  }
  return "";
}

/// Puts a wanted range together from the files that hold it.
std::string gather_bytes(const TensorEntry& entry, const std::string& key, const std::vector<Slice>& slices,
                         const std::map<int, ReadShard>& shards, Tensor& tensor) {
  const std::size_t element = element_bytes(entry.dtype).value_or(1);
  const Slice held = tensor.held();
  std::shared_ptr<char[]> own;
  const std::size_t bytes = static_cast<std::size_t>(held.end - held.begin) * element;
  for (std::size_t rank = 0; rank < slices.size(); ++rank) {
    const Slice& slice = slices[rank];
    if (!overlap(slice, held)) continue;
    const ReadShard& shard = shards.at(static_cast<int>(rank));
    const ShardTensor* stored = nullptr;
    const std::span<const std::byte> all = shard.tensor(key, &stored);
    const std::size_t expected = static_cast<std::size_t>(slice.end - slice.begin) * element;
    if (stored == nullptr)
      return fmt::format("{}: the manifest says that it is in rank {}'s file", key, rank);
    if (stored->dtype != entry.dtype || all.size() != expected) {
      return fmt::format("{}: {} bytes of {} expected in rank {}'s file, found {} of {}", key, expected,
                         entry.dtype, rank, all.size(), stored->dtype);
    }
    const Slice common = {std::max(slice.begin, held.begin), std::min(slice.end, held.end)};
    const std::span<const std::byte> part =
        all.subspan(static_cast<std::size_t>(common.begin - slice.begin) * element,
                    static_cast<std::size_t>(common.end - common.begin) * element);
    if (common == held) {
      tensor.bytes = part;
      tensor.keeps = shard.bytes;
      return "";
    }
    if (!own) own = std::shared_ptr<char[]>(new char[bytes]);
    std::memcpy(own.get() + static_cast<std::size_t>(common.begin - held.begin) * element, part.data(),
                part.size());
  }
  tensor.bytes = {reinterpret_cast<const std::byte*>(own.get()), own ? bytes : 0};
  tensor.keeps = own;
  return "";
}

/// What one rank had for itself.
std::string take_own(const std::string& kind, const TensorEntry& entry, int rank,
                     const std::map<int, ReadShard>& shards, Section& section) {
  const std::string key = kind + "/" + entry.name;
  const ReadShard& shard = shards.at(rank);
  Tensor tensor;
  tensor.name = entry.name;
  tensor.dtype = entry.dtype;
  tensor.shape = entry.shapes.at(static_cast<std::size_t>(rank));
  tensor.placement = Placement::per_rank;
  const ShardTensor* stored = nullptr;
  tensor.bytes = shard.tensor(key, &stored);
  tensor.keeps = shard.bytes;
  if (stored == nullptr) return fmt::format("{}: the manifest says that it is in rank {}'s file", key, rank);
  if (form(stored->dtype, stored->shape) != form(tensor.dtype, tensor.shape)) {
    return fmt::format("{}: {} expected in rank {}'s file, found {}", key, form(tensor.dtype, tensor.shape),
                       rank, form(stored->dtype, stored->shape));
  }
  section.tensors.push_back(std::move(tensor));
  return "";
}

}  // namespace

std::string misfit(const Manifest& manifest, const State* expected) {
  if (expected == nullptr) return "";
  for (const auto& [kind, section] : expected->sections) {
    const auto found = manifest.kinds.find(kind);
    if (found == manifest.kinds.end()) return words_of(kind) + ": the run needs it, the checkpoint has none";
    if (std::string problem = kind_misfit(words_of(kind), found->second, section); !problem.empty())
      return problem;
  }
  for (const auto& [kind, entry] : manifest.kinds) {
    if (expected->find(kind) == nullptr)
      return words_of(kind) + ": the checkpoint has it, the run does not know it";
  }
  return "";
}

std::set<int> files_of_part(const Manifest& manifest, const PartRequest& request) {
  std::set<int> files;
  const bool same = manifest.world_size == request.world_size;
  for (const auto& [kind, entry] : manifest.kinds) {
    for (const TensorEntry& tensor : entry.tensors) {
      if (tensor.placement == Placement::per_rank) {
        for (int rank = 0; rank < manifest.world_size; ++rank) {
          if (!same || rank == request.rank) files.insert(rank);
        }
        continue;
      }
      const Slice held = wanted(tensor, kind, request).held();
      const std::vector<Slice> slices = slices_of(tensor, manifest.world_size);
      for (int rank = 0; rank < manifest.world_size; ++rank) {
        if (overlap(slices[static_cast<std::size_t>(rank)], held)) files.insert(rank);
      }
    }
  }
  return files;
}

Part part_of(const Manifest& manifest, const std::map<int, ReadShard>& shards, const PartRequest& request) {
  Part part;
  const bool same = manifest.world_size == request.world_size;
  if (!same) part.of_ranks.resize(static_cast<std::size_t>(manifest.world_size));
  for (const auto& [kind, entry] : manifest.kinds) {
    Section& section = part.state.sections[kind];
    section.values = entry.values;
    if (same) section.rank_values = entry.rank_values[static_cast<std::size_t>(request.rank)];
    for (std::size_t rank = 0; rank < part.of_ranks.size(); ++rank) {
      part.of_ranks[rank].sections[kind].rank_values = entry.rank_values[rank];
    }
    for (const TensorEntry& tensor : entry.tensors) {
      if (tensor.placement != Placement::per_rank) {
        Tensor own = wanted(tensor, kind, request);
        const std::vector<Slice> slices = slices_of(tensor, manifest.world_size);
        part.problem = gather_bytes(tensor, kind + "/" + tensor.name, slices, shards, own);
        section.tensors.push_back(std::move(own));
      } else if (same) {
        part.problem = take_own(kind, tensor, request.rank, shards, section);
      }
      for (int rank = 0; rank < manifest.world_size && !same && tensor.placement == Placement::per_rank;
           ++rank) {
        Section& theirs = part.of_ranks[static_cast<std::size_t>(rank)].sections[kind];
        if (part.problem.empty()) part.problem = take_own(kind, tensor, rank, shards, theirs);
      }
      if (!part.problem.empty()) return part;
    }
  }
  return part;
}

namespace {

/// What one rank writes of a tensor.
struct Piece {
  std::string name;  ///< "KIND/NAME"
  const Tensor* tensor = nullptr;
  std::size_t element = 1;
};

bool writes(const Tensor& tensor, int rank) {
  if (tensor.placement == Placement::replicated) return rank == 0;
  if (tensor.placement == Placement::sharded) return tensor.slice.end > tensor.slice.begin;
  return true;
}

/// Wide types first, so that every tensor lies on a multiple of its element; then by name.
std::vector<Piece> pieces_of(const State& state, int rank) {
  std::vector<Piece> pieces;
  for (const auto& [kind, section] : state.sections) {
    for (const Tensor& tensor : section.tensors) {
      if (!writes(tensor, rank)) continue;
      pieces.push_back({kind + "/" + tensor.name, &tensor, element_bytes(tensor.dtype).value_or(1)});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.element != b.element ? a.element > b.element : a.name < b.name;
  });
  return pieces;
}

/// A slice of whole rows keeps the shape of a row; any other is a list.
std::vector<int64_t> shape_of(const Tensor& tensor) {
  if (tensor.placement != Placement::sharded || tensor.shape.empty()) return tensor.shape;
  int64_t row = 1;
  for (std::size_t dim = 1; dim < tensor.shape.size(); ++dim) row *= tensor.shape[dim];
  if (row == 0 || tensor.slice.begin % row != 0 || tensor.slice.end % row != 0) {
    return {tensor.slice.end - tensor.slice.begin};
  }
  std::vector<int64_t> shape = tensor.shape;
  shape[0] = (tensor.slice.end - tensor.slice.begin) / row;
  return shape;
}

/// What a shard says of itself, in the order in which a reader compares it.
std::vector<std::pair<std::string, std::string>> metadata_of(const ShardIdentity& identity) {
  return {{"lockstep.format_version", std::to_string(kShardFormatVersion)},
          {"lockstep.step", std::to_string(identity.step)},
          {"lockstep.rank", std::to_string(identity.rank)},
          {"lockstep.world_size", std::to_string(identity.world_size)},
          {"lockstep.epoch", std::to_string(identity.epoch)},
          {"lockstep.config_hash", identity.config_hash},
          {"lockstep.save_id", identity.save_id}};
}

ShardHeader header_of(const ShardIdentity& identity, const std::vector<Piece>& pieces) {
  ShardHeader header;
  // "pt" is what readers of PyTorch models look for.
  header.metadata = {{"format", "pt"}};
  for (const auto& [name, value] : metadata_of(identity)) header.metadata[name] = value;
  nlohmann::json slices = nlohmann::json::object();
  uint64_t at = 0;
  for (const Piece& piece : pieces) {
    const Tensor& tensor = *piece.tensor;
    if (tensor.placement == Placement::sharded) {
      slices[piece.name] = {
          {"begin", tensor.slice.begin}, {"end", tensor.slice.end}, {"shape", tensor.shape}};
    }
    header.tensors.push_back({piece.name, tensor.dtype, shape_of(tensor), at, at + tensor.bytes.size()});
    at += tensor.bytes.size();
  }
  if (!slices.empty()) header.metadata["lockstep.slices"] = slices.dump();
  return header;
}

/// Of the bytes that were added so far.
class RunningHash {
 public:
  RunningHash() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void add(std::string_view bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return hex16(hash.high64) + hex16(hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

/// Hashes and hands on a file's bytes in blocks, each of which is hashed while it is in the cache and then
/// written.
class Blocks {
 public:
  Blocks(std::size_t block_bytes, std::function<std::error_code(std::string_view)> write)
      : block_bytes_(std::max<std::size_t>(block_bytes, 1)),
        write_(std::move(write)) {}
  std::error_code add(std::string_view bytes) {
    while (!bytes.empty()) {
      if (waiting_.empty() && bytes.size() >= block_bytes_) {
        if (const auto error = emit(bytes.substr(0, block_bytes_))) return error;
        bytes.remove_prefix(block_bytes_);
        continue;
      }
      const std::string_view part = bytes.substr(0, block_bytes_ - waiting_.size());
      waiting_.append(part);
      bytes.remove_prefix(part.size());
      if (waiting_.size() == block_bytes_) {
        if (const auto error = finish()) return error;
      }
    }
    return {};
  }
  std::error_code finish() {
    const std::error_code error = waiting_.empty() ? std::error_code() : emit(waiting_);
    waiting_.clear();
    return error;
  }
  uint64_t length() const { return length_; }
  std::string hash() const { return hash_.text(); }

 private:
  std::error_code emit(std::string_view block) {
    hash_.add(block);
    length_ += block.size();
    return write_(block);
  }

  std::size_t block_bytes_;
  std::function<std::error_code(std::string_view)> write_;
  RunningHash hash_;
  std::string waiting_;
  uint64_t length_ = 0;
};

std::error_code add_all(Blocks& blocks, const ShardIdentity& identity, const State& state) {
  const std::vector<Piece> pieces = pieces_of(state, identity.rank);
  if (const auto error = blocks.add(encode_header(header_of(identity, pieces)))) return error;
  for (const Piece& piece : pieces) {
    const std::span<const std::byte> bytes = piece.tensor->bytes;
    if (const auto error = blocks.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
      return error;
  }
  return blocks.finish();
}

}  // namespace

ShardIdentity identity_of(const Manifest& manifest, int rank) {
  return {manifest.save_id, manifest.epoch, manifest.step, rank, manifest.world_size, manifest.config_hash};
}

std::string state_problem(const State& state) {
  for (const auto& [kind, section] : state.sections) {
    for (std::size_t at = 0; at < section.tensors.size(); ++at) {
      const Tensor& tensor = section.tensors[at];
      const std::string where = words_of(kind) + ": " + tensor.name;
      const std::optional<std::size_t> element = element_bytes(tensor.dtype);
      if (!element) return fmt::format("{}: no type is called {}", where, tensor.dtype);
      const auto same_name = [&](const Tensor& other) { return other.name == tensor.name; };
      const auto rest = section.tensors.begin() + static_cast<std::ptrdiff_t>(at) + 1;
      if (std::any_of(rest, section.tensors.end(), same_name)) return where + ": stands twice";
      const Slice held = tensor.held();
      if (held.begin < 0 || held.end < held.begin || held.end > tensor.elements()) {
        return fmt::format("{}: elements {} to {} of {}", where, held.begin, held.end, tensor.elements());
      }
      const std::size_t expected = static_cast<std::size_t>(held.end - held.begin) * *element;
      if (tensor.bytes.size() != expected) {
        return fmt::format("{}: {} bytes expected of elements {} to {}, found {}", where, expected,
                           held.begin, held.end, tensor.bytes.size());
      }
    }
  }
  return "";
}

FileEntry measure_shard(const ShardIdentity& identity, const State& state, const ShardOptions& options) {
  Blocks blocks(options.block_bytes, [](std::string_view) { return std::error_code(); });
  add_all(blocks, identity, state);
  return {shard_name(identity.rank, identity.world_size), blocks.length(), blocks.hash()};
}

WrittenShard write_shard(Storage& storage, const std::string& folder, const ShardIdentity& identity,
                         const State& state, const ShardOptions& options) {
  WrittenShard result;
  result.entry.name = shard_name(identity.rank, identity.world_size);
  const std::string path =
      folder + "/" + (options.one_name ? shard_name(0, identity.world_size) : result.entry.name);
  int file = -1;
  std::error_code error = uninterrupted([&] { return storage.create(path, file); });
  if (error == std::errc::file_exists && options.takes_over) {
    uninterrupted([&] { return storage.unlink(path); });
    error = uninterrupted([&] { return storage.create(path, file); });
  }
  if ((result.failure = failure_of(path, "create", error))) return result;
  Blocks blocks(options.block_bytes, [&](std::string_view block) {
    const std::error_code failed = write_fully(storage, file, block);
    if (options.progress) options.progress();
    return failed;
  });
  result.failure = failure_of(path, "write", add_all(blocks, identity, state));
  result.failure = finish_file(storage, path, file, std::move(result.failure), options.durability);
  result.entry.length = blocks.length();
  result.entry.hash = blocks.hash();
  return result;
}

namespace {

/// Reads `length` bytes and no more; the file must end there.
std::error_code read_whole(Storage& storage, int file, std::span<char> into, const ShardOptions& options,
                           RunningHash& hash, std::size_t& length) {
  length = 0;
  const std::size_t block = std::max<std::size_t>(options.block_bytes, 1);
  while (length < into.size()) {
    const std::span<char> part = into.subspan(length, std::min(block, into.size() - length));
    std::size_t got = 0;
    if (const auto error = uninterrupted([&] { return storage.read(file, part, got); })) return error;
    if (got == 0) return {};
    hash.add({part.data(), got});
    length += got;
    if (options.progress) options.progress();
  }
  return {};
}

/// The first thing in which a shard's header is not what the manifest says: "save_id: … expected, found …".
std::string identity_problem(const ShardHeader& header, const ShardIdentity& identity) {
  for (const auto& [key, value] : metadata_of(identity)) {
    const auto found = header.metadata.find(key);
    const std::string name = key.substr(key.find('.') + 1);
    if (found == header.metadata.end()) return fmt::format("{}: {} expected, found nothing", name, value);
    if (found->second != value) return fmt::format("{}: {} expected, found {}", name, value, found->second);
  }
  return "";
}

}  // namespace

std::span<const std::byte> ReadShard::tensor(const std::string& name, const ShardTensor** entry) const {
  const ShardTensor* const found = named(header.tensors, name);
  if (entry != nullptr) *entry = found;
  if (found == nullptr) return {};
  return {reinterpret_cast<const std::byte*>(bytes.get()) + data_begin + found->begin, found->end - found->begin};
}

ReadShard read_shard(Storage& storage, const std::string& folder, const FileEntry& entry,
                     const ShardIdentity& identity, const ShardOptions& options) {
  ReadShard shard;
  const std::string path = folder + "/" + entry.name;
  const auto failed = [&](std::error_code error) {
    shard.problem = fmt::format("{}: cannot read: {}", entry.name, error.message());
    shard.refusing = is_refusal(error);
    return shard;
  };
  PathStatus status;
  if (const auto error = uninterrupted([&] { return storage.stat(path, status); })) return failed(error);
  if (!status.exists) {
    shard.problem = fmt::format("{}: length: {} bytes expected, found no file", entry.name, entry.length);
    return shard;
  }
  if (status.length != entry.length) {
    shard.problem =
        fmt::format("{}: length: {} bytes expected, found {}", entry.name, entry.length, status.length);
    return shard;
  }
  char* const memory = new (std::nothrow) char[std::max<uint64_t>(entry.length, 1)];
  if (memory == nullptr) return failed(std::make_error_code(std::errc::not_enough_memory));
  shard.bytes = std::shared_ptr<const char[]>(memory);
  int file = -1;
  if (const auto error = uninterrupted([&] { return storage.open(path, file); })) return failed(error);
  RunningHash read;
  std::size_t length = 0;
  const std::error_code error = read_whole(storage, file, {memory, entry.length}, options, read, length);
  close_fully(storage, file);
  if (error) return failed(error);
  shard.length = length;
  const std::string hash = read.text();
  std::string problem;
  shard.header = decode_header({memory, length}, shard.data_begin, problem);
  if (hash != entry.hash) {
    // A file that is whole and another's says more by its header than by its hash.
    if (problem.empty()) problem = identity_problem(shard.header, identity);
    shard.problem = fmt::format("{}: hash: {} expected, found {}{}", entry.name, entry.hash, hash,
                                problem.empty() ? "" : " (" + problem + ")");
    return shard;
  }
  if (problem.empty()) problem = identity_problem(shard.header, identity);
  if (!problem.empty()) shard.problem = entry.name + ": " + problem;
  return shard;
}

}  // namespace lockstep::checkpoint
