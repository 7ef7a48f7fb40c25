#include "harness/lib/checkpoint/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "harness/base/hashing.h"

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

Failure write_new_file(Storage& storage, const std::string& path, std::string_view bytes,
                       Durability durability) {
  int file = -1;
  if (const auto error = uninterrupted([&] { return storage.create(path, file); })) {
    return failure_of(path, "create", error);
  }
  Failure failure = failure_of(path, "write", write_fully(storage, file, bytes));
  // A failed sync is final: the next one on the same file would say that all is well.
  if (!failure && durability.sync_files) {
    failure = failure_of(path, "sync", uninterrupted([&] { return storage.sync(file); }));
  }
  const std::error_code unclosed = close_fully(storage, file);
  if (!failure) failure = failure_of(path, "close", unclosed);
  if (failure) uninterrupted([&] { return storage.unlink(path); });
  return failure;
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
  return failure_of(folder, "sync", uninterrupted([&] { return storage.sync_folder(folder); }));
}

Failure rename_path(Storage& storage, const std::string& from, const std::string& to) {
  const std::error_code error = uninterrupted([&] { return storage.rename(from, to); });
  return failure_of(from, fmt::format("rename to {}", to.substr(to.rfind('/') + 1)), error);
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

}  // namespace lockstep::checkpoint
