#pragma once
// Who is behind in what: flight records of all ranks compared with each other, group by group and number by number.

#include <string>
#include <vector>

#include "harness/lib/flight/dump.h"

namespace lockstep::flight {

/// Where the ranks of one group part, or a message that waits.
struct Finding {
  /// missing: ranks have not entered what others have | mismatch: they call something else under the same number | stuck: all
  /// have entered it, and not all have left | message: a send or a receive that a rank has not left
  enum class Kind { missing, mismatch, stuck, message } kind = Kind::missing;
  std::string group;
  uint64_t sequence = 0;   ///< 0 of a message
  std::string op, tag;
  /// Those that are behind or differ: the fewer, and of equally many those without rank 0. Of a message: the rank that waits.
  std::vector<int> ranks;
  std::string sentence;
};

struct Judgement {
  /// Collectives: at most one a group, the one that began first at the front. Messages behind them: at most one a rank and group.
  std::vector<Finding> findings;
  std::vector<int> without_record;   ///< ranks of the world that left none
  std::vector<std::string> notes;    ///< what was not looked at, and why
  std::size_t ranks = 0;             ///< whose records were read
  bool without_members = false;      ///< a record says no group's members: PyTorch's Gloo, which notes no messages either
  std::size_t collectives = 0;       ///< that were compared with each other
  /// Nothing was found, and everything was looked at.
  bool clean() const { return findings.empty() && without_record.empty() && notes.empty() && collectives > 0; }
};

/// A group's members are those that a record says; of a group that none says (Gloo), the ranks that used it. A rank whose record may
/// lack the call is never said to be missing.
Judgement judge(const Records& records);

/// A line each; "All … agree" of what was looked at, if nothing parts.
std::vector<std::string> in_words(const Judgement& judgement);

}  // namespace lockstep::flight
