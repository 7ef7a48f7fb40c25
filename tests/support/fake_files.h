#pragma once
// Files that note what is asked of them, and fail where a test says.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "harness/base/files.h"

namespace lockstep::support {

/// Hands every operation on to the machine's files, unless it is told to fail, and notes it by the file's own
/// name: "create f.tmp", "write 12 f.tmp", "sync f.tmp", "close f.tmp", "rename f.tmp f", "open folder",
/// "sync folder", "close folder"; "replace f", "append f", "remove f", "remove all f", "make f".
class FakeFiles : public Files {
 public:
  std::vector<std::string> operations;
  /// The most bytes that one write takes.
  std::size_t most_bytes = std::string_view::npos;

  /// `count` operations, the first of that number (from 0), come to nothing but this errno. Only a file that
  /// could not be closed is closed all the same.
  void fail(std::size_t from, int error, std::size_t count = 1) {
    failures_.push_back({from, count, {error, std::generic_category()}});
  }

  std::error_code rename(const std::string& from, const std::string& to) override {
    if (const auto error = before("rename " + name_of(from) + " " + name_of(to))) return error;
    return real_files().rename(from, to);
  }
  std::error_code remove(const std::string& path) override {
    if (const auto error = before("remove " + name_of(path))) return error;
    return real_files().remove(path);
  }
  std::error_code remove_all(const std::string& path) override {
    if (const auto error = before("remove all " + name_of(path))) return error;
    return real_files().remove_all(path);
  }
  std::error_code make_folders(const std::string& path) override {
    if (const auto error = before("make " + name_of(path))) return error;
    return real_files().make_folders(path);
  }

 protected:
  /// Called before every operation; what it returns is the operation's end.
  virtual std::error_code before(const std::string& operation) {
    const std::size_t number = operations.size();
    operations.push_back(operation);
    for (const Failure& failure : failures_) {
      if (number >= failure.from && number - failure.from < failure.count) return failure.error;
    }
    return {};
  }

 private:
  struct Failure {
    std::size_t from = 0, count = 1;
    std::error_code error;
  };

  /// The name without its folder, and of a temporary one without the numbers.
  static std::string name_of(const std::string& path) {
    std::string name = path.substr(path.rfind('/') + 1);
    constexpr std::string_view kEnd = ".tmp";
    if (!name.ends_with(kEnd)) return name;
    name.resize(name.size() - kEnd.size());
    for (int part = 0; part < 2; ++part) name.resize(name.rfind('.'));
    return name.append(kEnd);
  }
  std::error_code open_once(const std::string& path, OpenFor purpose, int& file) override {
    const bool folder = purpose == OpenFor::syncing;
    const std::string name = folder ? "folder" : name_of(path);
    const std::string verb = folder                            ? "open "
                             : purpose == OpenFor::creating    ? "create "
                             : purpose == OpenFor::appending   ? "append "
                                                               : "replace ";
    if (const auto error = before(verb + name)) return error;
    const std::error_code error = real_files().open(path, purpose, file);
    if (!error) names_[file] = name;
    return error;
  }
  std::error_code write_once(int file, std::string_view bytes, std::size_t& written) override {
    bytes = bytes.substr(0, most_bytes);
    if (const auto error = before("write " + std::to_string(bytes.size()) + " " + names_[file])) return error;
    written = bytes.size();
    return real_files().write(file, bytes);
  }
  std::error_code sync_once(int file) override {
    if (const auto error = before("sync " + names_[file])) return error;
    return real_files().sync(file);
  }
  std::error_code close_once(int file) override {
    const std::error_code planned = before("close " + names_[file]);
    const std::error_code error = real_files().close(file);
    return planned ? planned : error;
  }

  std::vector<Failure> failures_;
  std::map<int, std::string> names_;
};

}  // namespace lockstep::support
