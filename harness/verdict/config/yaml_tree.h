#pragma once
// A YAML text as a tree that keeps every key, in order and with its place: duplicates included, so that they
// can be reported.

#include <string>
#include <vector>

#include "harness/verdict/config/problems.h"

namespace lockstep {

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Place place;
  std::string text;             ///< of scalars
  bool quoted = false;          ///< of scalars: "3" is a text, 3 is a number
  std::vector<YamlNode> keys;   ///< of maps, one for each item
  std::vector<YamlNode> items;  ///< of maps and sequences

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_sequence() const { return kind == Kind::sequence; }
  bool is_map() const { return kind == Kind::map; }
};

/// The kind in words, for messages: "a list", "nothing".
const char* name_of(YamlNode::Kind kind);

/// The first document of `text`. Reports syntax errors, duplicate keys, keys that are no plain words, anchors
/// and further documents; places are in `source` (all of them nowhere in particular if `source` is not 0).
YamlNode read_yaml(const std::string& text, int source, Problems& problems);

}  // namespace lockstep
