#pragma once
// What a forced run's trace holds at one step, as numbers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/evidence/run_evidence.h"
#include "harness/plan/matrix/matrix.h"

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

// Gradients of one forced step against their band, tensor by tensor and in parameter groups.

/// How wide a band is and how much of it a difference takes.
struct BandUse {
  double difference = 0, band = 0;
  double used() const;  ///< difference / band; 0 for no difference at all, infinite for one without a band
};

struct TensorUse {
  std::string name;
  BandUse use;
  double norm_reference = 0, norm_cell = 0;
};

struct GradientJudgement {
  std::vector<TensorUse> tensors;
  std::vector<GradientSignature> groups;  ///< in order of first appearance, then "all"
  std::vector<std::string> missing;       ///< tensors that only one of the two has
  std::vector<std::string> misshapen;
  const TensorUse* worst() const;  ///< null if there is no tensor
};

/// "context_encoder.weight1" belongs to "context_encoder".
std::string parameter_group(const std::string& name);

class TwinBounds;

/// With `twins` these are the bands. Else, without repeats, the band is the analytic bound relative to the whole gradient, or the floor if that is
/// larger. With config.exact > 0 it is that times max(|g_ref|, |sum of |terms||), whatever the repeats say.
GradientJudgement judge_gradients(const ForcedValues& reference, const ForcedValues& cell,
                                  const std::vector<ForcedValues>& repeats, const BandConfig& config,
                                  const TwinBounds* twins = nullptr);
/// The same of other gradients than the reduced ones, such as the means of the local ones; `reference` tells of their terms.
struct GradientPair {
  const std::vector<NamedTensor>&reference, &cell;
};
GradientJudgement judge_gradients(const ForcedValues& reference, const GradientPair& gradients,
                                  const std::vector<ForcedValues>& repeats, const BandConfig& config,
                                  const TwinBounds* twins = nullptr);

// A gradient as a weighted sum of others, by least squares: of the ranks' own, of their micro-steps', of a step before.

/// One tensor of the sum, and by part the part's of that name; null: the part has none there, which counts as zeros.
struct WeighedTensor {
  const std::vector<double>* sum = nullptr;
  std::vector<const std::vector<double>*> parts;
};

struct Weights {
  std::vector<double> of;  ///< by part; NaN: the tensors leave it open
  double residual = 0;     ///< what no weights explain: 2-norm, relative to the sum's
  bool all_known() const;
};

/// Over all elements of the tensors together, in float64 by QR with column pivoting. Parts of equal values share a
/// weight. What is smaller than roundings of `epsilon`, relative to its part, determines nothing. Empty without parts.
Weights weigh(const std::vector<WeighedTensor>& tensors, double epsilon);

/// Of those tensors of `sum` that every part has, in the same size.
std::vector<WeighedTensor> weighed_tensors(const std::vector<NamedTensor>& sum,
                                           const std::vector<std::vector<NamedTensor>>& parts);

// What the reduction made of the local gradients, judged without a reference; and which bucket held a tensor.

/// One reduced gradient against the mean (or sum) of the local ones.
struct ReductionUse {
  std::string name;
  double used = 0;  ///< largest difference of an element over what the rounding of V terms explains
};

/// What rounding may change in element i of a mean (or sum) of V terms: (V + 4) * epsilon * mean (sum) of |terms|.
std::vector<double> reduction_allowance(const ForcedValues& values, const NamedTensor& tensor);

/// Every tensor that has a finite mean; empty if local gradients were not kept.
std::vector<ReductionUse> judge_reduction(const ForcedValues& cell);

/// "bucket 2", the bucket that held the tensor: its fingerprint is the sum of its tensors' fingerprints.
/// Empty if the ledger does not tell.
std::string bucket_of(const StepRecords& rank0, const std::string& tensor);

// How much of a difference rounding explains where the reference was computed twice: in its own precision, and in
// float64 (its twin). docs/meaning.md says why these figures.

/// Of two twins: do they mean the same? Of a run and its twin: does it round as the reference does?
enum class TwinQuestion { meaning, arithmetic };

/// By tensor: how far the reference's gradient lay from its twin's at most, against t, at any of its forced steps.
using LargestErrors = std::map<std::string, double>;
/// Takes in a step of the reference, and of its twin.
void add_errors(LargestErrors& errors, const ForcedValues& reference, const ForcedValues& twin);

/// Bounds of one step, from the reference's values g, its twin's g64 and the sizes t of what that twin added up (term_size), with
/// T the norm of all tensors' t and u the epsilon in which the reference computes:
///
///   e = max(|g - g64|, t * the largest |g - g64| / t of the tensor at any forced step)   (2-norms)
///
///   meaning     1e-12 * max(|g64|, t) + 1e-14 * T + 64 * (2^-52 / u) * e
///   arithmetic  16 * e + n * u * (8 * max(|g64|, t) + 4 * T), n = 4 for a single number, whose e may be small by chance;
///               else 1
///
/// One step's e is a single draw, and in a model that explodes the next may be a hundred times larger. Where it is t / 8 or more
/// the precision has no digit left and measures nothing: u is then no more than float32's in the first.
///
/// The second part of the first is for gradients that are zero by symmetry, whose terms are; the third for gradients
/// that cancel within a row, of which e * 2^-52 / u is the rounding in float64. Other values likewise, with their size in
/// place of t and without T.
class TwinBounds {
 public:
  TwinBounds(TwinQuestion question, const ForcedValues& reference, const ForcedValues& twin, const LargestErrors& errors = {});

  TwinQuestion question() const { return question_; }
  /// Of a gradient; of a tensor that the reference lacks 0.
  double of_gradient(const std::string& name) const;
  /// `largest`: of the scores' absolute values.
  double of_scores(double largest) const { return bound({scores_, largest}, 0); }
  double of_loss(double size) const { return bound({loss_, size, true}, 0); }
  /// No less than what the bounds of all gradients together leave open.
  double of_gradient_norm(double size) const;
  double of_buffer(const std::string& name, double size) const;

 private:
  struct Value {
    double own = 0, size = 0;
    bool single = false;  ///< one number
  };
  double bound(const Value& value, double whole) const;

  TwinQuestion question_;
  double epsilon_, whole_ = 0;
  std::map<std::string, Value> gradients_, buffers_;
  double scores_ = 0, loss_ = 0, gradient_norm_ = 0;  ///< how far the reference's lie from its twin's
};

// Which single bit of which value explains that one element of a gradient is wrong.

struct FlippedBit {
  int rank = 0;
  std::string tensor;
  std::size_t element = 0;
  int bit = 0;
};

/// The element in which alone two tensors differ by more than `band` (the 2-norm of what rounding may
/// change), or nothing: equal within the band, or differing in more than one element.
std::optional<std::size_t> single_difference(const std::vector<double>& expected,
                                             const std::vector<double>& actual, double band);

/// A value with one bit of its representation (float32, or float64 if `wide`) turned.
double with_bit_turned(double value, int bit, bool wide);

/// An element of the mean over ranks that one flipped bit may have made wrong.
struct WrongElement {
  std::string tensor;
  std::size_t element = 0;
  double right = 0, wrong = 0;  ///< of the mean
  double uncertain = 0;         ///< how far rounding leaves it open
  double epsilon = 0;           ///< of the type in which the mean was computed
  bool wide = false;            ///< the ranks' values are float64; else float32
};

/// Every (rank, bit) that gives the right mean if it is turned back in the ranks' values, which hold the
/// flipped one.
std::vector<FlippedBit> flips_in_values(const WrongElement& element,
                                        const std::vector<std::vector<NamedTensor>>& local);

/// Every (rank, bit) whose flip in transit explains the wrong mean of the ranks' values, which are right
/// themselves. A message may be divided by the world size before or after it travels.
std::vector<FlippedBit> flips_in_messages(const WrongElement& element,
                                          const std::vector<std::vector<NamedTensor>>& local);

}  // namespace lockstep
