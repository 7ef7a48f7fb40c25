#include "harness/lib/flight/pickle.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

namespace lockstep::flight {
namespace {

using nlohmann::json;

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
