#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <new>

#include "harness/base/hex.h"
#include "harness/lib/checkpoint/shard.h"

namespace lockstep::checkpoint {
namespace {

/// Reads `length` bytes and no more; the file must end there.
std::error_code read_whole(Storage& storage, int file, std::span<char> into, const ShardOptions& options,
                           XXH3_state_t* hash, std::size_t& length) {
  length = 0;
  const std::size_t block = std::max<std::size_t>(options.block_bytes, 1);
  while (length < into.size()) {
    const std::span<char> part = into.subspan(length, std::min(block, into.size() - length));
    std::size_t got = 0;
    if (const auto error = uninterrupted([&] { return storage.read(file, part, got); })) return error;
    if (got == 0) return {};
    XXH3_128bits_update(hash, part.data(), got);
    length += got;
    if (options.progress) options.progress();
  }
  return {};
}

/// The first thing in which a shard's header is not what the manifest says: "save_id: … expected, found …".
std::string identity_problem(const ShardHeader& header, const ShardIdentity& identity) {
  const std::pair<const char*, std::string> expected[] = {{"format_version", std::to_string(kShardFormatVersion)},
                                                          {"step", std::to_string(identity.step)},
                                                          {"rank", std::to_string(identity.rank)},
                                                          {"world_size", std::to_string(identity.world_size)},
                                                          {"epoch", std::to_string(identity.epoch)},
                                                          {"config_hash", identity.config_hash},
                                                          {"save_id", identity.save_id}};
  for (const auto& [name, value] : expected) {
    const auto found = header.metadata.find(std::string("lockstep.") + name);
    if (found == header.metadata.end()) return fmt::format("{}: {} expected, found nothing", name, value);
    if (found->second != value) return fmt::format("{}: {} expected, found {}", name, value, found->second);
  }
  return "";
}

}  // namespace

std::span<const std::byte> ReadShard::tensor(const std::string& name, const ShardTensor** entry) const {
  for (const ShardTensor& tensor : header.tensors) {
    if (tensor.name != name) continue;
    if (entry != nullptr) *entry = &tensor;
    return {reinterpret_cast<const std::byte*>(bytes.get()) + data_begin + tensor.begin,
            tensor.end - tensor.begin};
  }
  if (entry != nullptr) *entry = nullptr;
  return {};
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
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  std::size_t length = 0;
  const std::error_code error = read_whole(storage, file, {memory, entry.length}, options, state, length);
  const XXH128_hash_t digest = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  close_fully(storage, file);
  if (error) return failed(error);
  shard.length = length;
  const std::string hash = hex16(digest.high64) + hex16(digest.low64);
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
