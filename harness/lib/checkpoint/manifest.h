#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/checkpoint/names.h"
#include "harness/lib/checkpoint/state.h"

// What a checkpoint says about itself: manifest.json, and commit.json, which binds it.

namespace lockstep::checkpoint {

/// Of manifests and commit records: this writer's, and the oldest that is read (it had no `best`). A newer one is refused.
inline constexpr int kFormatVersion = 2, kOldestFormatVersion = 1;

struct FileEntry {
  std::string name;
  uint64_t length = 0;
  std::string hash;  ///< XXH3 of 128 bits, 32 hex digits, taken as the file was written
};

struct TensorEntry {
  std::string name, dtype;
  Placement placement = Placement::replicated;
  std::vector<int64_t> shape;                ///< of the whole; unused where each rank has its own
  std::vector<Slice> slices;                 ///< sharded: by rank
  std::vector<std::vector<int64_t>> shapes;  ///< per rank: by rank
};

struct KindEntry {
  std::vector<TensorEntry> tensors;
  nlohmann::json values = nlohmann::json::object();
  std::vector<nlohmann::json> rank_values;  ///< by rank
};

struct Manifest {
  int format_version = kFormatVersion;
  std::string save_id;  ///< another for each try to save
  /// One more than that of any checkpoint that stood there; the newest has the highest
  int64_t sequence = 0;
  int64_t epoch = 0, step = 0;
  int world_size = 1;
  bool best = false;  ///< better than all before it: `best_model` names the newest of these
  std::string config_hash;
  Writer writer;                 ///< rank 0 of the save
  std::vector<FileEntry> files;  ///< by rank
  std::map<std::string, KindEntry> kinds;
};

/// Canonical: equal manifests are equal bytes, and other bytes are refused.
std::string to_text(const Manifest& manifest);
/// Returns the manifest; where the text is none, `problem` names the field, what was expected and what was
/// found. `newer`: its format version is a later one.
Manifest manifest_from(std::string_view text, std::string& problem, bool* newer = nullptr);

/// The mark that makes a checkpoint count. What it repeats of the manifest names a changed field.
struct CommitRecord {
  std::string save_id;
  int64_t sequence = 0, epoch = 0, step = 0;
  int world_size = 1;
  bool best = false;
  std::string config_hash;
  uint64_t manifest_length = 0;
  std::string manifest_hash;
  bool operator==(const CommitRecord&) const = default;
};
CommitRecord commit_of(const Manifest& manifest, std::string_view manifest_text);
std::string to_text(const CommitRecord& commit);
CommitRecord commit_from(std::string_view text, std::string& problem, bool* newer = nullptr);
/// The first field in which the manifest is not what was committed: "step: 100 was committed, the manifest
/// has 101".
std::string contradiction(const CommitRecord& commit, const Manifest& manifest);

/// What `latest` and `best_model` hold.
struct Pointer {
  std::string checkpoint;  ///< its folder's name
  std::string save_id;
  int64_t step = 0;
};
std::string to_text(const Pointer& pointer);
Pointer pointer_from(std::string_view text, std::string& problem);

// The safetensors format: eight bytes of length, a JSON header, the tensors' bytes without a gap
// (https://huggingface.co/docs/safetensors).

struct ShardTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< bytes behind the header
};

struct ShardHeader {
  std::map<std::string, std::string> metadata;
  std::vector<ShardTensor> tensors;  ///< in the order of their bytes
  uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

/// The longest header that readers of the format take.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

/// Length and header, padded so that the data begin at a multiple of 8.
std::string encode_header(const ShardHeader& header);

/// The header at the head of a whole file; `data_begin`: where the tensors' bytes begin. Refuses all that the
/// format forbids, naming the tensor: unknown types, offsets with gaps or overlaps, lengths that do not fit
/// the shape, bytes behind the last tensor.
ShardHeader decode_header(std::string_view file, uint64_t& data_begin, std::string& problem);

}  // namespace lockstep::checkpoint
