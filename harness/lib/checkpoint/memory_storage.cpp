#include "harness/lib/checkpoint/memory_storage.h"

#include <algorithm>

namespace lockstep::checkpoint {
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
  const std::shared_ptr<Node> parent = node_at(parent_of(path));
  if (!parent) return error_of(std::errc::no_such_file_or_directory);
  return parent->bytes ? error_of(std::errc::not_a_directory) : std::error_code();
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
  const std::shared_ptr<Node> node = node_at(plain(path));
  if (!node) return error_of(std::errc::no_such_file_or_directory);
  return node->bytes ? error_of(std::errc::not_a_directory) : std::error_code();
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
  const std::shared_ptr<Node> node = node_at(path);
  if (!node) return error_of(std::errc::no_such_file_or_directory);
  if (!node->bytes) return error_of(std::errc::is_a_directory);
  nodes_.erase(path);
  return {};
}

std::error_code MemoryStorage::remove_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Node> node = node_at(plain(path));
  if (!node) return error_of(std::errc::no_such_file_or_directory);
  if (node->bytes) return error_of(std::errc::not_a_directory);
  if (has_children(plain(path))) return error_of(std::errc::directory_not_empty);
  nodes_.erase(plain(path));
  return {};
}

std::error_code MemoryStorage::list(const std::string& path, std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  names.clear();
  const std::string folder = plain(path);
  const std::shared_ptr<Node> node = node_at(folder);
  if (!node) return error_of(std::errc::no_such_file_or_directory);
  if (node->bytes) return error_of(std::errc::not_a_directory);
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
  const std::shared_ptr<Node> node = node_at(path);
  if (!node) return error_of(std::errc::no_such_file_or_directory);
  if (!node->bytes) return error_of(std::errc::is_a_directory);
  file = add_open({.node = node, .locked = {}});
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

}  // namespace lockstep::checkpoint
