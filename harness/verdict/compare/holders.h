#pragma once
// Which ranks hold what of a value that all should hold alike, and which of them hold what the reference holds.

#include <string>
#include <vector>

#include "harness/verdict/evidence/align.h"

namespace lockstep {

struct Holders {
  std::vector<std::vector<int>> groups;  ///< ranks by equal bits, the smallest first; of equal ones the later ranks first
  int right = -1;                        ///< the group that the reference speaks for; -1: nothing tells
  bool same_bits = false;                ///< the reference holds its very bits; else it lies within rounding of it

  bool parted() const { return groups.size() > 1; }
  /// Those that hold something else than the reference; where nothing tells, those of all groups but the largest, if there is one.
  std::vector<int> odd() const;
  /// A rank of the right group, or of the largest.
  int model() const { return (right < 0 ? groups.back() : groups[static_cast<std::size_t>(right)]).front(); }
};

/// `subject`: rank 0's record. The reference speaks for the group that holds its bits. Where none does (another layout rounds
/// otherwise) it speaks for the one whose values lie nearest, if those of all groups are known; and if rank 0's alone are, for
/// most ranks, where rank 0 is one of them and lies within rounding, or is none of them and does not. `reference` may be null.
Holders holders_of(const StepOfRun& step, const Record& subject, const StepOfRun* reference);

/// "rank 2", "ranks 0 and 2", "ranks 1 to 7".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace lockstep
