#include "harness/lib/checkpoint/file_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace lockstep::checkpoint {

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
