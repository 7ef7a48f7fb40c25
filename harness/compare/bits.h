#pragma once
// Steps of runs compared bit for bit: two runs of one layout, and the replicas of one run.

#include <optional>
#include <string>

#include "harness/evidence/align.h"
#include "harness/evidence/difference.h"

namespace lockstep {

/// What of two steps must be equal.
enum class Equal {
  bits,          ///< everything
  numbers,       ///< values that both kept whole as numbers (signs of zeros do not count), and hashes of the others
  exact_phases,  ///< bits of sample ids, random streams and control values alone
};

/// The first difference in bits of two runs of one layout at one step, by phase, rank and order in the step.
/// A collective whose inputs agree on all ranks but whose result differs comes before what was computed from
/// it. A record that only observes (snapshots, evaluations, term sums) is no difference if one run lacks it.
std::optional<Difference> first_difference(const StepOfRun& a, const StepOfRun& b,
                                           Equal what = Equal::bits);

/// Replicas of one run that no longer agree at this step: where, and in words; nothing if all do. The rank is
/// one that differs from most others; of two ranks it is the second.
struct ReplicaDrift {
  Phase phase = Phase::parameters;
  int rank = 0;
  std::string name;
  std::string sentence;
  std::string expected, actual;
};
std::optional<ReplicaDrift> replica_drift(const StepOfRun& step);

}  // namespace lockstep
