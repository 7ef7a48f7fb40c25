#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/text.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/ring.h"

// Who is behind in what: flight records of all ranks compared with each other, group by group and number by number.

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

// Two flights of one program compared: rank by rank, group by group, number by number.

/// A collective of one rank that is not the same in both.
struct Parting {
  int rank = 0;
  std::string group;
  uint64_t sequence = 0;
  int64_t step = 0;  ///< 0 where the records say none
  std::string name;      ///< of the call, and what it is for
  DivergenceKind kind = DivergenceKind::operation;
  std::string expected, actual;
};

struct FlightComparison {
  /// The one that began first on its rank. Of equally early ones a call that differs stands before one that is missing, and that
  /// before one that only one side has left: the latter two are what the first brings about on other ranks.
  std::optional<Parting> first;
  std::size_t compared = 0;                    ///< collectives that stand in both
  std::vector<int> without_a, without_b;       ///< ranks that have a record in the other alone
  std::vector<std::string> unread;             ///< a line for each record that could not be read
};

/// B against A. Numbers that either record may have written over are left out.
FlightComparison compare_flights(const Records& a, const Records& b);

// How calls and ranks of flight records stand in sentences. Names come from files of other people: they are shown clean and cut.

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
