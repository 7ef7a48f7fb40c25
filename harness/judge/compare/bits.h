#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/evidence/ledger.h"

// Which ranks hold what of a value that all should hold alike, and which of them hold what the reference holds.

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

/// Among parameters: what no gradient moves.
inline bool is_buffer(std::string_view name) { return name.starts_with("buffer/"); }

/// Nothing where there is no record.
inline std::optional<std::vector<double>> values_of(const Record* record) { return record ? values_of(*record) : std::nullopt; }

/// What the ranks that record it have, each once.
std::set<uint64_t> hashes_of(const StepOfRun& step, Phase phase, const std::string& name);

/// Do the ranks' records say that each kept its own local gradient of that tensor? Not where their optimizers then took
/// one and the same: it was reduced after the tracer had looked.
bool each_keeps_its_own(const StepOfRun& step, const std::string& name);

/// "rank 2", "ranks 0 and 2", "ranks 1 to 7".
std::string ranks_text(const std::vector<int>& ranks);

// Steps of runs compared bit for bit: two runs of one layout, and the replicas of one run.

/// The first difference in bits of two runs of one layout at one step, by phase, rank and order in the step.
/// A collective whose inputs agree on all ranks but whose result differs comes before what was computed from
/// it. A record that only observes (snapshots, evaluations, term sums) is no difference if one run lacks it.
/// Collectives of a tag that the runs exchange in ways of their own (see tags_of_other_exchanges) are left to what comes out of them.
struct ComparedBits {
  bool exact_phases_only = false;
  /// Of runs that are not ours: ranks' losses with one mean but for rounding are no difference, nor are other scalars that
  /// rounding may tell apart (but for control values), nor is a tensor that one run
  /// may hold in shards (it has another shape, and is not called alike on all ranks), nor calls of a name that the runs do not
  /// make equally often, nor a kind of record that no rank of one run has at the step: its tracer may not see it.
  bool of_any_trainer = false;
  /// Nothing that a single rank computes from its own rows: see is_of_one_rank.
  bool joint_only = false;
};
std::optional<Difference> first_difference(const StepOfRun& a, const StepOfRun& b, ComparedBits compared = {});

/// A call that adds nothing (a gather, a broadcast), that all ranks entered with equal bits in both runs, and that gave
/// other bits. Other calls, or in another order, are the ledger's audit's to find.
std::optional<Difference> moved_otherwise(const StepOfRun& a, const StepOfRun& b);

/// Scores, losses, a rank's own gradients: they show where a difference begins. Training goes on with what all ranks make of them.
bool is_of_one_rank(Phase phase);

/// Two steps of one layout: do all ranks' optimizers take the same gradients, but for rounding?
bool takes_alike(const StepOfRun& a, const StepOfRun& b);

/// Of two steps of one layout of runs that are not ours: the first difference that counts, and the first that does not. What a single rank
/// holds does not where what all ranks make of it, which both recorded, agrees; where that may differ by rounding alone, that is the difference.
struct StepDifferences {
  std::optional<Difference> counts, passed;
};
StepDifferences differences_of_step(const StepOfRun& a, const StepOfRun& b);

/// A tensor that one of two runs holds in another shape, and may hold in shards.
bool is_in_shards(const Record& a, const Record& b);

/// The largest difference of a tensor at that step, relative to its whole phase on that rank; infinite where something has another form.
/// Nothing if values were not kept and statistics show none that is beyond rounding: hashes tell no size. `joint_only`: see ComparedBits.
std::optional<double> largest_relative_difference(const StepOfRun& a, const StepOfRun& b, bool joint_only = false);

/// What a record holds: a number, or the hash of a tensor and its norm where it is known.
std::string value_text(const Record& record);

/// Do two steps of one layout differ in nothing but signs of zeros, as the values tell that both kept? True only if they
/// differ in these.
bool differ_in_zeros_alone(const StepOfRun& a, const StepOfRun& b);

/// Replicas of one run that no longer agree at this step: where, and in words; nothing if all do. The rank is the first that
/// holds something else than the reference; where nothing tells which hold the right value it is unknown.
struct ReplicaDrift {
  Phase phase = Phase::parameters;
  int rank = kRankUnknown;
  Holders holders;
  std::string name;
  std::string sentence;
  std::string expected, actual;
};
/// `reference`: the other run's step, or null. `alone`: of this phase's records.
std::optional<ReplicaDrift> replica_drift(const StepOfRun& step, const StepOfRun* reference = nullptr,
                                          std::optional<Phase> alone = {});

// What rounding may explain where no repeat has measured it.

/// The analytic bound, relative to the size of the compared phase, `steps` steps after equal parameters.
/// Rounding of sums (of float32 unless `epsilon` says otherwise), times 128; it grows with the square of the
/// steps because training amplifies what rounding began.
inline double rounding_bound(int64_t steps, double epsilon = std::numeric_limits<float>::epsilon()) {
  const auto grown = static_cast<double>(steps + 1);
  return 128 * epsilon * grown * grown;
}

// What must agree exactly at any layout: sample ids, what rows hold, random streams, control values.

/// The first difference of two runs of different layouts at one step, in the exact phases: samples as a multiset, random streams by the
/// sum of their hashes, control values on every rank. Of runs of another program than `one_program` of ours, a stream or value that no
/// rank of one of them records is not compared.
std::optional<Difference> first_exact_difference(const StepOfRun& a, const StepOfRun& b, bool one_program);

/// Two steps of one layout whose batches hold the same samples in another order, on the same ranks or on others.
bool rows_reordered(const StepOfRun& a, const StepOfRun& b);

/// Of a step, as the header declares, or the parts of rank 0's gradient show.
int64_t micro_steps_of(const StepOfRun& step);

/// Do ranks and micro-steps of both hold the same rows in the same order? Else one is compared with the other as with another layout.
bool same_partition(const StepOfRun& a, const StepOfRun& b);

}  // namespace lockstep
