#pragma once
// Numbers of things, in words.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// "1 seed", "3 seeds".
std::string counted(int64_t count, std::string_view noun);

/// 13402 as "13,402".
std::string with_commas(int64_t number);

}  // namespace lockstep
