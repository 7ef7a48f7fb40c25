#pragma once
// Two flights of one program compared: rank by rank, group by group, number by number.

#include <optional>
#include <string>
#include <vector>

#include "harness/base/divergence_kind.h"
#include "harness/lib/flight/dump.h"

namespace lockstep::flight {

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

}  // namespace lockstep::flight
