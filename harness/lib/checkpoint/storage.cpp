#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "harness/lib/checkpoint/storage.h"

namespace lockstep::checkpoint {
namespace {

constexpr mode_t kFileMode = 0644;
constexpr mode_t kFolderMode = 0755;

std::error_code last_error() { return {errno, std::generic_category()}; }
std::error_code error_of(int result) { return result == 0 ? std::error_code() : last_error(); }

class PosixStorage final : public Storage {
 public:
  std::error_code create(const std::string& path, int& file) override {
    file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode);
    return file < 0 ? last_error() : std::error_code();
  }
  std::error_code write(int file, std::string_view bytes, std::size_t& written) override {
    written = 0;
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0) return last_error();
    written = static_cast<std::size_t>(count);
    return {};
  }
  std::error_code sync(int file) override { return error_of(::fsync(file)); }
  std::error_code close(int file) override { return error_of(::close(file)); }
  std::error_code rename(const std::string& from, const std::string& to) override {
    return error_of(::rename(from.c_str(), to.c_str()));
  }
  std::error_code sync_folder(const std::string& path) override {
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return last_error();
    std::error_code error = error_of(::fsync(folder));
    ::close(folder);
    // Some file systems know no fsync of folders and say EINVAL.
    if (error == std::errc::invalid_argument) error.clear();
    return error;
  }
  std::error_code make_folder(const std::string& path) override {
    return error_of(::mkdir(path.c_str(), kFolderMode));
  }
  std::error_code unlink(const std::string& path) override { return error_of(::unlink(path.c_str())); }
  std::error_code remove_folder(const std::string& path) override { return error_of(::rmdir(path.c_str())); }
  std::error_code list(const std::string& path, std::vector<std::string>& names) override {
    names.clear();
    DIR* const folder = ::opendir(path.c_str());
    if (folder == nullptr) return last_error();
    errno = 0;
    for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const std::error_code error = errno == 0 ? std::error_code() : last_error();
    ::closedir(folder);
    std::sort(names.begin(), names.end());
    return error;
  }
  std::error_code open(const std::string& path, int& file) override {
    file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return last_error();
    struct stat found = {};
    std::error_code error = error_of(::fstat(file, &found));
    if (!error && !S_ISREG(found.st_mode)) {
      error = std::make_error_code(S_ISDIR(found.st_mode) ? std::errc::is_a_directory
                                                          : std::errc::invalid_argument);
    }
    if (error) {
      ::close(file);
      file = -1;
    }
    return error;
  }
  std::error_code read(int file, std::span<char> into, std::size_t& got) override {
    got = 0;
    const ssize_t count = ::read(file, into.data(), into.size());
    if (count < 0) return last_error();
    got = static_cast<std::size_t>(count);
    return {};
  }
  std::error_code stat(const std::string& path, PathStatus& status) override {
    status = {};
    struct stat found = {};
    if (::stat(path.c_str(), &found) != 0) return errno == ENOENT ? std::error_code() : last_error();
    status.exists = true;
    status.folder = S_ISDIR(found.st_mode);
    status.file = S_ISREG(found.st_mode);
    status.length = static_cast<uint64_t>(found.st_size);
    return {};
  }
  std::error_code lock(const std::string& path, int& file) override {
    file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode);
    if (file < 0) return last_error();
    const std::error_code error = error_of(::flock(file, LOCK_EX | LOCK_NB));
    if (error) {
      ::close(file);
      file = -1;
    }
    return error;
  }
};

}  // namespace

Storage& posix_storage() {
  static PosixStorage storage;
  return storage;
}

}  // namespace lockstep::checkpoint
