#pragma once
// How calls and ranks of flight records stand in sentences. Names come from files of other people: they are shown clean and cut.

#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/flight/ring.h"

namespace lockstep::flight {

/// A name in a sentence: clean, on one line, and cut if it is long.
std::string name_in_words(std::string_view name);

/// "rank 3", "ranks 0, 2, 4 to 9"; of many single ones the first and how many more.
std::string ranks_in_words(const std::vector<int>& ranks);

/// "all_reduce grad.w Float [4, 3]"
std::string call_in_words(const Entry& entry);

/// "send 0->1 Float [4]", "recv 1<-0 Float [4]"
std::string call_in_words(const Message& message);

/// "all_reduce grad.w"
std::string name_in_words(const Entry& entry);

}  // namespace lockstep::flight
