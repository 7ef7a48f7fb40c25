#include "harness/cli/words.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/errors.h"
#include "harness/base/text.h"

namespace lockstep {

std::vector<std::string> split_lists(const std::vector<std::string>& lists) {
  std::vector<std::string> words;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      std::string word = list.substr(begin, end - begin);
      begin = end + 1;
      if (!word.empty() && std::find(words.begin(), words.end(), word) == words.end())
        words.push_back(std::move(word));
    }
  }
  return words;
}

void require_known(std::string_view word, const std::vector<std::string_view>& known,
                   const std::string& option, const std::string& what) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  ConfigProblem problem;
  problem.file = option;
  problem.message = fmt::format("unknown {} '{}'; known are {}", what, word, fmt::join(known, ", "));
  problem.suggestion = nearest(word, known);
  throw ConfigError(std::vector<ConfigProblem>{problem});
}

}  // namespace lockstep
