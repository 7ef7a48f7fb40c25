#pragma once
// What a comparison has really looked at, and the sentences that say so.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/evidence/difference.h"
#include "harness/verdict/evidence/parts.h"

namespace lockstep {

/// Kinds of evidence, in the order of a step. Of `own…` a run is compared with itself, where its reference shows that it must hold.
enum class Looked {
  samples,
  streams,
  controls,
  collectives,       ///< of both runs, by tag
  own_collectives,   ///< among the run's ranks
  replicas,
  scores,
  loss,
  local_gradients,
  reduced_gradients,
  gradient_norm,
  applied_gradients,
  parameters,
  optimizer_state,
  evaluation,
  buffers,
  updates,           ///< by what the run's own gradient gives
  own_reduction,
  own_norm,
  own_clipping,
};
inline constexpr std::size_t kLookedKinds = 20;

/// The kind that a phase's records are; nothing of those that are only kept for others.
std::optional<Looked> kind_of(Phase phase);

/// Counts, by kind of evidence, the steps at which it was compared. What agrees is said of these alone.
class Compared {
 public:
  /// Steps must not go back. What lies before the first step is no step.
  void add(Looked kind, int64_t step);
  int64_t steps(Looked kind) const { return counts_[static_cast<std::size_t>(kind)].steps; }

  /// Those of the kinds that were compared at all, in words: "sample ids, control values and loss (3 steps)", the
  /// number where it is not `all`. Empty if none was.
  std::string words(std::initializer_list<Looked> kinds, int64_t all, const std::string& scores = "energies") const;
  /// Those that were never compared.
  std::string lacking(std::initializer_list<Looked> kinds) const;
  /// Of what all ranks make together, those that were.
  std::string joint_words() const;
  /// What one of the runs alone recorded, as a sentence with a space before it; empty if there is nothing. Collectives one layout may make
  /// and another not, and evaluations tell it themselves.
  std::string words_of_one_run() const;

  /// What must agree exactly at any layout, and what run B's ranks and collectives show: what both runs recorded of it.
  void add_exact(const StepOfRun& a, const StepOfRun& b);
  /// Every phase of which both runs' rank 0 has records: two runs of one layout are compared bit for bit.
  void add_bits(const StepOfRun& a, const StepOfRun& b);

 private:
  void add_ledger(const StepOfRun& a, const StepOfRun& b);
  void add_replicas(const StepOfRun& b);
  void add_alone(const std::set<Phase>& of_a, const std::set<Phase>& of_b);

  struct Count {
    int64_t steps = 0, last = -1;
  };
  std::array<Count, kLookedKinds> counts_{};
  std::map<std::pair<bool, Looked>, int64_t> alone_;  ///< steps, by whether it is run A that recorded it
};

/// Whether both runs are at the same parameters, bit for bit, as far as their traces tell.
class EqualParameters {
 public:
  /// At the beginning of this step?
  bool hold() const { return equal_; }
  /// Nothing has said yet whether they are: the traces begin with a step.
  bool assumed() const { return assumed_; }
  /// Steps without a partner lie between: nobody knows where they are.
  void lost() { equal_ = false, lost_ = true; }
  void after(const StepOfRun& a, const StepOfRun& b);

 private:
  bool equal_ = true, assumed_ = true, lost_ = false;
};

/// Held-out samples that ranks evaluated, by id, over all ranks: the first that run B has more or less often than run A, or with another value, where
/// `equal` says that parameters are the same. Nothing where a run recorded no such rows.
std::optional<Difference> evaluated_rows_differ(const StepOfRun& a, const StepOfRun& b, bool equal, double epsilon);

/// Metrics that both runs evaluated. Where their parameters are the same bits they must agree; elsewhere nobody knows what
/// training has made of rounding, and both values are told.
class Evaluations {
 public:
  /// `equal`: parameters after this step are the same bits. `epsilon`: of the precision in which the runs compute.
  std::optional<Difference> differ(const StepOfRun& a, const StepOfRun& b, bool equal, double epsilon);
  /// What was judged of them and what was not, as sentences with a space before each; empty if neither run evaluated.
  std::string words() const;
  /// Of those that one run alone recorded; the others are compared bit for bit elsewhere.
  std::string words_of_one_run() const;

 private:
  int64_t judged_ = 0, same_ = 0, apart_ = 0, only_a_ = 0, only_b_ = 0;  ///< steps
  double most_ = 0, expected_ = 0, actual_ = 0;
  int64_t step_ = -1;
  std::string metric_;
};

}  // namespace lockstep
