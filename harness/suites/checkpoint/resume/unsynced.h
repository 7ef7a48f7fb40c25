#pragma once
// The machine's file system without the time that fsync takes.

#include "harness/lib/checkpoint/storage.h"

namespace lockstep::resume {

/// Hands on everything but syncs, which do nothing. A killed process leaves what it wrote in the page cache, so no kill
/// can tell the difference; a power loss could.
class Unsynced final : public checkpoint::Storage {
 public:
  explicit Unsynced(checkpoint::Storage& inner) : inner_(inner) {}
  std::error_code create(const std::string& path, int& file) override { return inner_.create(path, file); }
  std::error_code write(int file, std::string_view bytes, std::size_t& written) override {
    return inner_.write(file, bytes, written);
  }
  std::error_code sync(int) override { return {}; }
  std::error_code close(int file) override { return inner_.close(file); }
  std::error_code rename(const std::string& from, const std::string& to) override { return inner_.rename(from, to); }
  std::error_code sync_folder(const std::string&) override { return {}; }
  std::error_code make_folder(const std::string& path) override { return inner_.make_folder(path); }
  std::error_code unlink(const std::string& path) override { return inner_.unlink(path); }
  std::error_code remove_folder(const std::string& path) override { return inner_.remove_folder(path); }
  std::error_code list(const std::string& path, std::vector<std::string>& names) override {
    return inner_.list(path, names);
  }
  std::error_code open(const std::string& path, int& file) override { return inner_.open(path, file); }
  std::error_code read(int file, std::span<char> into, std::size_t& got) override {
    return inner_.read(file, into, got);
  }
  std::error_code stat(const std::string& path, checkpoint::PathStatus& status) override {
    return inner_.stat(path, status);
  }
  std::error_code lock(const std::string& path, int& file) override { return inner_.lock(path, file); }

 private:
  checkpoint::Storage& inner_;
};

}  // namespace lockstep::resume
