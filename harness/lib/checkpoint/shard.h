#pragma once
// One rank's file: written in one pass that also hashes it, read whole and verified before anything of it is
// used.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/file_steps.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/safetensors.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"

namespace lockstep::checkpoint {

/// Of shards; a manifest's is another number.
inline constexpr int kShardFormatVersion = 1;

/// What a shard says of itself in its header, so that a whole file of another save, step or rank is known as
/// such.
struct ShardIdentity {
  std::string save_id;
  int64_t epoch = 0, step = 0;
  int rank = 0, world_size = 1;
  std::string config_hash;
};

/// Of a checkpoint's file that this rank wrote.
ShardIdentity identity_of(const Manifest& manifest, int rank);

struct ShardOptions {
  std::size_t block_bytes = std::size_t{1} << 20;
  Durability durability = {};
  std::function<void()> progress = {};  ///< after each block; may be empty
  // A lab's planted mistakes.
  bool takes_over = false;  ///< a file of its name that stands there already goes
  bool one_name = false;    ///< every rank writes the file of rank 0
};

/// Why a rank's state cannot be saved: "parameters: w: 40 bytes expected of elements 0 to 10, found 36";
/// empty: it can.
std::string state_problem(const State& state);

struct WrittenShard {
  FileEntry entry;
  Failure failure;
};

/// Writes what this rank holds: on rank 0 replicated tensors as well. Durable but for its name when it
/// returns; what could not be finished is removed.
WrittenShard write_shard(Storage& storage, const std::string& folder, const ShardIdentity& identity,
                         const State& state, const ShardOptions& options);

/// The same file's name, length and hash, without writing it.
FileEntry measure_shard(const ShardIdentity& identity, const State& state, const ShardOptions& options);

/// A file that was read whole.
struct ReadShard {
  ShardHeader header;
  std::shared_ptr<const char[]> bytes;
  uint64_t length = 0, data_begin = 0;
  std::string problem;  ///< "rank-0-of-2.safetensors: hash: … expected, found …"
  /// Nobody may read it now (permissions, memory): no reason to take an older checkpoint
  bool refusing = false;
  /// The bytes of one of its tensors: "KIND/NAME"; empty if it has none of that name.
  std::span<const std::byte> tensor(const std::string& name, const ShardTensor** entry = nullptr) const;
};
ReadShard read_shard(Storage& storage, const std::string& folder, const FileEntry& entry,
                     const ShardIdentity& identity, const ShardOptions& options);

}  // namespace lockstep::checkpoint
