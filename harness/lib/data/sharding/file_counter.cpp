#include "harness/lib/data/sharding/file_counter.h"

#include <fmt/format.h>

#include <charconv>

#include "harness/base/hex.h"
#include "harness/lib/checkpoint/file_steps.h"

namespace lockstep::sharding {
namespace {

using checkpoint::Failure;

constexpr checkpoint::Durability kUnsynced{false, false};

std::string text_of_number(int64_t value) {
  const std::string digits = std::to_string(value);
  return fmt::format("{} {}\n", digits, hash_in_hex(digits));
}

}  // namespace

FileCounter::FileCounter(checkpoint::Storage& storage, std::string path, Wait wait, CounterPlanted planted)
    : storage_(storage), path_(std::move(path)), wait_(std::move(wait)), planted_(planted) {}

CounterAnswer FileCounter::locked(const std::function<CounterAnswer()>& change) {
  for (;;) {
    int lock = -1;
    const auto error = checkpoint::uninterrupted([&] { return storage_.lock(lock_path(), lock); });
    if (error == std::errc::operation_would_block) {
      if (wait_()) continue;
      return {0, fmt::format("{}: another process has held it for too long", lock_path())};
    }
    if (error) return {0, checkpoint::failure_of(lock_path(), "lock", error).text};
    CounterAnswer answer = change();
    checkpoint::close_fully(storage_, lock);
    return answer;
  }
}

CounterAnswer FileCounter::write(int64_t value) {
  const std::string temporary = path_ + ".new";
  // What a process left that ended between the two steps; under the lock it is nobody's.
  Failure failure = checkpoint::write_new_file(storage_, temporary, text_of_number(value), kUnsynced);
  if (failure.error == std::errc::file_exists) {
    storage_.unlink(temporary);
    failure = checkpoint::write_new_file(storage_, temporary, text_of_number(value), kUnsynced);
  }
  if (!failure) failure = checkpoint::rename_path(storage_, temporary, path_);
  return {value, failure.text};
}

CounterAnswer FileCounter::write_in_place(int64_t value) {
  // As open(path, "w") does: from here to the write the file is empty.
  int file = -1;
  std::error_code error = std::make_error_code(std::errc::file_exists);
  while (error == std::errc::file_exists) {
    storage_.unlink(path_);
    error = storage_.create(path_, file);
  }
  if (error) return {value, checkpoint::failure_of(path_, "create", error).text};
  error = checkpoint::write_fully(storage_, file, text_of_number(value));
  checkpoint::close_fully(storage_, file);
  return {value, checkpoint::failure_of(path_, "write", error).text};
}

CounterAnswer FileCounter::reset(int64_t value) {
  if (planted_.reset_in_place) return write_in_place(value);
  return locked([&] { return write(value); });
}

CounterAnswer FileCounter::read() {
  const checkpoint::SmallFile file = checkpoint::read_small_file(storage_, path_, 4096);
  if (planted_.reset_in_place && (file.missing || file.text.empty())) return {0, ""};
  if (file.missing) return {0, fmt::format("{}: no number was ever set; reset it first", path_)};
  if (file.failure) return {0, file.failure.text};
  int64_t value = 0;
  const char* const end = file.text.data() + file.text.size();
  if (std::from_chars(file.text.data(), end, value).ec != std::errc() || file.text != text_of_number(value))
    return {0, fmt::format("{}: it holds no whole number with its checksum", path_)};
  return {value, ""};
}

CounterAnswer FileCounter::add(int64_t count) {
  const auto change = [&]() -> CounterAnswer {
    const CounterAnswer before = read();
    if (!before) return before;
    const CounterAnswer after = write(before.value + count);
    return {before.value, after.problem};
  };
  return planted_.add_unlocked ? change() : locked(change);
}

}  // namespace lockstep::sharding
