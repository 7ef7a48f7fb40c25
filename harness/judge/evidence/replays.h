#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/evidence/arms.h"
#include "harness/judge/evidence/parts.h"

// Forced runs that a matrix has left beside two of its free runs.

namespace lockstep {

/// Folders of finished forced runs: gradients at one reference run's own snapshots.
struct ForcedBeside {
  int64_t seed = 0;
  std::string reference, cell;
  std::string reference_twin, cell_twin;  ///< the same in float64; of a run in float64 itself
  bool has_twins() const { return !reference_twin.empty() && !cell_twin.empty(); }
};

/// Those of both runs' settings in the folder that holds the runs: of their own seed and at the reference's own
/// snapshots, or, where the matrix forced another seed alone, of that one. Nothing where the runs lie apart, are forced
/// runs themselves, or have none that have finished.
std::optional<ForcedBeside> forced_runs_beside(const std::string& reference_dir, const RunRecord& reference,
                                               const std::string& cell_dir, const RunRecord& cell);

// Replays that another trainer's probe has left next to its runs: steps of the reference, computed once more from its
// weights and batches, and a step's loss taken apart: what the trainer's own function gives for single rows, pairs of
// them and all together.

/// Folders of traces, each with the gradients of the same steps.
struct ProbeReplays {
  std::string reference, cell;            ///< in the trainers' own precision
  std::string reference_twin, cell_twin;  ///< in float64; empty where one of the two could not
  std::string reference_rows, cell_rows;  ///< steps taken apart; empty where one of the two has none
  std::vector<std::string> repeats;       ///< of the reference with its rows in other orders, where there is no float64
  bool has_twins() const { return !reference_twin.empty(); }
};

/// Those of run A's steps in A/replay/DIGEST and B/replay/DIGEST, with the digest of A's rank-0.trace: replays of
/// another run's steps are left alone. Nothing where one of the two runs has none. Throws TraceError if A's trace
/// cannot be read.
std::optional<ProbeReplays> probe_replays(const std::string& reference_dir, const std::string& cell_dir);

/// A number that adds up over rows, as one rank's function gives it. Collectives were answered as if every rank had the
/// same rows, but of `own`.
struct Measured {
  double own = 0;                     ///< of the rank's rows, all ranks together
  std::optional<double> together;     ///< of all rows of the step; nothing where the function could not be measured
  std::map<int64_t, double> singles;  ///< by sample id
  std::optional<int64_t> first;       ///< the row that stands in every pair
  std::map<int64_t, double> pairs;    ///< by the other row's sample id
  double epsilon = 0;                 ///< of the type in which it was computed
};

/// What one rank measured. The slope is the gradient's dot product with a fixed random direction.
struct MeasuredRows {
  std::vector<int64_t> own_ids;  ///< sample ids of the rank's rows
  Measured loss, slope;
};

/// Of one step, by rank; the same weights on both sides.
struct RowsApart {
  int64_t step = 0;
  std::vector<MeasuredRows> reference, cell;
};

/// The last step up to `step` that both folders of traces hold. Throws TraceError.
std::optional<RowsApart> rows_apart(const std::string& reference_dir, const std::string& cell_dir, int64_t step);

/// What rows give and count, of a number that is the weighted mean of its rows', or their sum.
struct RowValues {
  struct Row {
    double value = 0, weight = 1;
  };
  std::map<int64_t, Row> rows;  ///< by sample id
  bool is_sum = false;          ///< then weights are 1
  double tolerance = 0;         ///< relative
};

/// Nothing if it is not made so: then rows depend on each other, unless `is_coupled` is false.
struct TakenApart {
  std::optional<RowValues> rows;
  bool is_coupled = false;  ///< that of all rows is far from any mean or sum of theirs
};
TakenApart taken_apart(const Measured& measured);

// Which ranks of a run hold the same parameters: what replicas reduce together, and whose rows make the batch.

/// The ranks whose local gradients are reduced with rank 0's: as the header declares, or else all, if each holds rank
/// 0's parameters, or shards of parameters whose gradients it has whole; none where the traces do not tell.
std::vector<int> ranks_reduced_together(const StepOfRun& step);

/// The ranks whose rows together are the step's batch. A rank that has an earlier rank's rows and holds other parameters, or other
/// shards of them, is a part of the same replica.
std::vector<int> ranks_with_rows(const StepOfRun& step);

/// The first of these ranks whose local gradient of some tensor has another shape or type than the reference's; where ranks of the
/// reference do not have one form, or none that a rank here has, than most have. -1: none.
struct OtherForm {
  int rank = -1;
  std::string tensor, expected, actual;
  bool other_shape = false;
};
OtherForm local_gradient_of_another_form(const StepOfRun& step, const std::vector<int>& ranks, const StepOfRun& reference);

}  // namespace lockstep
