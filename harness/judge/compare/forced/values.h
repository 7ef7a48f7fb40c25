#pragma once
// What a forced run's trace holds at one step, as numbers.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/evidence/parts.h"
#include "harness/judge/evidence/run_evidence.h"
#include "harness/plan/config/run_config.h"

namespace lockstep {

struct ScoreSpec;

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> values;
  double epsilon = std::numeric_limits<float>::epsilon();  ///< of the type in which it was computed
  bool may_be_shard = false;  ///< its tracer does not call it alike on all ranks
};

/// Null if there is none of that name.
const NamedTensor* find_tensor(const std::vector<NamedTensor>& tensors, const std::string& name);

/// The values of a record that kept them all, in a floating-point type; else nothing.
std::optional<NamedTensor> whole_tensor(const Record& record);

/// What one rank recorded of its loss; NaN and empty where it recorded nothing.
struct RankLoss {
  double loss = std::numeric_limits<double>::quiet_NaN();
  double row_weight = std::numeric_limits<double>::quiet_NaN();
  double temperature = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> row_losses;  ///< [b] nats
  std::vector<int64_t> row_ids;    ///< [b] sample ids of those; empty if they are not known
  std::vector<double> row_counts, row_widths;  ///< [b] what each row counts (tokens), without and with padding
  std::map<std::string, double> terms, weights;                ///< of the loss's named parts
};

/// What one micro-step, or one named loss, added to a rank's gradient.
struct GradientPart {
  std::string part;       ///< "micro 0", "loss balance"
  std::string parameter;
  double norm = std::numeric_limits<double>::quiet_NaN();
  double dot = std::numeric_limits<double>::quiet_NaN();  ///< with the rank's local gradient
  NamedTensor values;     ///< empty: not kept
};

/// The scores of one row, one for each column: energies of candidates, logits of classes.
struct ScoreRow {
  int64_t row_id = 0;
  int rank = 0;
  std::vector<double> values;
};

struct Scores {
  std::vector<ScoreRow> rows;
  std::vector<std::vector<int64_t>> columns;  ///< ids by rank; the rows of a rank share them
};

struct ForcedValues {
  int64_t step = 0;
  std::vector<NamedTensor> gradients, term_sums;
  std::optional<Scores> scores;
  std::optional<double> loss;  ///< mean over ranks
  std::optional<double> gradient_norm, learning_rate;
  double epsilon = std::numeric_limits<float>::epsilon();  ///< of the gradients' type
  bool is_wide() const { return epsilon < 1e-10; }         ///< it is float64
  /// Of the type in which their terms were computed, which may be coarser: see working_epsilon.
  double working_epsilon = std::numeric_limits<float>::epsilon();
  /// By rank, of the ranks that hold the same parameters as rank 0, if every one of these kept its local gradients
  /// whole and each once; else empty.
  std::vector<std::vector<NamedTensor>> local;
  std::vector<int> local_ranks;     ///< which ranks those are
  std::vector<std::vector<GradientPart>> parts;  ///< of their local gradients, in the same order; empty: none were recorded
  int64_t micro_steps = 1;          ///< whose gradients may be reduced each and added up then
  bool other_stages = false;        ///< some gradients are of parameters that rank 0 does not hold
  bool reduced_by_sum = false;      ///< gradients of ranks are added up: each rank's loss is its share of the whole
  std::vector<NamedTensor> applied; ///< gradients that the optimizer took, if recorded
  std::vector<NamedTensor> parameters;  ///< rank 0's after the update, if kept whole; buffers too
  std::vector<NamedTensor> optimizer_state;  ///< rank 0's after the update, if kept whole: "first_moment/NAME"
  std::vector<RankLoss> losses;         ///< by rank
};

/// The mean over ranks of the local gradients (their sum where that is the reduction), added rank by rank, in the order
/// of rank 0's tensors; a rank without a tensor adds 0.
std::vector<NamedTensor> mean_of_local(const ForcedValues& values);

/// What a free run kept before a step: parameters, moments, buffers by name, and the number of updates so
/// far.
struct Snapshot {
  std::vector<NamedTensor> tensors;
  std::optional<double> updates;
};
/// What a run is known to have begun a step with; null: nothing. Shared, since it is as large as a model and its optimizer.
using KnownState = std::shared_ptr<const Snapshot>;
/// How far apart the parameters of two states are, by the size of the first's; nothing where either is null or they share none.
std::optional<double> relative_distance(const KnownState& a, const KnownState& b);
/// What a free run kept before the step; null if no tensor.
KnownState snapshot_of(const StepRecords& rank0);
/// What a free run began the step with: its snapshot, or else the parameters and the optimizer's state that it ended
/// the step before with. Null if it kept neither whole.
KnownState state_before(const StepOfRun& step, const std::optional<StepOfRun>& before);

/// What one rounding may change, relative, where a run computes scores and gradients: 2^-8 in bfloat16, which rounds
/// what was summed in float32; else `recorded`, the epsilon of the type in which they are kept.
double working_epsilon(const TrainingFacts& facts, double recorded);

/// Throws TraceError if the reduced gradients were not kept whole.
ForcedValues forced_values(const StepOfRun& step, const std::string& run_dir, const ScoreSpec& scores);

/// |a - b|; 0 for equal infinities and for two NaN, whatever their bits; infinite where only one of them is a number.
double distance(double a, double b);

/// sqrt of the sum of squared distances. Sizes must be equal.
double distance(const std::vector<double>& a, const std::vector<double>& b);
double norm(const std::vector<double>& values);
/// Sum of products. Sizes must be equal.
double dot(const std::vector<double>& a, const std::vector<double>& b);
/// The largest |value|; 0 of none.
double largest_of(const std::vector<double>& values);
/// Of the sums of |terms| that make a gradient, and no less than the gradient's own. Where none were recorded, a part of
/// them: of each element the ranks' own gradients, taken without their signs.
double term_size(const NamedTensor& gradient, const ForcedValues& values);
/// Of all tensors together.
double whole_norm(const std::vector<NamedTensor>& tensors);

struct ScoreDifference {
  double largest = 0;  ///< over all scores that both have
  double sum = 0;      ///< of all their distances
  int64_t row_id = -1, column_id = -1;
  int rank = 0;  ///< of the other run
  double expected = 0, actual = 0;
  int64_t compared = 0;
  int64_t missing_rows = 0;
  // Of the row that lacks the most columns, or else has the most that the reference lacks:
  int64_t expected_columns = 0, actual_columns = 0, missing_columns = 0, extra_columns = 0;
  int columns_rank = 0;
  bool every_rank_differs = false;  ///< in its columns
};

/// Aligns by (row id, column id); a repeated id meets the reference's repetitions in order.
ScoreDifference score_difference(const Scores& reference, const Scores& other);

/// The first row of which the two take other columns, if a row takes its `taken(columns)` lowest scores besides its own;
/// -1: none. Rows and columns must stand in the same order.
int64_t row_taken_otherwise(const Scores& a, const Scores& b, const std::function<int64_t(int64_t columns)>& taken);

/// Largest |score| among finite ones.
double largest_score(const Scores& scores);

}  // namespace lockstep
