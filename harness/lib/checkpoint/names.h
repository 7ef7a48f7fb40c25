#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

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

/// All of the bytes, however few the system takes at a time.
std::error_code write_fully(Storage& storage, int file, std::string_view bytes);
/// Closes; an interrupted close is one.
std::error_code close_fully(Storage& storage, int file);

/// What a save leaves out because a lab wants it so.
struct Durability {
  bool sync_files = true, sync_folders = true;
};

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

}  // namespace lockstep::checkpoint
