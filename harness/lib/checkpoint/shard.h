#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"

// One rank's file: written in one pass that also hashes it, read whole and verified before anything of it is
// used.

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

// One rank's part of a checkpoint, whatever the number of ranks that saved it.

/// Which rank of how many wants what. `expected` as in LoadOptions; null: everything, in even slices.
struct PartRequest {
  int rank = 0, world_size = 1;
  const State* expected = nullptr;
};

/// The first thing that the run needs and the checkpoint has not, or has otherwise: "sampler cursor: the run
/// needs it, the checkpoint has none", "parameters: w: F32 [4, 3] expected, found F32 [4, 2]". Empty: it
/// fits.
std::string misfit(const Manifest& manifest, const State* expected);

/// The files (their ranks) that hold this part.
std::set<int> files_of_part(const Manifest& manifest, const PartRequest& request);

struct Part {
  State state;
  std::vector<State> of_ranks;  ///< see LoadOutcome
  std::string problem;          ///< a file that does not hold what the manifest says
};
/// From verified files, by their ranks. Bytes are shared with the files where a tensor lies in one of them.
Part part_of(const Manifest& manifest, const std::map<int, ReadShard>& shards, const PartRequest& request);

}  // namespace lockstep::checkpoint
