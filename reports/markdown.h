#pragma once

#include <cstddef>
#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// What a step summary on GitHub takes at most.
inline constexpr std::size_t kLargestMarkdownBytes = 1 << 20;

/// GitHub-flavoured Markdown, at most kLargestMarkdownBytes; it says what was left out to stay below.
std::string markdown_summary(const Results& results);

}  // namespace lockstep
