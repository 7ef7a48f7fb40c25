#pragma once
// A storage with a hook before and after every operation.

#include <map>
#include <mutex>

#include "harness/lib/checkpoint/operation.h"
#include "harness/lib/checkpoint/storage.h"

namespace lockstep::checkpoint {

/// Hands every operation on to `inner`, with its number, and as the seam's hook wants it. A close is
/// performed whatever the hook says, as a process that ends closes its files.
class HookedStorage final : public Storage {
 public:
  HookedStorage(Storage& inner, Seam& seam) : inner_(inner), seam_(seam) {}

  std::error_code create(const std::string& path, int& file) override;
  std::error_code write(int file, std::string_view bytes, std::size_t& written) override;
  std::error_code sync(int file) override;
  std::error_code close(int file) override;
  std::error_code rename(const std::string& from, const std::string& to) override;
  std::error_code sync_folder(const std::string& path) override;
  std::error_code make_folder(const std::string& path) override;
  std::error_code unlink(const std::string& path) override;
  std::error_code remove_folder(const std::string& path) override;
  std::error_code list(const std::string& path, std::vector<std::string>& names) override;
  std::error_code open(const std::string& path, int& file) override;
  std::error_code read(int file, std::span<char> into, std::size_t& got) override;
  std::error_code stat(const std::string& path, PathStatus& status) override;
  std::error_code lock(const std::string& path, int& file) override;

 private:
  struct OpenFile {
    std::string path;
    int64_t offset = 0;
  };
  template <class Perform>
  std::error_code hooked(Operation operation, Perform perform);
  OpenFile& file_of(int file);

  Storage& inner_;
  Seam& seam_;
  std::mutex mutex_;
  std::map<int, OpenFile> files_;
};

}  // namespace lockstep::checkpoint
