#pragma once
// Numbers of things, in words.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// "1 seed", "3 seeds".
std::string counted(int64_t count, std::string_view noun);

}  // namespace lockstep
