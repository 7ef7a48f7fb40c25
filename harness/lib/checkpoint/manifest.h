#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"

// What files and folders of checkpoints are called, and what their names say.
//
//   ROOT/epoch_2_step_371/                     a checkpoint, once it holds its commit record
//        rank-0-of-4.safetensors               what rank 0 of 4 wrote
//        manifest.json  commit.json
//   ROOT/latest, ROOT/best_model               pointers: small files that name a checkpoint
//   ROOT/.lock                                held by the process that saves
//   ROOT/.saving-epoch_2_step_371-PID-NONCE    one that is being written, or was when its process ended
//   ROOT/.replaced-epoch_2_step_371-PID-NONCE  an older one of the same step, until the newer is committed

namespace lockstep::checkpoint {

inline constexpr std::string_view kLatest = "latest";
inline constexpr std::string_view kLock = ".lock";
inline constexpr std::string_view kBest = "best_model";
inline constexpr std::string_view kManifest = "manifest.json";
inline constexpr std::string_view kCommit = "commit.json";

/// Whose work a folder is: a process, and which of its tries.
struct Writer {
  int64_t process = 0;
  std::string nonce;  ///< 16 hex digits, another for each try
  bool operator==(const Writer&) const = default;
};

/// "epoch_2_step_371".
std::string checkpoint_name(int64_t epoch, int64_t step);
/// "rank-0-of-4.safetensors".
std::string shard_name(int rank, int world_size);
/// Is it one of the names that a checkpoint's folder holds, temporary ones included?
bool is_part_name(std::string_view name);

/// What kind of entry of ROOT a name is.
enum class EntryKind { checkpoint, saving, replaced, temporary, other };

struct EntryName {
  EntryKind kind = EntryKind::other;
  int64_t epoch = 0, step = 0;  ///< of folders
  Writer writer;                ///< of all but `checkpoint`
};
EntryName parse_entry_name(std::string_view name);

std::string saving_name(const std::string& checkpoint, const Writer& writer);
std::string replaced_name(const std::string& checkpoint, const Writer& writer);
/// ".latest-PID-NONCE": what is renamed to `latest`; also within a checkpoint's folder (".commit.json-…").
std::string temporary_name_of(std::string_view file, const Writer& writer);

// Small files in whole steps: what is interrupted is called again, what is taken in part is completed.

/// What could not be done: "PATH: cannot sync: Input/output error". Empty: it was done.
struct Failure {
  std::string text;
  std::error_code error;
  explicit operator bool() const { return !text.empty(); }
};

/// "PATH: cannot VERB: …", or nothing if there is no error.
Failure failure_of(const std::string& path, std::string_view verb, std::error_code error);

/// Calls again what a signal interrupted, up to a hundred times.
template <class Call>
std::error_code uninterrupted(Call call) {
  std::error_code error;
  for (int tries = 0; tries < 100; ++tries) {
    error = call();
    if (error != std::errc::interrupted) break;
  }
  return error;
}

/// The same, and what it was about: "PATH: cannot VERB: …".
template <class Call>
Failure attempt(const std::string& path, std::string_view verb, Call call) {
  return failure_of(path, verb, uninterrupted(call));
}
Failure look(Storage& storage, const std::string& path, PathStatus& status);

/// All of the bytes, however few the system takes at a time.
std::error_code write_fully(Storage& storage, int file, std::string_view bytes);
/// Closes; an interrupted close is one.
std::error_code close_fully(Storage& storage, int file);

/// What a save leaves out because a lab wants it so.
struct Durability {
  bool sync_files = true, sync_folders = true;
};

/// Ends the writing of a new file: durable but for its name, or removed again where something failed, now or before.
Failure finish_file(Storage& storage, const std::string& path, int file, Failure failure, Durability durability);
/// A new file with these bytes, durable but for its name. What could not be finished is removed again.
Failure write_new_file(Storage& storage, const std::string& path, std::string_view bytes,
                       Durability durability = {});
/// Puts a file in place of what stands at FOLDER/NAME: under a temporary name, synced, renamed, the folder
/// synced. If only the last step failed, `renamed` says that the new one stands.
Failure replace_file(Storage& storage, const std::string& folder, std::string_view name,
                     std::string_view bytes, const Writer& writer, Durability durability = {},
                     bool* renamed = nullptr);
Failure sync_names(Storage& storage, const std::string& folder, Durability durability = {});
Failure rename_path(Storage& storage, const std::string& from, const std::string& to);

/// Is it the machine that refuses for now (permissions, memory, open files), rather than a file that is gone
/// or damaged?
bool is_refusal(std::error_code error);

/// A file's bytes, or why they cannot be had.
struct SmallFile {
  std::string text;
  Failure failure;
  bool missing = false;
};
/// Refuses more than `most_bytes`.
SmallFile read_small_file(Storage& storage, const std::string& path,
                          uint64_t most_bytes = uint64_t{64} << 20);

// What a checkpoint says about itself: manifest.json, and commit.json, which binds it.

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

/// Which save it is: in the manifest, and repeated by the commit record.
struct SaveIdentity {
  std::string save_id;  ///< another for each try to save
  /// One more than that of any checkpoint that stood there; the newest has the highest
  int64_t sequence = 0;
  int64_t epoch = 0, step = 0;
  int world_size = 1;
  bool best = false;  ///< better than all before it: `best_model` names the newest of these
  std::string config_hash;
  bool operator==(const SaveIdentity&) const = default;
};

struct Manifest : SaveIdentity {
  int format_version = kFormatVersion;
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
struct CommitRecord : SaveIdentity {
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
