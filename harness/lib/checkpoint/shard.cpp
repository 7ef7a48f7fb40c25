#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/hex.h"
#include "harness/lib/checkpoint/shard.h"

namespace lockstep::checkpoint {
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

ShardHeader header_of(const ShardIdentity& identity, const std::vector<Piece>& pieces) {
  ShardHeader header;
  // "pt" is what readers of PyTorch models look for.
  header.metadata = {{"format", "pt"},
                     {"lockstep.format_version", std::to_string(kShardFormatVersion)},
                     {"lockstep.save_id", identity.save_id},
                     {"lockstep.epoch", std::to_string(identity.epoch)},
                     {"lockstep.step", std::to_string(identity.step)},
                     {"lockstep.rank", std::to_string(identity.rank)},
                     {"lockstep.world_size", std::to_string(identity.world_size)},
                     {"lockstep.config_hash", identity.config_hash}};
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

/// Hashes and hands on a file's bytes in blocks, each of which is hashed while it is in the cache and then
/// written.
class Blocks {
 public:
  Blocks(std::size_t block_bytes, std::function<std::error_code(std::string_view)> write)
      : block_bytes_(std::max<std::size_t>(block_bytes, 1)),
        write_(std::move(write)),
        hash_(XXH3_createState()) {
    XXH3_128bits_reset(hash_.get());
  }
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
  std::string hash() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(hash_.get());
    return hex16(hash.high64) + hex16(hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::error_code emit(std::string_view block) {
    XXH3_128bits_update(hash_.get(), block.data(), block.size());
    length_ += block.size();
    return write_(block);
  }

  std::size_t block_bytes_;
  std::function<std::error_code(std::string_view)> write_;
  std::unique_ptr<XXH3_state_t, Free> hash_;
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
  // A failed sync is final: the next one on the same file would say that all is well.
  if (!result.failure && options.durability.sync_files) {
    result.failure = failure_of(path, "sync", uninterrupted([&] { return storage.sync(file); }));
  }
  const std::error_code unclosed = close_fully(storage, file);
  if (!result.failure) result.failure = failure_of(path, "close", unclosed);
  if (result.failure) uninterrupted([&] { return storage.unlink(path); });
  result.entry.length = blocks.length();
  result.entry.hash = blocks.hash();
  return result;
}

}  // namespace lockstep::checkpoint
