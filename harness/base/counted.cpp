#include "harness/base/counted.h"

#include <fmt/format.h>

namespace lockstep {

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace lockstep
