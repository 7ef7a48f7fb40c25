#pragma once
// What files and folders of checkpoints are called, and what their names say.
//
//   ROOT/epoch_2_step_371/                     a checkpoint, once it holds its commit record
//        rank-0-of-4.safetensors               what rank 0 of 4 wrote
//        manifest.json  commit.json
//   ROOT/latest, ROOT/best_model               pointers: small files that name a checkpoint
//   ROOT/.lock                                held by the process that saves
//   ROOT/.saving-epoch_2_step_371-PID-NONCE    one that is being written, or was when its process ended
//   ROOT/.replaced-epoch_2_step_371-PID-NONCE  an older one of the same step, until the newer is committed

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace lockstep::checkpoint
