#pragma once
// Lists of seeds as users write them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/config/problems.h"
#include "harness/verdict/config/yaml_tree.h"

namespace lockstep {

/// "A..B" (both included), "a,b,c" or "n". Returns what is wrong, or an empty text.
std::string parse_seeds(std::string_view text, std::vector<int64_t>& seeds);

/// The same from a config: also a list.
void read_seeds(const YamlNode& node, std::vector<int64_t>& seeds, Problems& problems);

}  // namespace lockstep
