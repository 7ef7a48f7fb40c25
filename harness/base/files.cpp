#include "harness/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0644, kSecretMode = 0600;

std::error_code last_error() { return {errno, std::generic_category()}; }

std::error_code error_of(int result) { return result == 0 ? std::error_code() : last_error(); }

int flags_of(OpenFor purpose) {
  switch (purpose) {
    case OpenFor::creating:
    case OpenFor::keeping:
      return O_WRONLY | O_CREAT | O_EXCL;
    case OpenFor::replacing:
      return O_WRONLY | O_CREAT | O_TRUNC;
    case OpenFor::appending:
      return O_WRONLY | O_CREAT | O_APPEND;
    case OpenFor::syncing:
      return O_RDONLY | O_DIRECTORY;
  }
  return O_RDONLY;
}

template <class Call>
std::error_code uninterrupted(Call call) {
  std::error_code error;
  do {
    error = call();
  } while (error == std::errc::interrupted);
  return error;
}

class RealFiles final : public Files {
 public:
  std::error_code rename(const std::string& from, const std::string& to) override {
    return error_of(::rename(from.c_str(), to.c_str()));
  }
  std::error_code remove(const std::string& path) override { return error_of(::unlink(path.c_str())); }
  std::error_code remove_all(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    return error;
  }
  std::error_code make_folders(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    return error;
  }

 private:
  std::error_code open_once(const std::string& path, OpenFor purpose, int& file) override {
    file = ::open(path.c_str(), flags_of(purpose) | O_CLOEXEC, purpose == OpenFor::keeping ? kSecretMode : kMode);
    return file < 0 ? last_error() : std::error_code();
  }
  std::error_code write_once(int file, std::string_view bytes, std::size_t& written) override {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0) return last_error();
    written = static_cast<std::size_t>(count);
    return {};
  }
  std::error_code sync_once(int file) override { return error_of(::fsync(file)); }
  std::error_code close_once(int file) override { return error_of(::close(file)); }
};

}  // namespace

std::error_code Files::open(const std::string& path, OpenFor purpose, int& file) {
  file = -1;
  return uninterrupted([&] { return open_once(path, purpose, file); });
}

std::error_code Files::write(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    std::size_t written = 0;
    if (const auto error = uninterrupted([&] { return write_once(file, bytes, written); })) return error;
    // A file that takes no byte and names no error would be written to for ever.
    if (written == 0) return std::make_error_code(std::errc::io_error);
    bytes.remove_prefix(written);
  }
  return {};
}

std::error_code Files::sync(int file) {
  return uninterrupted([&] { return sync_once(file); });
}

std::error_code Files::close(int file) {
  const std::error_code error = close_once(file);
  // Linux has closed it by then; the number may be another file's already.
  return error == std::errc::interrupted ? std::error_code() : error;
}

Files& real_files() {
  static RealFiles files;
  return files;
}

}  // namespace lockstep
