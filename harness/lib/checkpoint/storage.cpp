#include "harness/lib/checkpoint/storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

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

/// `perform` may take the operation, whose bytes it may shorten to those written, and the most bytes to take.
template <class Perform>
std::error_code HookedStorage::hooked(Operation operation, Perform perform) {
  operation.number = seam_.next_number();
  const Intervention wanted = seam_.hook().before(operation);
  std::error_code error;
  const bool closing = operation.kind == OperationKind::close;
  const bool done = wanted.error ? wanted.performed : !wanted.left_out;
  if (done || closing) {
    if constexpr (std::is_invocable_v<Perform>)
      error = perform();
    else
      error = perform(operation, wanted.most_bytes);
  }
  if (wanted.error) error = wanted.error;
  seam_.hook().after(operation, error);
  return error;
}

template <class Perform>
std::error_code HookedStorage::opened(OperationKind kind, const std::string& path, int& file, Perform perform) {
  file = -1;
  return hooked({.kind = kind, .path = path}, [&] {
    const std::error_code error = perform();
    if (!error) file_of(file) = {path, 0};
    return error;
  });
}

HookedStorage::OpenFile& HookedStorage::file_of(int file) {
  const std::lock_guard lock(mutex_);
  return files_[file];
}

std::error_code HookedStorage::create(const std::string& path, int& file) {
  return opened(OperationKind::create, path, file, [&] { return inner_.create(path, file); });
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
  return hooked({.kind = OperationKind::sync, .path = file_of(file).path}, [&] { return inner_.sync(file); });
}

std::error_code HookedStorage::close(int file) {
  return hooked({.kind = OperationKind::close, .path = file_of(file).path}, [&] {
    {
      const std::lock_guard lock(mutex_);
      files_.erase(file);
    }
    return inner_.close(file);
  });
}

std::error_code HookedStorage::rename(const std::string& from, const std::string& to) {
  return hooked({.kind = OperationKind::rename, .path = from, .to = to}, [&] { return inner_.rename(from, to); });
}

std::error_code HookedStorage::sync_folder(const std::string& path) {
  return hooked({.kind = OperationKind::sync_folder, .path = path}, [&] { return inner_.sync_folder(path); });
}

std::error_code HookedStorage::make_folder(const std::string& path) {
  return hooked({.kind = OperationKind::make_folder, .path = path}, [&] { return inner_.make_folder(path); });
}

std::error_code HookedStorage::unlink(const std::string& path) {
  return hooked({.kind = OperationKind::unlink, .path = path}, [&] { return inner_.unlink(path); });
}

std::error_code HookedStorage::remove_folder(const std::string& path) {
  return hooked({.kind = OperationKind::remove_folder, .path = path}, [&] { return inner_.remove_folder(path); });
}

std::error_code HookedStorage::list(const std::string& path, std::vector<std::string>& names) {
  names.clear();
  return hooked({.kind = OperationKind::list, .path = path}, [&] { return inner_.list(path, names); });
}

std::error_code HookedStorage::open(const std::string& path, int& file) {
  return opened(OperationKind::open, path, file, [&] { return inner_.open(path, file); });
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
  return hooked({.kind = OperationKind::stat, .path = path}, [&] { return inner_.stat(path, status); });
}

std::error_code HookedStorage::lock(const std::string& path, int& file) {
  return opened(OperationKind::lock, path, file, [&] { return inner_.lock(path, file); });
}

namespace {

std::error_code error_of(std::errc code) { return {static_cast<int>(code), std::generic_category()}; }

/// Without slashes at its end; the root is empty.
std::string plain(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace

MemoryStorage::MemoryStorage(const MemoryStorage& other) : Storage() {
  const std::lock_guard lock(other.mutex_);
  for (const auto& [path, node] : other.nodes_) nodes_[path] = std::make_shared<Node>(*node);
}

std::shared_ptr<MemoryStorage::Node> MemoryStorage::node_at(const std::string& path) const {
  static const auto root = std::make_shared<Node>();
  if (path.empty()) return root;
  const auto found = nodes_.find(path);
  return found == nodes_.end() ? nullptr : found->second;
}

std::error_code MemoryStorage::parent_error(const std::string& path) const {
  return type_error(parent_of(path), true);
}

std::error_code MemoryStorage::type_error(const std::string& path, bool folder) const {
  const std::shared_ptr<Node> node = node_at(path);
  if (!node) return error_of(std::errc::no_such_file_or_directory);
  if (folder == (node->bytes == nullptr)) return {};
  return error_of(folder ? std::errc::not_a_directory : std::errc::is_a_directory);
}

bool MemoryStorage::has_children(const std::string& path) const {
  const auto next = nodes_.lower_bound(path + "/");
  return next != nodes_.end() && next->first.starts_with(path + "/");
}

int MemoryStorage::add_open(OpenFile open) {
  open_[next_] = std::move(open);
  return next_++;
}

void MemoryStorage::put_file(const std::string& path, std::string bytes) {
  put_folder(parent_of(plain(path)));
  const std::lock_guard lock(mutex_);
  nodes_[plain(path)] = std::make_shared<Node>(Node{std::make_shared<std::string>(std::move(bytes))});
}

void MemoryStorage::put_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  for (std::string at = plain(path); !at.empty(); at = parent_of(at)) {
    if (!nodes_.contains(at)) nodes_[at] = std::make_shared<Node>();
  }
}

void MemoryStorage::take(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::string at = plain(path);
  nodes_.erase(at);
  std::erase_if(nodes_, [&](const auto& entry) { return entry.first.starts_with(at + "/"); });
}

std::shared_ptr<const std::string> MemoryStorage::bytes(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Node> node = node_at(plain(path));
  return node ? node->bytes : nullptr;
}

std::vector<std::string> MemoryStorage::paths() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [path, node] : nodes_) all.push_back(node->bytes ? path : path + "/");
  return all;
}

std::error_code MemoryStorage::create(const std::string& path, int& file) {
  const std::lock_guard lock(mutex_);
  file = -1;
  if (const auto error = parent_error(path)) return error;
  if (node_at(path)) return error_of(std::errc::file_exists);
  const auto node = std::make_shared<Node>(Node{std::make_shared<std::string>()});
  nodes_[path] = node;
  file = add_open({.node = node, .locked = {}, .writing = true});
  return {};
}

std::error_code MemoryStorage::write(int file, std::string_view bytes, std::size_t& written) {
  const std::lock_guard lock(mutex_);
  written = 0;
  const auto open = open_.find(file);
  if (open == open_.end() || !open->second.writing) return error_of(std::errc::bad_file_descriptor);
  std::shared_ptr<std::string>& content = open->second.node->bytes;
  if (content.use_count() > 1) content = std::make_shared<std::string>(*content);
  content->append(bytes);
  written = bytes.size();
  return {};
}

std::error_code MemoryStorage::sync(int file) {
  const std::lock_guard lock(mutex_);
  return open_.contains(file) ? std::error_code() : error_of(std::errc::bad_file_descriptor);
}

std::error_code MemoryStorage::close(int file) {
  const std::lock_guard lock(mutex_);
  const auto open = open_.find(file);
  if (open == open_.end()) return error_of(std::errc::bad_file_descriptor);
  if (!open->second.locked.empty()) locked_.erase(open->second.locked);
  open_.erase(open);
  return {};
}

std::error_code MemoryStorage::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Node> node = node_at(from), target = node_at(to);
  if (!node || from.empty()) return error_of(std::errc::no_such_file_or_directory);
  if (const auto error = parent_error(to)) return error;
  if (from == to) return {};
  if (to.starts_with(from + "/")) return error_of(std::errc::invalid_argument);
  if (target && node->bytes && !target->bytes) return error_of(std::errc::is_a_directory);
  if (target && !node->bytes && target->bytes) return error_of(std::errc::not_a_directory);
  if (target && !node->bytes && has_children(to)) return error_of(std::errc::directory_not_empty);
  std::vector<std::pair<std::string, std::shared_ptr<Node>>> below;
  for (auto at = nodes_.lower_bound(from + "/"); at != nodes_.end() && at->first.starts_with(from + "/");
       ++at) {
    below.emplace_back(at->first, at->second);
  }
  nodes_.erase(from);
  nodes_[to] = node;
  for (auto& [path, child] : below) {
    nodes_.erase(path);
    nodes_[to + path.substr(from.size())] = child;
  }
  return {};
}

std::error_code MemoryStorage::sync_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return type_error(plain(path), true);
}

std::error_code MemoryStorage::make_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto error = parent_error(plain(path))) return error;
  if (node_at(plain(path))) return error_of(std::errc::file_exists);
  nodes_[plain(path)] = std::make_shared<Node>();
  return {};
}

std::error_code MemoryStorage::unlink(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto error = type_error(path, false)) return error;
  nodes_.erase(path);
  return {};
}

std::error_code MemoryStorage::remove_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto error = type_error(plain(path), true)) return error;
  if (has_children(plain(path))) return error_of(std::errc::directory_not_empty);
  nodes_.erase(plain(path));
  return {};
}

std::error_code MemoryStorage::list(const std::string& path, std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  names.clear();
  const std::string folder = plain(path);
  if (const auto error = type_error(folder, true)) return error;
  const std::string head = folder + "/";
  for (auto at = nodes_.lower_bound(head); at != nodes_.end() && at->first.starts_with(head); ++at) {
    const std::string name = at->first.substr(head.size());
    if (name.find('/') == std::string::npos) names.push_back(name);
  }
  return {};
}

std::error_code MemoryStorage::open(const std::string& path, int& file) {
  const std::lock_guard lock(mutex_);
  file = -1;
  if (const auto error = type_error(path, false)) return error;
  file = add_open({.node = node_at(path), .locked = {}});
  return {};
}

std::error_code MemoryStorage::read(int file, std::span<char> into, std::size_t& got) {
  const std::lock_guard lock(mutex_);
  got = 0;
  const auto open = open_.find(file);
  if (open == open_.end()) return error_of(std::errc::bad_file_descriptor);
  const std::string& content = *open->second.node->bytes;
  std::size_t& offset = open->second.offset;
  got = std::min(into.size(), content.size() - std::min(offset, content.size()));
  std::copy_n(content.data() + offset, got, into.data());
  offset += got;
  return {};
}

std::error_code MemoryStorage::stat(const std::string& path, PathStatus& status) {
  const std::lock_guard lock(mutex_);
  status = {};
  const std::shared_ptr<Node> node = node_at(plain(path));
  if (!node) return {};
  status.exists = true;
  status.folder = !node->bytes;
  status.file = node->bytes != nullptr;
  status.length = node->bytes ? node->bytes->size() : 0;
  return {};
}

std::error_code MemoryStorage::lock(const std::string& path, int& file) {
  const std::lock_guard lock(mutex_);
  file = -1;
  if (const auto error = parent_error(path)) return error;
  if (!node_at(path)) nodes_[path] = std::make_shared<Node>(Node{std::make_shared<std::string>()});
  if (!locked_.insert(path).second) return error_of(std::errc::operation_would_block);
  file = add_open({.node = node_at(path), .locked = path});
  return {};
}

std::string_view name_of(OperationKind kind) {
  static constexpr std::string_view kNames[] = {"create",      "write",  "sync",          "close", "rename",
                                                "sync folder", "make folder", "unlink", "remove folder", "list",
                                                "open",        "read",   "stat",          "lock",  "gather"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string in_words(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::write:
      return fmt::format("write {} bytes at {} of {}", operation.bytes.size(), operation.offset,
                         operation.path);
    case OperationKind::read:
      return fmt::format("read {} at {}", operation.path, operation.offset);
    case OperationKind::rename:
      return fmt::format("rename {} to {}", operation.path, operation.to);
    case OperationKind::gather:
      return fmt::format("gather '{}'", operation.path);
    default:
      return fmt::format("{} {}", name_of(operation.kind), operation.path);
  }
}

Intervention SignalAt::before(const Operation& operation) {
  if (operation.number == number_) ::kill(::getpid(), signal_);
  return {.left_out = unsynced_ && is_sync(operation.kind)};
}

}  // namespace lockstep::checkpoint
