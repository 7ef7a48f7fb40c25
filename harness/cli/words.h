#pragma once
// Lists of words as users give them on the command line.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The words of lists joined by commas, in order, each once.
std::vector<std::string> split_lists(const std::vector<std::string>& lists);

/// Throws ConfigError, "OPTION: unknown WHAT 'word'; known are a, b, c; did you mean a?", unless `word` is
/// one of `known`.
void require_known(std::string_view word, const std::vector<std::string_view>& known,
                   const std::string& option, const std::string& what);

}  // namespace lockstep
