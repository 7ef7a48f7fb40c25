#include "harness/suites/power_loss/power_disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"

namespace lockstep::power {
namespace {

constexpr uint64_t kSector_bytes = 512;
constexpr int kThere = 0, kLost = 1;

struct ModelWords {
  std::string_view name, words;
};
constexpr ModelWords kModelWords[] = {{"flush_on_rename", "ordered journal that flushes on rename"},
                                      {"ordered", "ordered journal"},
                                      {"least", "POSIX at its least"}};

std::string last_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

void put(std::string& bytes, uint64_t offset, std::string_view part) {
  if (bytes.size() < offset + part.size()) bytes.resize(offset + part.size(), '\0');
  bytes.replace(offset, part.size(), part);
}

/// The combinations of so many options each, in turn; false after the last one.
bool count_up(std::vector<int>& digits, const std::vector<int>& options) {
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (++digits[i] < options[i]) return true;
    digits[i] = 0;
  }
  return false;
}

double product(const std::vector<int>& options) {
  double all = 1;
  for (const int each : options) all *= each;
  return all;
}

/// All combinations, or: each one option alone among firsts and among seconds, every pair of seconds, and a draw.
std::vector<std::vector<int>> combinations(const std::vector<int>& options, std::size_t most, uint64_t seed, bool& all) {
  std::vector<std::vector<int>> result;
  std::vector<int> digits(options.size());
  all = product(options) <= static_cast<double>(most);
  if (all) {
    do result.push_back(digits);
    while (count_up(digits, options));
    return result;
  }
  for (const int base : {0, 1}) {
    std::vector<int> rest(options.size());
    for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = std::min(base, options[i] - 1);
    result.push_back(rest);
    for (std::size_t i = 0; i < options.size(); ++i) {
      for (int option = 0; option < options[i]; ++option) {
        std::vector<int> one = rest;
        one[i] = option;
        result.push_back(one);
        for (std::size_t j = i + 1; j < options.size() && result.size() < most / 2; ++j) {
          one[j] = 1 - base;
          result.push_back(one);
          one[j] = rest[j];
        }
      }
    }
  }
  const KeyedDraws draws(seed);
  for (uint64_t at = 0; result.size() < most; ++at) {
    for (std::size_t i = 0; i < options.size(); ++i)
      digits[i] = static_cast<int>(draws.below(at * options.size() + i, static_cast<uint32_t>(options[i])));
    result.push_back(digits);
  }
  return result;
}

}  // namespace

std::string_view words_of(DiskModel model) { return kModelWords[static_cast<std::size_t>(model)].words; }
std::string_view name_of(DiskModel model) { return kModelWords[static_cast<std::size_t>(model)].name; }

int64_t lost_count(const Remains& remains) { return std::ranges::count_if(remains, [](int each) { return each != kThere; }); }

PowerDisk::PowerDisk(DiskModel model, std::size_t most_cuts) : model_(model), most_cuts_(most_cuts) {
  add(NodeType::folder, "");
}

int PowerDisk::add(NodeType type, std::string bytes) {
  nodes_.push_back({.type = type});
  set_bytes(nodes_.back(), std::move(bytes));
  return static_cast<int>(nodes_.size()) - 1;
}

int PowerDisk::stand(const std::string& path, NodeType type, std::string bytes) {
  const int node = add(type, std::move(bytes));
  stand(path, node);
  return node;
}

void PowerDisk::stand(const std::string& path, int node) {
  const int parent = find(folder_of(path));
  LOCKSTEP_CHECK(parent >= 0, "folders come before what they hold");
  nodes_[static_cast<std::size_t>(parent)].names[last_of(path)] = node;
  nodes_[static_cast<std::size_t>(parent)].now[last_of(path)] = node;
}

void PowerDisk::set_bytes(Node& node, std::string bytes) {
  node.bytes_hash = long_hash_in_hex(bytes);
  node.bytes = std::move(bytes);
}

int PowerDisk::find(const std::string& path) const {
  int node = 0;
  for (std::size_t begin = 1; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const auto& names = nodes_[static_cast<std::size_t>(node)].now;
    const auto found = names.find(path.substr(begin, end - begin));
    if (found == names.end()) return -1;
    node = found->second;
    begin = end + 1;
  }
  return node;
}

std::vector<uint64_t> PowerDisk::cuts_of(const Write& write) const {
  std::vector<uint64_t> at;
  const uint64_t first = (write.offset / kSector_bytes + 1) * kSector_bytes, end = write.offset + write.bytes.size();
  if (first >= end) return at;
  const uint64_t count = (end - first + kSector_bytes - 1) / kSector_bytes;
  const uint64_t kept = most_cuts_ == 0 ? count : std::min<uint64_t>(count, most_cuts_);
  for (uint64_t i = 0; i < kept; ++i) at.push_back(first + i * count / kept * kSector_bytes - write.offset);
  return at;
}

PowerDisk::Change PowerDisk::at(const std::string& path, int node) const { return {find(folder_of(path)), last_of(path), node}; }

void PowerDisk::change(int number, std::vector<Change> changes) {
  for (const Change& each : changes) {
    auto& now = nodes_[static_cast<std::size_t>(each.folder)].now;
    if (each.node < 0)
      now.erase(each.name);
    else
      now[each.name] = each.node;
  }
  pending_.push_back({.number = number, .write = {}, .changes = std::move(changes)});
}

/// Names of a folder are durable; with a journal all names are. A rename into another folder is durable as a whole with the folder that it
/// leaves, and its new name alone with the other one.
void PowerDisk::settle_names(int folder) {
  const auto settles = [&](const Pending& each, const Change& one) {
    return model_ != DiskModel::least || each.changes.front().folder == folder || one.folder == folder;
  };
  for (Pending& each : pending_) {
    std::erase_if(each.changes, [&, before = each](const Change& one) {
      if (!settles(before, one)) return false;
      Node& node = nodes_[static_cast<std::size_t>(one.folder)];
      if (one.node < 0)
        node.names.erase(one.name);
      else
        node.names[one.name] = one.node;
      node.changed = std::max(node.changed, each.number);
      return true;
    });
  }
  std::erase_if(pending_, [](const Pending& each) { return !each.is_write() && each.changes.empty(); });
}

void PowerDisk::settle_data(int node) {
  const Remains all = whole();
  const int changed = changed_of(node, all);
  std::string bytes = bytes_of(node, all);
  if (std::erase_if(pending_, [&](const Pending& each) { return each.node == node; }) == 0) return;
  Node& file = nodes_[static_cast<std::size_t>(node)];
  set_bytes(file, std::move(bytes));
  file.changed = changed;
}

int PowerDisk::make(int number, const std::string& path, NodeType type, std::string target) {
  const int node = add(type, std::move(target));
  nodes_.back().changed = number;
  if (!path.empty()) change(number, {at(path, node)});
  return node;
}

void PowerDisk::write(int number, int node, uint64_t offset, std::string bytes) {
  Pending pending{.number = number, .node = node, .write = {offset, std::move(bytes)}};
  pending.cuts = cuts_of(pending.write);
  pending_.push_back(std::move(pending));
}

void PowerDisk::resize(int number, int node, uint64_t bytes, bool only_grow) {
  pending_.push_back({.number = number, .node = node, .write = {.offset = bytes, .resizes = true, .only_grows = only_grow}});
}

void PowerDisk::link(int number, int node, const std::string& to) { change(number, {at(to, node)}); }

void PowerDisk::rename(int number, const std::string& from, const std::string& to) {
  const int node = find(from), replaced = find(to);
  if (node == replaced) return;
  if (model_ == DiskModel::flush_on_rename && replaced >= 0 && nodes_[static_cast<std::size_t>(node)].type == NodeType::file)
    settle_data(node);
  change(number, {at(from, -1), at(to, node)});
}

void PowerDisk::exchange(int number, const std::string& one, const std::string& other) {
  change(number, {at(one, find(other)), at(other, find(one))});
}

void PowerDisk::remove(int number, const std::string& path) { change(number, {at(path, -1)}); }

void PowerDisk::sync_file(int node) {
  settle_data(node);
  if (model_ != DiskModel::least) settle_names(0);
}

void PowerDisk::sync_folder(int node) { settle_names(node); }

void PowerDisk::sync_all() {
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    settle_data(static_cast<int>(node));
    settle_names(static_cast<int>(node));
  }
}

std::vector<Remains> PowerDisk::ways(std::size_t most, uint64_t seed, bool& all) const {
  return model_ == DiskModel::least ? ways_of_least(most, seed, all) : ways_of_ordered(most, seed, all);
}

std::vector<Remains> PowerDisk::ways_of_least(std::size_t most, uint64_t seed, bool& all) const {
  std::vector<int> options;
  for (const Pending& each : pending_) options.push_back(2 + 2 * static_cast<int>(each.cuts.size()));
  return combinations(options, most, seed, all);
}

/// Names up to some point in time, and of each file its data up to some point, which may lie within a write.
std::vector<Remains> PowerDisk::ways_of_ordered(std::size_t most, uint64_t seed, bool& all) const {
  std::vector<std::size_t> names;
  std::map<int, std::vector<std::size_t>> writes;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].is_write())
      writes[pending_[i].node].push_back(i);
    else
      names.push_back(i);
  }
  std::vector<int> options{static_cast<int>(names.size()) + 1};
  for (const auto& [node, of_file] : writes) {
    int count = 1;
    for (const std::size_t i : of_file) count += 1 + static_cast<int>(pending_[i].cuts.size());
    options.push_back(count);
  }
  std::vector<Remains> result;
  for (const std::vector<int>& digits : combinations(options, most, seed, all)) {
    Remains remains(pending_.size(), kThere);
    for (std::size_t i = 0; i < static_cast<std::size_t>(digits[0]); ++i) remains[names[names.size() - 1 - i]] = kLost;
    std::size_t file = 1;
    for (const auto& [node, of_file] : writes) {
      // From the end: the last write is lost, then torn from its last cut down, then the one before.
      int left = digits[file++];
      for (std::size_t k = of_file.size(); k > 0 && left > 0; --k) {
        const std::size_t i = of_file[k - 1];
        const int cuts = static_cast<int>(pending_[i].cuts.size());
        remains[i] = left > cuts ? kLost : 2 + 2 * (cuts - left);
        left -= 1 + cuts;
      }
    }
    result.push_back(std::move(remains));
  }
  return result;
}

std::string PowerDisk::bytes_of(int node, const Remains& remains) const {
  std::string bytes = nodes_[static_cast<std::size_t>(node)].bytes;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const Pending& each = pending_[i];
    if (each.node != node || remains[i] == kLost) continue;
    if (each.write.resizes) {
      if (!each.write.only_grows || bytes.size() < each.write.offset) bytes.resize(each.write.offset, '\0');
      continue;
    }
    const std::string_view whole = each.write.bytes;
    if (remains[i] == kThere) {
      put(bytes, each.write.offset, whole);
      continue;
    }
    const uint64_t cut = each.cuts[static_cast<std::size_t>(remains[i] - 2) / 2];
    const bool head = remains[i] % 2 == 0;
    put(bytes, each.write.offset + (head ? 0 : cut), head ? whole.substr(0, cut) : whole.substr(cut));
  }
  return bytes;
}

int PowerDisk::changed_of(int node, const Remains& remains) const {
  int changed = nodes_[static_cast<std::size_t>(node)].changed;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const Pending& each = pending_[i];
    const bool of_name = std::ranges::find(each.changes, node, &Change::folder) != each.changes.end();
    if (remains[i] != kLost && (each.node == node || of_name)) changed = std::max(changed, each.number);
  }
  return changed;
}

std::vector<std::map<std::string, int>> PowerDisk::names_of(const Remains& remains) const {
  std::vector<std::map<std::string, int>> names;
  for (const Node& node : nodes_) names.push_back(node.names);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].is_write() || remains[i] == kLost) continue;
    for (const Change& change : pending_[i].changes) {
      auto& of_folder = names[static_cast<std::size_t>(change.folder)];
      if (change.node < 0)
        of_folder.erase(change.name);
      else
        of_folder[change.name] = change.node;
    }
  }
  return names;
}

/// visit(path, node), a folder before what it holds.
template <class Visit>
void PowerDisk::walk(const Remains& remains, Visit visit) const {
  const auto names = names_of(remains);
  std::vector<std::pair<std::string, int>> next{{"", 0}};
  while (!next.empty()) {
    const auto [path, node] = std::move(next.back());
    next.pop_back();
    if (!path.empty()) visit(path, node);
    for (const auto& [name, child] : names[static_cast<std::size_t>(node)]) next.emplace_back(path + "/" + name, child);
  }
}

std::string PowerDisk::hash(const Remains& remains) const {
  std::set<int> unsettled;
  for (const Pending& each : pending_) {
    if (each.is_write()) unsettled.insert(each.node);
  }
  std::string text;
  walk(remains, [&](const std::string& path, int node) {
    const Node& at = nodes_[static_cast<std::size_t>(node)];
    text += path + '\n';
    if (at.type != NodeType::folder) text += unsettled.contains(node) ? long_hash_in_hex(bytes_of(node, remains)) : at.bytes_hash;
  });
  return long_hash_in_hex(text);
}

std::vector<Standing> PowerDisk::standing(const Remains& remains) const {
  std::vector<Standing> all;
  walk(remains, [&](const std::string& path, int node) {
    const NodeType type = nodes_[static_cast<std::size_t>(node)].type;
    all.push_back({path, node, type, type == NodeType::folder ? "" : bytes_of(node, remains), changed_of(node, remains)});
  });
  std::ranges::sort(all, {}, &Standing::path);
  return all;
}

std::map<int, std::string> PowerDisk::lost(const Remains& remains) const {
  std::map<int, std::string> marks;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (remains[i] == kThere) continue;
    std::string& mark = marks[pending_[i].number];
    if (remains[i] == kLost) {
      mark = "not durable, lost";
      continue;
    }
    const uint64_t cut = pending_[i].cuts[static_cast<std::size_t>(remains[i] - 2) / 2];
    mark = remains[i] % 2 == 0 ? fmt::format("torn: its first {} bytes are there", cut)
                               : fmt::format("torn: its bytes from {} on are there", cut);
  }
  return marks;
}

}  // namespace lockstep::power
