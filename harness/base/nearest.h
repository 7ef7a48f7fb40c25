#pragma once
// Which known word a mistyped one may mean.

#include <span>
#include <string_view>

namespace lockstep {

/// The nearest of `names` by edit distance, at most a third of the word's length (and at least one letter)
/// away; empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

}  // namespace lockstep
