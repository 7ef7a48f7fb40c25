#include "harness/verdict/results/interval.h"

#include <fmt/format.h>

namespace lockstep {

std::string level_words(double level) {
  // Six digits, so that a level of 1 - 2 * 0.05 does not show its rounding.
  return fmt::format("{:.6g} %", 100 * level);
}

}  // namespace lockstep
