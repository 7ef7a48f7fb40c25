#pragma once
// Tells a run that works from one that hangs, and which of its ranks the others wait for. Looks at beats,
// reads no clock.

#include <optional>
#include <string>
#include <vector>

#include "harness/launch/beat.h"

namespace lockstep {

/// Follows the beats of one run; times are seconds of one clock.
class RunWatch {
 public:
  RunWatch(int world_size, double now);

  /// Notes what has changed since the last look.
  void look(const BeatFile& beat, double now);
  /// A rank that has ended is not waited for any more.
  void ended(int rank);

  /// Seconds for which no rank at the lowest step has reported anything: ranks ahead of it may only wait for
  /// it.
  double standstill_s(double now) const;
  /// The rank the others wait for: lowest step, then one outside a collective, then the one doing something
  /// else than the others, then the one that reported longest ago. -1 if all have ended.
  int behind() const;
  /// When the next look could find that it has stood still for `limit_s`.
  double deadline(double limit_s) const;

  bool alive(int rank) const { return !ranks_[static_cast<std::size_t>(rank)].ended; }

 private:
  struct Seen {
    int64_t step = -1;
    uint64_t changes = 0;
    std::string operation;
    double changed_at = 0;
    bool ended = false;
  };
  std::vector<const Seen*> slowest() const;
  std::vector<Seen> ranks_;
};

}  // namespace lockstep
