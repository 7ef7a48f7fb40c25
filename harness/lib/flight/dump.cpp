#include "harness/lib/flight/dump.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep::flight {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDescription = "undefined";  // PyTorch's word for a group without one
constexpr int64_t kMillisecond_ns = 1'000'000;
constexpr int kMostRank = 999'999;
constexpr uint64_t kMostRecordBytes = uint64_t{128} << 20;
constexpr std::ptrdiff_t kMostJsonValues = 4'000'000;

json ranks_text(int world_size) {
  std::string text = "[";
  for (int rank = 0; rank < world_size; ++rank) text += (rank > 0 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

json entry_json(const Entry& entry, int world_size, const std::string& backend) {
  std::vector<int64_t> out_shape = entry.shape;
  if (entry.op == "all_gather") out_shape.insert(out_shape.begin(), world_size);
  const bool done = entry.state == State::completed;
  const std::string op = entry.op == "reduce_gradients" ? "all_reduce" : entry.op;
  json made = {{"record_id", entry.id},
               {"pg_id", entry.group == "data" ? 0 : 1},
               {"process_group", {entry.group, kDescription}},
               {"collective_seq_id", entry.sequence},
               {"p2p_seq_id", 0},
               {"op_id", entry.sequence},
               {"is_p2p", false},
               {"profiling_name", backend + ":" + op},
               {"time_created_ns", entry.created_ns},
               {"input_sizes", json::array({entry.shape})},
               {"input_dtypes", json::array({entry.dtype})},
               {"output_sizes", json::array({out_shape})},
               {"output_dtypes", json::array({entry.dtype})},
               {"state", done ? "completed" : "started"},
               {"time_discovered_started_ns", entry.created_ns},
               {"time_discovered_completed_ns", nullptr},
               {"retired", done},
               {"timeout_ms", 0},
               {"frames", json::array({{{"name", entry.tag}, {"filename", "step"}, {"line", entry.step}}})}};
  if (entry.root >= 0) made["root"] = entry.root;
  if (done) {
    made["time_discovered_completed_ns"] = entry.completed_ns;
    made["duration_ms"] = static_cast<double>(entry.completed_ns - entry.created_ns) / kMillisecond_ns;
  }
  return made;
}

/// "NAME_3" -> 3
std::optional<int> rank_of(const std::string& name) {
  std::size_t begin = name.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
  const std::size_t digits = name.size() - begin;
  if (digits == 0 || digits > 6) return std::nullopt;
  return std::stoi(name.substr(begin));
}

/// Why a value is no flight record.
struct NotARecord : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void refuse(const std::string& key, const char* expected) { throw NotARecord("is no flight record: " + key + " " + expected); }

const json& part(const json& object, const char* key) {
  static const json kNone;
  const auto found = object.find(key);  // of what is no object: the end
  return found == object.end() ? kNone : *found;
}

int64_t number_in(const json& object, const char* key, int64_t otherwise) {
  const json& value = part(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) refuse(key, "is not a number");
  return value.get<int64_t>();
}

/// A number that counts something: not negative.
uint64_t count_in(const json& object, const char* key, int64_t otherwise) {
  const int64_t value = number_in(object, key, otherwise);
  if (value < 0) refuse(key, "is missing or negative");
  return static_cast<uint64_t>(value);
}

std::string text_in(const json& object, const char* key, std::string otherwise) {
  const json& value = part(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_string()) refuse(key, "is not a text");
  return value.get<std::string>();
}

bool flag_in(const json& object, const char* key) {
  const json& value = part(object, key);
  if (!value.is_null() && !value.is_boolean()) refuse(key, "is neither true nor false");
  return value.is_boolean() && value.get<bool>();
}

/// The first of a call's tensors: their types are a list of texts, their sizes one of lists of numbers. Absent: none.
std::string first_type(const json& entry, const char* key) {
  const json& types = part(entry, key);
  if (types.is_null() || (types.is_array() && types.empty())) return "";
  if (!types.is_array() || !types.front().is_string()) refuse(key, "is not a list of texts");
  return types.front().get<std::string>();
}

std::vector<int64_t> first_size(const json& entry, const char* key) {
  constexpr std::size_t kMostDimensions = 64;  // PyTorch's own limit
  const json& sizes = part(entry, key);
  if (sizes.is_null() || (sizes.is_array() && sizes.empty())) return {};
  if (!sizes.is_array() || !sizes.front().is_array() || sizes.front().size() > kMostDimensions) refuse(key, "is not a list of sizes");
  for (const json& extent : sizes.front()) {
    if (!extent.is_number_integer()) refuse(key, "is not a list of sizes");
  }
  return sizes.front().get<std::vector<int64_t>>();
}

std::string group_name(const std::string& name, const std::string& description) {
  return description == kDescription || description.empty() ? name : name + ":" + description;
}

std::string group_of(const json& entry) {
  const json& group = part(entry, "process_group");
  if (!group.is_array() || group.size() != 2 || !group[0].is_string() || !group[1].is_string()) refuse("process_group", "is not a name with a description");
  return group_name(group[0].get<std::string>(), group[1].get<std::string>());
}

State state_of(const json& entry) {
  return text_in(entry, "state", "") == "completed" || flag_in(entry, "retired") ? State::completed : State::started;
}

Entry entry_from(const json& from, const std::string& op) {
  Entry entry;
  entry.group = group_of(from);
  entry.sequence = count_in(from, "collective_seq_id", -1);
  entry.op = op;
  if (const json& frames = part(from, "frames"); frames.is_array() && !frames.empty()) {
    const bool ours = text_in(frames.front(), "filename", "") == "step";
    if (ours) entry.tag = text_in(frames.front(), "name", "");
    if (ours) entry.step = number_in(frames.front(), "line", 0);
  }
  entry.dtype = first_type(from, "input_dtypes");
  entry.shape = first_size(from, "input_sizes");
  entry.root = static_cast<int>(std::clamp<int64_t>(number_in(from, "root", -1), -1, kMostRank));
  entry.created_ns = number_in(from, "time_created_ns", 0);
  entry.completed_ns = number_in(from, "time_discovered_completed_ns", 0);
  entry.state = state_of(from);
  return entry;
}

/// "send 0->1", "recv 1<-0": the numbers are those of the group. Nothing: another call.
std::optional<Message> message_from(const json& from, const std::string& op) {
  const bool sends = op.starts_with("send ");
  int left = 0, right = 0, end = 0;
  if (std::sscanf(op.c_str(), sends ? "send %6d->%6d%n" : "recv %6d<-%6d%n", &left, &right, &end) != 2 || end != static_cast<int>(op.size()))
    return std::nullopt;
  Message message;
  message.group = group_of(from);
  message.sends = sends;
  message.from = sends ? left : right;
  message.to = sends ? right : left;
  message.dtype = first_type(from, sends ? "input_dtypes" : "output_dtypes");
  message.shape = first_size(from, sends ? "input_sizes" : "output_sizes");
  message.created_ns = number_in(from, "time_created_ns", 0);
  message.state = state_of(from);
  return message;
}

/// Entries in their order become collectives and messages. Calls that NCCL makes together are entered one by one without a state; the entry
/// "coalesced" that follows, under their number, has the state of all of them.
class EntryReader {
 public:
  explicit EntryReader(Recorded& found) : found_(found) {}

  void take(const json& from) {
    if (!from.is_object()) refuse("an entry", "is not a dictionary");
    note_id(count_in(from, "record_id", static_cast<int64_t>(taken_++)));
    const std::string name = text_in(from, "profiling_name", "");
    const std::string op = name.substr(name.find(':') + 1);
    const uint64_t message_number = count_in(from, "p2p_seq_id", 0);
    if (op == "coalesced" && join(from, message_number)) return;
    if (flag_in(from, "is_p2p")) {
      if (std::optional<Message> message = message_from(from, op)) {
        found_.messages.push_back(std::move(*message));
        message_numbers_.push_back(message_number);
      }
      return;
    }
    found_.entries.push_back(entry_from(from, op));
    found_.entries.back().id = id_;
  }

 private:
  /// Where a number is left out, earlier calls may be missing, too: a dump can leave out those that have ended.
  void note_id(uint64_t id) {
    if (id != id_ + 1 || taken_ == 1) found_.lost = id;
    id_ = id;
  }

  /// Gives the state of a "coalesced" to the calls before it of the same group and number.
  bool join(const json& from, uint64_t message_number) {
    const std::string group = group_of(from);
    const State state = state_of(from);
    bool joined = false;
    for (std::size_t i = found_.messages.size(); i-- > 0 && message_numbers_[i] == message_number && found_.messages[i].group == group; joined = true)
      found_.messages[i].state = state;
    if (joined || flag_in(from, "is_p2p")) return true;
    const uint64_t number = count_in(from, "collective_seq_id", -1);
    for (std::size_t i = found_.entries.size(); i-- > 0 && found_.entries[i].sequence == number && found_.entries[i].group == group; joined = true)
      found_.entries[i].state = state;
    return joined;
  }

  Recorded& found_;
  uint64_t taken_ = 0, id_ = 0;
  std::vector<uint64_t> message_numbers_;  ///< beside found_.messages
};

std::vector<int> ranks_from(const std::string& text, const std::string& group) {
  const json listed = parse_json(text);
  const auto is_rank = [](const json& rank) { return rank.is_number_integer() && rank >= 0 && rank <= kMostRank; };
  if (!listed.is_array() || !std::ranges::all_of(listed, is_rank)) refuse("the list of members of group " + in_quotes(group), "cannot be read");
  return listed.get<std::vector<int>>();
}

/// Does the record say that the rank has made calls?
bool says_calls(const json& status) {
  return std::ranges::any_of(status, [](const json& group) { return number_in(group, "last_enqueued_collective", 0) > 0; });
}

}  // namespace

json dump_of(const Recorded& recorded, const std::string& backend) {
  json groups = json::object(), status = json::object(), entries = json::array();
  for (const char* group : {"data", "gradients"})
    groups[group] = {{"name", group}, {"desc", kDescription}, {"ranks", ranks_text(recorded.world_size)}};
  for (const Entry& entry : recorded.entries) {
    entries.push_back(entry_json(entry, recorded.world_size, backend));
    json& last = status[entry.group == "data" ? "0" : "1"];
    last["last_enqueued_collective"] = last["last_started_collective"] = entry.sequence;
    if (entry.state == State::completed) last["last_completed_collective"] = entry.sequence;
  }
  return {{"version", kSchemaVersion}, {"pg_config", groups}, {"pg_status", status}, {"entries", entries}};
}

json value_of(std::string_view bytes) {
  if (!bytes.starts_with('{')) return from_pickle(bytes);
  if (std::ranges::count_if(bytes, [](char c) { return c == ',' || c == '[' || c == '{'; }) > kMostJsonValues)
    throw NotARecord("holds more values than any flight record");
  JsonProblem problem;
  json value = parse_json(bytes, &problem);
  if (!problem.message.empty()) throw NotARecord("is " + problem.text());
  return value;
}

Recorded recorded_from(const json& dump, int rank) {
  Recorded found;
  found.rank = rank;
  if (!dump.is_object()) throw NotARecord("is no flight record");
  const std::string version = text_in(dump, "version", "");
  if (!version.starts_with("2."))
    throw NotARecord(fmt::format("says the schema version {}; lockstep reads versions 2.x", in_quotes(version)));
  const json &entries = part(dump, "entries"), &groups = part(dump, "pg_config");
  if (!entries.is_array()) refuse("entries", "is not a list");
  if (!groups.is_object()) refuse("pg_config", "is not a dictionary");
  EntryReader reader(found);
  for (const json& entry : entries) reader.take(entry);
  if (entries.empty() && says_calls(part(dump, "pg_status"))) found.lost = UINT64_MAX;
  for (const auto& [key, group] : groups.items()) {
    const std::string name = text_in(group, "name", key);
    std::vector<int> ranks = ranks_from(text_in(group, "ranks", ""), name);
    if (ranks.empty()) continue;  // Gloo's says nothing
    found.world_size = std::max(found.world_size, *std::ranges::max_element(ranks) + 1);
    found.members[group_name(name, text_in(group, "desc", ""))] = std::move(ranks);
  }
  return found;
}

int write_records(const std::string& run_dir, int world_size, const std::string& backend) {
  int written = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!fs::exists(ring_path(run_dir, rank))) continue;
    const std::string folder = run_dir + "/flight";
    if (const auto error = real_files().make_folders(folder)) throw MachineError(folder + ": " + error.message());
    write_file_atomically(folder + "/rank_" + std::to_string(rank), to_pickle(dump_of(read_ring(ring_path(run_dir, rank)), backend)));
    real_files().remove(ring_path(run_dir, rank));
    ++written;
  }
  return written;
}

Records read_records(const std::string& folder) {
  Records found;
  std::vector<std::pair<int, std::string>> files;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    std::string name = file->path().filename().string();
    if (name.ends_with(".json")) name.resize(name.size() - 5);
    std::error_code unknown;
    const std::optional<int> rank = rank_of(name);
    if (rank && file->is_regular_file(unknown)) files.emplace_back(*rank, file->path().string());
  }
  if (error) throw std::runtime_error(folder + ": " + error.message());
  std::ranges::sort(files);
  for (const auto& [rank, path] : files) {
    try {
      if (!found.read.empty() && found.read.back().rank == rank) throw NotARecord("is a second record of the rank");
      const FileText file = read_file(path, kMostRecordBytes);
      if (!file) throw NotARecord(file.problem);
      found.read.push_back(recorded_from(value_of(file.text), rank));
    } catch (const std::runtime_error& problem) {
      found.unread.push_back({rank, path, problem.what()});
    }
  }
  if (files.empty()) throw std::runtime_error(folder + ": holds no flight record (files whose names end in a rank's number)");
  if (found.read.empty()) throw std::runtime_error(fmt::format("{}", fmt::join(in_words(found.unread), "; ")));
  return found;
}

std::vector<std::string> in_words(const std::vector<Unread>& unread) {
  std::vector<std::string> lines;
  for (const Unread& each : unread) lines.push_back(fmt::format("{}: {}; nothing is said of rank {}", clean_line(each.path), each.why, each.rank));
  return lines;
}

bool holds_records(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return false;
  try {
    return !read_records(folder).read.empty();
  } catch (const std::runtime_error&) {
    return false;
  }
}

namespace {

void put_int(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_integer(std::string& out, int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    out += 'J';
    return put_int(out, static_cast<uint64_t>(value), 4);
  }
  out += "\x8a\x08";  // LONG1, two's complement
  put_int(out, static_cast<uint64_t>(value), 8);
}

void put_value(std::string& out, const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      out += "}(";
      for (const auto& [key, item] : value.items()) {
        put_value(out, json(key));
        put_value(out, item);
      }
      out += 'u';
      break;
    case json::value_t::array:
      out += "](";
      for (const json& item : value) put_value(out, item);
      out += 'e';
      break;
    case json::value_t::string: {
      const std::string& text = value.get_ref<const std::string&>();
      out += 'X';
      put_int(out, text.size(), 4);
      out += text;
      break;
    }
    case json::value_t::boolean:
      out += value.get<bool>() ? "\x88" : "\x89";
      break;
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
      put_integer(out, value.get<int64_t>());
      break;
    case json::value_t::number_float: {
      const auto bits = std::bit_cast<uint64_t>(value.get<double>());
      out += 'G';
      for (int i = 7; i >= 0; --i) out += static_cast<char>(bits >> (8 * i) & 0xff);
      break;
    }
    default:
      out += 'N';
  }
}

/// A value while it is built: the memo and the stack may hold the same one, which is filled later. Values point at each other, in circles
/// if the file says so; the reader owns them all, so that none is freed by recursion.
struct Node;
using Value = Node*;
struct Node {
  enum class Kind { scalar, list, dictionary } kind = Kind::scalar;
  json scalar = {};
  std::vector<Value> items = {};  ///< of a dictionary: keys and values by turns
};

// What 20,000 entries with 30 frames each need, several times; and less than a GB of memory.
constexpr std::size_t kMostSteps = 4'000'000, kMostTextBytes = std::size_t{128} << 20;
constexpr int kDeepest = 64;

std::string key_of(const Node& node) {
  return node.scalar.is_string() ? node.scalar.get<std::string>() : node.scalar.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Writes values out: one that the memo holds stands in every place that names it, so that few bytes can stand for any number of values.
class Expansion {
 public:
  json of(const Node& node, int depth = 0) {
    if (depth > kDeepest) throw std::runtime_error("the pickle is nested deeper than any flight record");  // a list may hold itself
    count(node.scalar);
    if (node.kind == Node::Kind::scalar) return node.scalar;
    if (node.kind == Node::Kind::list) {
      json list = json::array();
      for (const Value item : node.items) list.push_back(of(*item, depth + 1));
      return list;
    }
    json object = json::object();
    for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
      count(node.items[i]->scalar);
      object[key_of(*node.items[i])] = of(*node.items[i + 1], depth + 1);
    }
    return object;
  }

 private:
  void count(const json& scalar) {
    if (scalar.is_string()) text_bytes_ += scalar.get_ref<const std::string&>().size();
    if (++values_ > kMostSteps || text_bytes_ > kMostTextBytes)
      throw std::runtime_error("the pickle stands for more values than any flight record holds");
  }

  std::size_t values_ = 0, text_bytes_ = 0;
};

/// The machine that reads a pickle: a stack of values, marks in it, and a memo.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  json value() {
    for (std::size_t steps = 0;; ++steps) {
      if (steps > kMostSteps) fail("holds more values than any flight record");
      const char op = take(1).front();
      if (op == '.') return Expansion().of(*pop());
      if (!structure(op) && !number(op) && !text(op) && !memo(op) && !call(op))
        fail("holds the opcode " + std::to_string(static_cast<unsigned char>(op)) + ", which no flight record needs");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("the pickle " + why + " (at byte " + std::to_string(at_) + ")");
  }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) fail("is cut short");
    const std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  uint64_t integer(int count) {
    uint64_t value = 0;
    int shift = 0;
    for (const char byte : take(static_cast<std::size_t>(count))) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(byte)) << shift;
      shift += 8;
    }
    return value;
  }
  std::string line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("is cut short");
    std::string found(take(end - at_));
    take(1);
    return found;
  }

  void push(json scalar) { stack_.push_back(&nodes_.emplace_back(Node::Kind::scalar, std::move(scalar))); }
  void push_new(Node::Kind kind, std::vector<Value> items) {
    stack_.push_back(&nodes_.emplace_back(kind, json(), std::move(items)));
  }
  Value pop() {
    Value value = top();
    stack_.pop_back();
    return value;
  }
  Value top() const {
    if (stack_.empty()) fail("takes a value from an empty stack");
    return stack_.back();
  }
  std::vector<Value> last(std::size_t begin) {
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<Value> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    return items;
  }
  std::vector<Value> since_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) fail("has no mark where one is needed");
    const std::size_t begin = marks_.back();
    marks_.pop_back();
    return last(begin);
  }
  void add(Node::Kind kind, const std::vector<Value>& items) {
    if (top()->kind != kind || (kind == Node::Kind::dictionary && items.size() % 2 != 0)) fail("adds to what takes no items");
    top()->items.insert(top()->items.end(), items.begin(), items.end());
  }
  void push_last(std::size_t count) {
    if (stack_.size() < count) fail("takes a value from an empty stack");
    push_new(Node::Kind::list, last(stack_.size() - count));
  }

  bool structure(char op) {
    switch (op) {
      case '\x80': take(1); return true;
      case '\x95': take(8); return true;
      case '(': marks_.push_back(stack_.size()); return true;
      case '}': push_new(Node::Kind::dictionary, {}); return true;
      case ']':
      case ')': push_new(Node::Kind::list, {}); return true;
      case 'd': push_new(Node::Kind::dictionary, since_mark()); return true;
      case 'l':
      case 't': push_new(Node::Kind::list, since_mark()); return true;
      case '\x85': push_last(1); return true;
      case '\x86': push_last(2); return true;
      case '\x87': push_last(3); return true;
      case 'u': add(Node::Kind::dictionary, since_mark()); return true;
      case 'e': add(Node::Kind::list, since_mark()); return true;
      case 's': {
        const Value value = pop(), key = pop();
        add(Node::Kind::dictionary, {key, value});
        return true;
      }
      case 'a': add(Node::Kind::list, {pop()}); return true;
      case '0': pop(); return true;
      default: return false;
    }
  }

  bool number(char op) {
    switch (op) {
      case 'N': push(nullptr); return true;
      case '\x88': push(true); return true;
      case '\x89': push(false); return true;
      case 'K': push(integer(1)); return true;
      case 'M': push(integer(2)); return true;
      case 'J': push(static_cast<int32_t>(integer(4))); return true;
      case '\x8a': {
        const auto count = static_cast<int>(integer(1));
        if (count > 8) fail("holds an integer of more than 64 bits");
        uint64_t value = integer(count);
        if (count > 0 && count < 8 && (value >> (8 * count - 1)) != 0) value |= ~uint64_t{0} << (8 * count);
        push(static_cast<int64_t>(value));
        return true;
      }
      case 'I':
      case 'L': {
        const std::string digits = line();
        if (op == 'I' && (digits == "00" || digits == "01")) push(digits == "01");
        else push(static_cast<int64_t>(std::strtoll(digits.c_str(), nullptr, 10)));
        return true;
      }
      case 'F': push(std::strtod(line().c_str(), nullptr)); return true;
      case 'G': {
        uint64_t bits = 0;
        for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
        push(std::bit_cast<double>(bits));
        return true;
      }
      default: return false;
    }
  }

  bool text(char op) {
    switch (op) {
      case 'X':
      case 'T':
      case 'B': push(std::string(take(integer(4)))); return true;
      case '\x8c':
      case 'U':
      case 'C': push(std::string(take(integer(1)))); return true;
      case '\x8d': push(std::string(take(integer(8)))); return true;
      case 'V': push(line()); return true;
      default: return false;
    }
  }

  bool memo(char op) {
    switch (op) {
      case 'q': memo_[integer(1)] = top(); return true;
      case 'r': memo_[integer(4)] = top(); return true;
      case '\x94': memo_.emplace(memo_.size(), top()); return true;
      case 'p': memo_[std::strtoull(line().c_str(), nullptr, 10)] = top(); return true;
      case 'h': recall(integer(1)); return true;
      case 'j': recall(integer(4)); return true;
      case 'g': recall(std::strtoull(line().c_str(), nullptr, 10)); return true;
      default: return false;
    }
  }
  void recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("asks for what it has not stored");
    stack_.push_back(found->second);
  }

  /// torch.jit._pickle.build_intlist([…]) and its like.
  bool call(char op) {
    if (op == 'c') {
      const std::string module = line(), name = line();
      if (module != "torch.jit._pickle" || !name.starts_with("build_")) fail("calls " + module + "." + name);
      push(name);
      return true;
    }
    if (op != 'R') return false;
    const Value arguments = pop();
    pop();
    if (arguments->kind != Node::Kind::list || arguments->items.empty()) fail("calls a builder without a list");
    stack_.push_back(arguments->items.front());
    return true;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::deque<Node> nodes_;  ///< where they stand, they stay
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::map<uint64_t, Value> memo_;
};

}  // namespace

std::string to_pickle(const json& value) {
  std::string out = "\x80\x02";
  put_value(out, value);
  return out + '.';
}

json from_pickle(std::string_view bytes) { return Reader(bytes).value(); }

}  // namespace lockstep::flight
