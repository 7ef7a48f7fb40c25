#pragma once
// Who is behind in what: flight records of all ranks compared with each other, group by group and number by number.

#include <string>
#include <vector>

#include "harness/lib/flight/ring.h"

namespace lockstep::flight {

/// Where the ranks of one group part.
struct Finding {
  /// missing: ranks have not entered what others have | mismatch: they call something else under the same number | stuck: all
  /// have entered it, and not all have left
  enum class Kind { missing, mismatch, stuck } kind = Kind::missing;
  std::string group;
  uint64_t sequence = 0;
  std::string op, tag;
  std::vector<int> ranks;  ///< those that are behind or differ: the fewer, and of equally many those without rank 0
  std::string sentence;
};

struct Judgement {
  std::vector<Finding> findings;     ///< at most one a group, the one that began first at the front
  std::vector<int> without_record;   ///< ranks of the world that left none
  std::size_t collectives = 0;       ///< that were compared with each other
};

Judgement judge(const std::vector<Recorded>& records);

/// A line each; "All … agree" if nothing parts.
std::vector<std::string> in_words(const Judgement& judgement);

}  // namespace lockstep::flight
