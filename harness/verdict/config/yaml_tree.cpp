#include "harness/verdict/config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <unordered_map>

#include "harness/base/text.h"

namespace lockstep {
namespace {

/// A config has five levels.
constexpr std::size_t kMostYamlDepth = 50;
struct TooDeep {};

/// yaml-cpp takes other encodings by guess, and replaces what it cannot read.
bool is_utf8(const std::string& text, int source, Problems& problems) {
  Place place{0, 1, 1};
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter next = decode_utf8(text, at);
    if (text[at] == '\0' || (next.length == 1 && next.code > 0x7F)) {
      problems.add(source == 0 ? place : Place{source},
                   text[at] == '\0' ? "a NUL byte: a config must be text" : "a byte that is not UTF-8");
      return false;
    }
    at += next.length;
    ++place.column;
    if (next.code == '\n') ++place.line, place.column = 1;
  }
  return true;
}

// yaml-cpp's own nodes drop nothing but hide duplicates; its events do not.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(int source, Problems& problems) : source_(source), problems_(problems) {}

  YamlNode take() { return std::move(root_); }
  Place place_of(const YAML::Mark& mark) const {
    if (source_ != 0 || mark.is_null()) return {source_, 0, 0};
    return {source_, mark.line + 1, mark.column + 1};
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(node_of(YamlNode::Kind::null, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    problems_.add(place_of(mark), "aliases (*name) are not supported; write the value out");
    add(node_of(YamlNode::Kind::null, mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (const std::string unclean = unclean_character(value); !unclean.empty()) {
      problems_.add(place_of(mark),
                    fmt::format("{} holds {}: write visible characters only", in_quotes(value), unclean));
    }
    YamlNode node = node_of(YamlNode::Kind::scalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::sequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override {
    check_keys(open_.back());
    close();
  }

 private:
  YamlNode node_of(YamlNode::Kind kind, const YAML::Mark& mark) const {
    YamlNode node;
    node.kind = kind;
    node.place = place_of(mark);
    return node;
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      problems_.add(place_of(mark), "anchors (&name) are not supported; write the value out");
    }
  }
  // What yaml-cpp gives for a plain node is "?", for a quoted one "!".
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    problems_.add(place_of(mark),
                  fmt::format("tags ({}) are not supported: the key says what its value is",
                              clean_line(tag)));
  }
  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (open_.size() == kMostYamlDepth) {
      problems_.add(place_of(mark), fmt::format("nested deeper than {} levels", kMostYamlDepth));
      throw TooDeep{};
    }
    open_.push_back(node_of(kind, mark));
  }
  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    add(std::move(node));
  }
  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    const bool is_key = parent.is_map() && parent.keys.size() == parent.items.size();
    (is_key ? parent.keys : parent.items).push_back(std::move(node));
  }
  // Drops keys that cannot be used, so that the readers see each key once and as a word.
  void check_keys(YamlNode& map) {
    std::unordered_map<std::string, Place> first;
    YamlNode kept;
    for (std::size_t i = 0; i < map.keys.size() && i < map.items.size(); ++i) {
      const YamlNode& key = map.keys[i];
      if (!key.is_scalar()) {
        problems_.add(key.place, fmt::format("a key must be a word, not {}", name_of(key.kind)));
        continue;
      }
      const auto [at, is_new] = first.emplace(key.text, key.place);
      if (!is_new) {
        const std::string where = at->second.line > 0
                                      ? fmt::format("; it was given at line {} already", at->second.line)
                                      : std::string();
        problems_.add(key.place, fmt::format("duplicate key {}{}", in_quotes(key.text), where));
        continue;
      }
      kept.keys.push_back(std::move(map.keys[i]));
      kept.items.push_back(std::move(map.items[i]));
    }
    map.keys = std::move(kept.keys);
    map.items = std::move(kept.items);
  }

  int source_;
  Problems& problems_;
  std::vector<YamlNode> open_;
  YamlNode root_;
};

}  // namespace

const char* name_of(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return "a single value";
    case YamlNode::Kind::sequence:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
  }
  return "?";
}

YamlNode read_yaml(const std::string& text, int source, Problems& problems) {
  if (!is_utf8(text, source, problems)) return {};
  TreeBuilder builder(source, problems);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      YamlNode root = builder.take();
      TreeBuilder rest(source, problems);
      if (parser.HandleNextDocument(rest)) {
        problems.add(rest.take().place, "a second document; a config is one document");
      }
      return root;
    }
  } catch (const TooDeep&) {
    // It has been reported where it stands.
  } catch (const YAML::Exception& error) {
    problems.add(builder.place_of(error.mark), fmt::format("not YAML: {}", error.msg));
  }
  return {};
}

}  // namespace lockstep
