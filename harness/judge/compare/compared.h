#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/plan/config/canonical.h"

// What a comparison has really looked at, and the sentences that say so.

namespace lockstep {

/// Kinds of evidence, in the order of a step. Of `own…` a run is compared with itself, where its reference shows that it must hold.
enum class Looked {
  samples,
  streams,
  controls,
  collectives,      ///< of both runs, by tag
  own_collectives,  ///< among the run's ranks
  scores,
  loss,
  local_gradients,
  own_reduction,
  reduced_gradients,
  gradient_norm,
  own_norm,
  applied_gradients,
  own_clipping,
  updates,  ///< by what the run's own gradient gives
  parameters,
  optimizer_state,
  buffers,
  replicas,
  evaluation,
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

  void add(const Compared& other);
  /// What was compared, in the order of a step, with the number of steps where it is not `all`; then what one of the runs alone recorded, which
  /// collectives and evaluations tell themselves. `first`: where the runs differ; of its step only what comes before it agrees. `step`: what
  /// the steps are called.
  std::vector<Fact> facts(int64_t all, const std::optional<Divergence>& first = std::nullopt, std::string_view step = "step") const;
  /// Those of the kinds that were never compared.
  std::string lacking(std::initializer_list<Looked> kinds) const;

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
  /// Both kept what the step begins with, in equal bits: a run may be led by the other.
  void before(const StepOfRun& a, const StepOfRun& b);

 private:
  void look(Phase phase, const StepOfRun& a, const StepOfRun& b);

  bool equal_ = true, assumed_ = true, lost_ = false;
};

/// Held-out samples that ranks evaluated, by id, over all ranks: the first that run B has more or less often than run A, or with another value, where
/// `equal` says that parameters are the same. Nothing where a run recorded no such rows.
std::optional<Difference> evaluated_rows_differ(const StepOfRun& a, const StepOfRun& b, bool equal, double epsilon);

/// A metric that rank 0 of both runs recorded as a number, and what shows it to be another one whatever rounding does
/// to the weights.
struct OtherMetric {
  std::vector<double> of_ranks;  ///< of run B
  std::string rows;              ///< the metric by samples of which it is the mean in run A; empty: none
  double mean = 0;               ///< of that in run B, or of the ranks' numbers
};
/// In run A it is the mean over recorded samples, and in run B it is not; or ranks of run B have numbers of their own,
/// of which neither a weighted mean nor the sum is run A's, though their weights are nearly the same. Nothing where
/// neither is so.
std::optional<OtherMetric> other_metric(const StepOfRun& a, const StepOfRun& b, const std::string& name);

/// Metrics that both runs evaluated. Where their parameters are the same bits they must agree; elsewhere nobody knows what
/// training has made of rounding, and both values are told.
class Evaluations {
 public:
  /// `equal`: parameters after this step are the same bits. `epsilon`: of the precision in which the runs compute.
  std::optional<Difference> differ(const StepOfRun& a, const StepOfRun& b, bool equal, double epsilon);
  /// What was judged of them and what was not, in place of what bits say of them; nothing if neither run evaluated.
  void tell(std::vector<Fact>& facts) const;

 private:
  int64_t judged_ = 0, same_ = 0, apart_ = 0, only_a_ = 0, only_b_ = 0;  ///< steps
  double most_ = 0, expected_ = 0, actual_ = 0;
  int64_t step_ = -1;
  std::string metric_;
};

// What is known around the first divergence of two runs: what its cause is named from.

struct TrainerSpec;
namespace causes {
struct TrainerRules;
}

/// What forced runs tell of the step of the divergence.
struct ForcedEvidence {
  ForcedValues reference, cell;
  std::optional<ForcedValues> cell_before;  ///< the cell's forced step before
  KnownState state;                         ///< what the cell began from
  KnownState reference_state;               ///< what the reference began from
  double score_band = 0, loss_band = 0;
  GradientJudgement local;  ///< mean over ranks of the local gradients against the reference; empty: not kept
  GradientJudgement reduced;
};

/// Everything that is known around the first divergence. What is not known is empty or null.
struct CauseInputs {
  Difference difference;
  std::optional<StepOfRun> reference, cell;                ///< the runs in which it was found, at that step
  std::optional<StepOfRun> reference_before, cell_before;  ///< their last step before it
  SampleHistory reference_samples, cell_samples;           ///< up to one step beyond the divergence
  GeneratorHistory cell_generators;                        ///< likewise
  /// Rank 0's learning rates from the divergence on, if that lies in them.
  std::map<int64_t, double> reference_rates, cell_rates;
  std::optional<ForcedEvidence> forced;
  std::optional<LedgerFinding> ledger;  ///< if the ledger's own audit found it
  const RunConfig* reference_config = nullptr;
  const RunConfig* cell_config = nullptr;
  std::vector<ConfigDifference> config_differences;
  TrainingFacts reference_facts;
  TrainingFacts cell_facts;  ///< what it is compared with: see facts_to_meet
  /// The trainer of both runs; null: it is none of ours, or the runs have two. Then only causes that hold for
  /// any trainer are named.
  const TrainerSpec* trainer = nullptr;
  /// Its rules; null: those of the trainer of that name.
  const causes::TrainerRules* rules = nullptr;
};

/// What a comparison found.
struct Comparison {
  Mechanism mechanism;                ///< its cause is not named yet
  std::optional<CauseInputs> around;  ///< the first divergence, as far as traces tell of it
  /// Where that is of bits: what values show first at the same step.
  std::optional<CauseInputs> by_values = {};
};

// Which runs are compared, and what is known of them.

struct CompareOptions {
  std::string run_a = {}, run_b = {};     ///< run folders; A is the reference
  std::vector<std::string> repeats = {};  ///< run folders of permuted repeats of A (forced runs), to measure the band
  BandConfig band = {};
  const RunConfig* reference_config = nullptr;  ///< null: unknown, and causes that need it are not named
  const RunConfig* cell_config = nullptr;
  std::vector<std::string> declared = {};  ///< keys in which the two may differ: see ConfigDifference
  int64_t steps = 0;  ///< the first so many steps alone are judged, and the traces may end where they like after them; 0: all
  /// Does a cause explain a difference? Asked of steps that runs of two layouts do not begin at the same bits, where a difference alone proves
  /// nothing. Null: such steps are not judged against the reference.
  std::function<bool(const CauseInputs&)> explains = nullptr;

  ConfigPair configs() const { return {reference_config, cell_config, declared}; }
};

// Averages of the parameters (EMA): do they follow the live ones as the reference's do?

/// How an average came from the step before: average = decay * average + (1 - decay) * parameter.
struct AverageStep {
  std::string worst;      ///< the tensor that lies furthest from it
  double decay = 0;       ///< that fits best, over all tensors
  double residual = 0;    ///< largest distance of a tensor from it, in units of what rounding explains
  bool before = false;    ///< the parameters are those before the update
};

/// A run's step, and what it began with: the run's step before, or values that are known ("average/NAME" for the averages).
struct AveragedStep {
  const StepOfRun& step;
  const StepOfRun* before = nullptr;  ///< or null
  const Snapshot* state = nullptr;    ///< or null
};

/// Fitted over rank 0's averages. Nothing where values of this step or the one before were not kept, or nothing moved.
std::optional<AverageStep> average_step(const AveragedStep& at);

/// The tensor of run B whose average does not come from its own parameters as the reference's does from its. Nothing where the
/// reference's own follows no such rule.
std::optional<Difference> averages_difference(const AveragedStep& a, const AveragedStep& b);

// Two runs by their traces: bit for bit at one layout, by what layouts share otherwise, and by forced steps where there are repeats.

/// How two runs are configured otherwise, by their configs or by what their traces' headers declare. Throws TraceError.
std::vector<ConfigDifference> differences_of(const CompareOptions& options);

/// Did both runs compute in exact arithmetic? False where a config is not known.
bool both_exact(const RunConfig* reference, const RunConfig* cell);

/// Run B against run A from their traces alone, whatever their layouts. Throws TraceError.
Comparison compare_traces(const CompareOptions& options);

/// How far a run on real ranks agrees bit for bit with the emulated one, at most `asked` steps. `seed` and
/// `backend` are left to the caller, who knows the plan. Throws TraceError.
Certification certify(const std::string& emulated_dir, const std::string& real_dir, int64_t asked);

// Free traces of two layouts: what can be told without a forced step.

/// What a difference says of a tensor that keeps its bits in a step.
inline constexpr const char* kNoChange = "no change in this step";

/// Scores with another count of columns a row, in the trainer's word for them: "2 negatives of 23".
Difference columns_difference(const ScoreSpec& scores, const StepOfRun& run, int64_t expected, int64_t actual,
                              int rank);

/// Mechanism of two runs of different layouts from free traces alone: `divergent`, or `inconclusive` with what
/// was compared and what was not. What must agree exactly is compared at every step; scores, loss and gradients
/// at steps that both begin with the same parameters, bit for bit (the first one, as a rule), by their values
/// where both traces keep them, else by norm, smallest and largest element. Later on nobody knows by how much
/// training has amplified rounding: under Adam a gradient that is zero by symmetry moves its parameter by a
/// full learning rate in a direction that rounding chooses. A step that both begin nearly alike is judged by values all the same,
/// where options.explains is given, and counts if that says so. Configs may be unknown.
Comparison compare_layouts(StepPairs& pairs, const CompareOptions& options);

// The forced comparison: gradients of a cell at the reference's own parameters and batches, against a measured band.

/// The free runs and their configs, and run folders of the forced ones. The free runs may be left empty; then the exact
/// phases are compared in the forced runs themselves. Repeats are forced: permuted rows and order of reduction; without
/// any no band is measured. Without configs updates are not recomputed, and causes that depend on hyperparameters are
/// not named.
struct ForcedInputs : CompareOptions {
  std::string forced_reference = {}, forced_cell = {};
  /// The same in float64; of a run in float64 itself. Both or none; with them no repeat is looked at.
  std::string reference_twin = {}, cell_twin = {};
  int64_t forced_steps = 0;  ///< forced steps from this number on are not judged; 0: all are
  bool one_build = true;  ///< both were computed by one build of the programs: equal configs then have equal bits
};

/// A cell against its reference, at each forced step.
///
/// With twins two things are judged: whether both mean the same, by their twins' values; and whether the cell rounds as
/// the reference does, by the cell's values against its own twin's (TwinBounds has the bounds). Without them, per
/// tensor g of the gradients,
///
///   band = max(own, min(factor * q * |sum of |terms||, 4 * own), floor * epsilon * |sum of |terms||),
///   own = factor * max over repeats |g_repeat - g_ref| (2-norms)
///
/// where q is the upper quartile over the tensors of max over repeats |g_repeat - g_ref| / |sum of |terms||
/// (of tensors with a single element, which four repeats measure too rarely, 8 * factor) with epsilon of the
/// precision in which the terms were computed; or, if band.exact > 0, exact * max(|g_ref|, |sum of |terms||)
/// without any repeat. It holds for the mean over ranks of the local gradients and for the reduced ones;
/// scores (by row id and column id), loss and gradient norm likewise. Three things are judged without a
/// reference: the reduced gradient against the mean of the local ones, by the rounding of V terms; the update
/// against what the cell's own gradient gives; ledgers and replicas. Sample ids, random streams and control
/// values are compared exactly at all steps of the free runs; the earliest (step, phase) outside is the first
/// divergence. Where equal bits are promised (promise_equal_bits), every differing bit is outside, signs of zeros left out. Throws TraceError if a trace is missing, damaged or lacks what forced
/// runs keep.
Comparison compare_forced(const ForcedInputs& inputs);

}  // namespace lockstep
