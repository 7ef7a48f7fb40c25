#pragma once
// What a layout is called.

#include <string>

#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// "3x8": ranks and rows of each, as configs write it.
inline std::string layout_name(const Layout& layout) {
  return std::to_string(layout.world_size) + "x" + std::to_string(layout.rows_per_rank);
}

}  // namespace lockstep
