#pragma once
// Bit-for-bit comparison of runs at one layout, and exact comparison of what must agree at any layout.

#include <limits>
#include <optional>
#include <string>

#include "harness/judge/align.h"
#include "harness/judge/judge.h"

namespace lockstep {

/// A difference of two runs at one step, with what is needed to judge its size.
struct Difference {
  Divergence divergence;
  Phase phase = Phase::samples;
  /// |norm - norm'| (of scalars |value - value'|) over the size of the whole phase on that rank; infinite if
  /// something is missing or of another shape, NaN if the traces do not tell.
  double relative = 0;
  /// Where in the step it lies, if not where its phase stands: a collective of the loss comes before the
  /// energies that are made from it. -1: by phase.
  int place = -1;
};

/// 10 * phase, or the difference's own place.
int place_of(const Difference& difference);

/// By step, then by place in the step.
bool earlier(const Difference& x, const Difference& y);

/// The phases whose values are compared exactly whatever the layouts: sample ids, random streams, control
/// values.
inline bool is_exact(Phase phase) {
  return phase == Phase::samples || phase == Phase::random || phase == Phase::control;
}

/// The first difference in bits of two runs of one layout at one step, by phase, rank and order in the step.
/// A collective whose inputs agree on all ranks and whose result does not goes before what was computed from
/// it. What only one of the runs recorded as an observer (snapshots, evaluations, term sums) is no
/// difference.
std::optional<Difference> first_difference(const StepOfRun& a, const StepOfRun& b,
                                           bool exact_phases_only = false);

/// The same for runs of different layouts, in the exact phases: samples as a multiset, random streams by the
/// sum of their hashes, control values on every rank.
std::optional<Difference> first_exact_difference(const StepOfRun& a, const StepOfRun& b);

/// Energies with another count of columns a row: "2 negatives of 23".
Difference columns_difference(int64_t step, int64_t expected, int64_t actual, int rank, int world_size);

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

/// How two runs' steps pair up until one of them ends.
class StepPairs {
 public:
  StepPairs(const std::string& dir_a, const std::string& dir_b) : a_(dir_a), b_(dir_b) {}
  RunReader& a() { return a_; }
  RunReader& b() { return b_; }
  bool same_layout() const { return a_.world_size() == b_.world_size(); }

  /// Reads the next step of both; false at the end of either, or where their steps part (see `missing_step`).
  bool next();
  const StepOfRun& step_a() const { return *step_a_; }
  const StepOfRun& step_b() const { return *step_b_; }
  /// The steps before those; empty at the first.
  const std::optional<StepOfRun>& before_a() const { return before_a_; }
  const std::optional<StepOfRun>& before_b() const { return before_b_; }
  int64_t compared() const { return compared_; }
  /// A step that one run recorded and the other skipped.
  const std::optional<Divergence>& missing_step() const { return missing_step_; }
  /// In words what the comparison could not reach: cut traces, unequal lengths; empty if both ended together
  /// and whole.
  std::string ends() const;

 private:
  RunReader a_, b_;
  std::optional<StepOfRun> step_a_, step_b_, before_a_, before_b_;
  std::optional<Divergence> missing_step_;
  int64_t compared_ = 0;
};

/// How far a run on real ranks agrees bit for bit with the emulated one, at most `asked` steps. `seed` and
/// `backend` are left to the caller, who knows the plan. Throws TraceError.
Certification certify(const std::string& emulated_dir, const std::string& real_dir, int64_t asked);

/// Mechanism of two runs of different layouts from free traces alone. What rounding touches is held to the
/// analytic bound while both runs have the same parameters; what leaves it later is undecided, since training
/// amplifies rounding by nobody knows how much.
Mechanism compare_layouts(StepPairs& pairs, const CompareOptions& options);

/// The analytic bound, relative to the size of the compared phase, `steps` steps after equal parameters.
/// Rounding of sums (of float32 unless `epsilon` says otherwise), times 128; it grows with the square of the
/// steps because training amplifies what rounding began.
double rounding_bound(int64_t steps, double epsilon = std::numeric_limits<float>::epsilon());

}  // namespace lockstep
