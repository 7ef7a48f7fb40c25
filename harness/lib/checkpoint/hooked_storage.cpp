#include "harness/lib/checkpoint/hooked_storage.h"

#include <algorithm>

namespace lockstep::checkpoint {

/// `perform` gets the operation, whose bytes it may shorten to those written, and the most bytes to take.
template <class Perform>
std::error_code HookedStorage::hooked(Operation operation, Perform perform) {
  operation.number = seam_.next_number();
  const Intervention wanted = seam_.hook().before(operation);
  std::error_code error;
  const bool closing = operation.kind == OperationKind::close;
  const bool done = wanted.error ? wanted.performed : !wanted.left_out;
  if (done || closing) error = perform(operation, wanted.most_bytes);
  if (wanted.error) error = wanted.error;
  seam_.hook().after(operation, error);
  return error;
}

HookedStorage::OpenFile& HookedStorage::file_of(int file) {
  const std::lock_guard lock(mutex_);
  return files_[file];
}

std::error_code HookedStorage::create(const std::string& path, int& file) {
  file = -1;
  return hooked({.kind = OperationKind::create, .path = path}, [&](Operation&, std::size_t) {
    const std::error_code error = inner_.create(path, file);
    if (!error) file_of(file) = {path, 0};
    return error;
  });
}

std::error_code HookedStorage::write(int file, std::string_view bytes, std::size_t& written) {
  written = 0;
  OpenFile& at = file_of(file);
  return hooked({.kind = OperationKind::write, .path = at.path, .offset = at.offset, .bytes = bytes},
                [&](Operation& operation, std::size_t most) {
                  const std::error_code error = inner_.write(file, bytes.substr(0, most), written);
                  operation.bytes = bytes.substr(0, written);
                  at.offset += static_cast<int64_t>(written);
                  return error;
                });
}

std::error_code HookedStorage::sync(int file) {
  return hooked({.kind = OperationKind::sync, .path = file_of(file).path},
                [&](Operation&, std::size_t) { return inner_.sync(file); });
}

std::error_code HookedStorage::close(int file) {
  return hooked({.kind = OperationKind::close, .path = file_of(file).path}, [&](Operation&, std::size_t) {
    {
      const std::lock_guard lock(mutex_);
      files_.erase(file);
    }
    return inner_.close(file);
  });
}

std::error_code HookedStorage::rename(const std::string& from, const std::string& to) {
  return hooked({.kind = OperationKind::rename, .path = from, .to = to},
                [&](Operation&, std::size_t) { return inner_.rename(from, to); });
}

std::error_code HookedStorage::sync_folder(const std::string& path) {
  return hooked({.kind = OperationKind::sync_folder, .path = path},
                [&](Operation&, std::size_t) { return inner_.sync_folder(path); });
}

std::error_code HookedStorage::make_folder(const std::string& path) {
  return hooked({.kind = OperationKind::make_folder, .path = path},
                [&](Operation&, std::size_t) { return inner_.make_folder(path); });
}

std::error_code HookedStorage::unlink(const std::string& path) {
  return hooked({.kind = OperationKind::unlink, .path = path},
                [&](Operation&, std::size_t) { return inner_.unlink(path); });
}

std::error_code HookedStorage::remove_folder(const std::string& path) {
  return hooked({.kind = OperationKind::remove_folder, .path = path},
                [&](Operation&, std::size_t) { return inner_.remove_folder(path); });
}

std::error_code HookedStorage::list(const std::string& path, std::vector<std::string>& names) {
  names.clear();
  return hooked({.kind = OperationKind::list, .path = path},
                [&](Operation&, std::size_t) { return inner_.list(path, names); });
}

std::error_code HookedStorage::open(const std::string& path, int& file) {
  file = -1;
  return hooked({.kind = OperationKind::open, .path = path}, [&](Operation&, std::size_t) {
    const std::error_code error = inner_.open(path, file);
    if (!error) file_of(file) = {path, 0};
    return error;
  });
}

std::error_code HookedStorage::read(int file, std::span<char> into, std::size_t& got) {
  got = 0;
  OpenFile& at = file_of(file);
  return hooked(
      {.kind = OperationKind::read, .path = at.path, .offset = at.offset}, [&](Operation&, std::size_t most) {
        const std::error_code error = inner_.read(file, into.first(std::min(most, into.size())), got);
        at.offset += static_cast<int64_t>(got);
        return error;
      });
}

std::error_code HookedStorage::stat(const std::string& path, PathStatus& status) {
  status = {};
  return hooked({.kind = OperationKind::stat, .path = path},
                [&](Operation&, std::size_t) { return inner_.stat(path, status); });
}

std::error_code HookedStorage::lock(const std::string& path, int& file) {
  file = -1;
  return hooked({.kind = OperationKind::lock, .path = path}, [&](Operation&, std::size_t) {
    const std::error_code error = inner_.lock(path, file);
    if (!error) file_of(file) = {path, 0};
    return error;
  });
}

}  // namespace lockstep::checkpoint
