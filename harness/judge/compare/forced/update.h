#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/evidence/run_evidence.h"
#include "harness/plan/matrix/matrix.h"

// The optimizer's update of one step, recomputed in double from what the traces hold.

namespace lockstep {

/// Nothing where there is no record.
inline std::optional<NamedTensor> whole_tensor(const Record* record) { return record ? whole_tensor(*record) : std::nullopt; }

/// What an update is made from: the state before it, the reduced gradients, their norm, the rate and the
/// hyperparameters. All must outlive it.
struct UpdateInputs {
  const Snapshot& state;
  const std::vector<NamedTensor>& gradients;
  double gradient_norm = 0, learning_rate = 0;
  const UpdateFacts& facts;
  double clip_norm = 0;  ///< 0: gradients are taken as they are
};

/// Those of a run's step: from the gradients that the optimizer took where they are recorded, else from the reduced
/// ones, to be clipped. Nothing where rate or optimizer are not known, or the norm to clip by.
std::optional<UpdateInputs> update_inputs(const Snapshot& state, const ForcedValues& values,
                                          const TrainingFacts& facts);

/// The recorded norm of the reduced gradients, or else their norm.
double reduced_norm(const ForcedValues& values);
/// Is that the whole gradient's? A norm of what may be shards is none.
bool knows_norm(const ForcedValues& values);

/// The update as it should be, or with one thing changed: how mistakes are recognised.
struct UpdateVariant {
  double decay = 1;             ///< times the configured weight decay
  bool other_coupling = false;  ///< AdamW's decay in the gradient, or Adam's beside it
  bool zero_moments = false, zero_count = false;
  int count_ahead = 0;  ///< updates that the optimizer counts beyond those that it made
  std::optional<double> clip = {};  ///< factor on the gradients instead of the configured one
  std::optional<double> rate = {};  ///< instead of the recorded one
  std::optional<double> rate_factor = {}, weight_decay = {};  ///< instead of the parameter's own
};

/// The factor that clipping to clip_norm puts on gradients of that norm; 1 without clipping (0).
double clip_factor(double clip_norm, double gradient_norm);

/// A parameter after the update, and what rounding in the arithmetic of `epsilon` may change in each element.
struct PredictedTensor {
  std::vector<double> values, allowance;
};

/// Nothing if state or gradient lack the tensor, or an optimizer's moment is missing.
std::optional<PredictedTensor> predict_update(const UpdateInputs& inputs, const std::string& name,
                                              const UpdateVariant& variant = {});

struct UpdateUse {
  std::string name;
  double used = 0;                  ///< largest difference of an element over its allowance
  double expected = 0, actual = 0;  ///< norms of the parameter's change
};

/// Every parameter whose update can be predicted, against its recorded values.
std::vector<UpdateUse> judge_update(const UpdateInputs& inputs, const std::vector<NamedTensor>& parameters,
                                    const UpdateVariant& variant = {});

// One forced step of a cell against its reference, phase by phase.

struct ScoreSpec;
class TwinBounds;

/// The step as both runs recorded it, and what is known around it. All references must outlive it.
struct EqualStep {
  const StepOfRun& a;  ///< the reference's records
  const std::string& dir_a;
  const StepOfRun& b;  ///< the cell's
  const std::string& dir_b;
  const std::optional<StepOfRun>& before_b;  ///< the cell's step before, if it has one
  const std::vector<ForcedValues>& repeats;  ///< of the reference's step
  KnownState state = {};                     ///< what both began from, or the reference alone
  KnownState cell_state = {};                ///< what the cell began from, if not from `state`
  bool exact_phases = false;                 ///< samples, streams and control values are judged here, too
  bool free = false;                         ///< of free runs: what only one of them recorded is no difference
  const TwinBounds* twins = nullptr;  ///< or none: repeats or a bound are what differences are compared with
  const StepOfRun* ledger_of = nullptr;  ///< whose ledger the cell's is compared with, if not `a`'s
  Compared* compared = nullptr;          ///< takes what was compared, or none
  const StepOfRun* before_a = nullptr;   ///< the reference's step before, or none
};

/// What all steps of a comparison share.
struct StepRules {
  const TrainerSpec* trainer = nullptr;  ///< see CauseInputs
  ConfigPair configs = {};
  BandConfig band = {};
  TrainingFacts reference_facts = {}, cell_facts = {};

  /// Of a trainer of ours, whose records are known, and whose recorded loss is the one that gradients are taken of;
  /// others may log what a rank sees.
  bool ours() const { return trainer != nullptr; }
  const ScoreSpec& scores() const { return scores_of(trainer); }
  /// What is known whatever the step.
  void tell(CauseInputs& inputs) const;
};
StepRules rules_of(const RunReader& a, const RunReader& b, const ConfigPair& configs, const BandConfig& band = {});

/// What is found of a step on the way.
struct ForcedContext {
  const EqualStep& step;
  const StepRules& rules;
  ForcedEvidence evidence = {};
  ForcedStep at = {};         ///< how much of the band is used
  bool begins_equal = false;  ///< both runs begin the step with the same parameters and optimizer
  const StepOfRun &a = step.a, &b = step.b;

  int world_size() const { return static_cast<int>(b.ranks.size()); }
  bool same_layout() const { return a.ranks.size() == b.ranks.size(); }

  void looked_at(Looked kind) const {
    if (step.compared) step.compared->add(kind, b.step);
  }
  /// Counts what `use` takes of its band; true if it lies outside.
  bool outside(const std::string& where, const BandUse& use);
  /// "differs by 1e-3, 12 times the band of 8e-5".
  std::string band_text(const BandUse& use) const;
  /// Band of a value of that size, computed in the precision of `epsilon`, whose repeats differ by up to
  /// `repeated`.
  double scalar_band(double repeated, double size, double epsilon) const;
};

/// A trainer whose ranks' losses are their shares of the whole adds gradients up. It is told from one that forgot to
/// divide by the reduced gradients, which are the reference's, and which are the sum of the local ones.
void note_reduction_by_sum(ForcedEvidence& evidence);

/// Of trainers that reduce by hand what the optimizers took is compared: is it the same?
bool agree_as_taken(const ForcedEvidence& evidence);

/// Scores, by row id and column id.
std::optional<Difference> judge_scores(ForcedContext& context);
std::optional<Difference> judge_loss(ForcedContext& context);
/// A rank whose local gradients have other shapes or types than the other ranks'.
std::optional<Difference> judge_local_forms(ForcedContext& context);
/// The mean over ranks of the local gradients against the reference's gradient; at one layout also the rank.
std::optional<Difference> judge_local_gradients(ForcedContext& context);
/// Reduced gradients against the mean of the local ones, by the rounding of V terms; then against the
/// reference.
std::optional<Difference> judge_reduced_gradients(ForcedContext& context);
std::optional<Difference> judge_gradient_norm(ForcedContext& context);
/// What the optimizer took against the reduced gradient, clipped as is known. Nothing is said where the reference's
/// own is not that.
std::optional<Difference> judge_applied_gradients(ForcedContext& context);
/// Buffers against the reference's.
std::optional<Difference> judge_buffers(ForcedContext& context);
/// Parameters after the update against what the cell's own gradient should give. Nothing is said where the
/// recomputation does not give the reference's own update.
std::optional<Difference> judge_parameters(ForcedContext& context);

/// Moments after the update against the reference's, by what the gradients' bands make of them.
std::optional<Difference> judge_moments(ForcedContext& context);

/// Moments that the cell's step before left, and that its step begins without.
std::optional<Difference> judge_lost_moments(ForcedContext& context);
/// A rank whose local gradients have, in every tensor, the bits that they had at the step before, although its rows are other ones.
std::optional<Difference> judge_stale_local(ForcedContext& context);
/// Reduced gradients against the mean (or sum) of the same run's local ones: the one that is furthest from it.
std::optional<Difference> judge_own_reduction(ForcedContext& context);
/// Of trainers that clip by hand, from nearly the same weights: did the optimizers take gradients of one size?
std::optional<Difference> judge_taken_by_hand(ForcedContext& context);
/// Are what stands for the reduced gradients clipped ones, as the reference's optimizer takes them, too? Traces of trainers that reduce by hand tell no other.
bool is_clipped_by_hand(const ForcedEvidence& evidence);
/// The recorded norm against that of the reduced gradients; nothing is said where the reference's is not that.
std::optional<Difference> judge_own_norm(ForcedContext& context);

/// The rank whose local gradients alone explain that the mean of all is wrong, or -1: one element of one
/// rank, a value that is no number, or one rank's gradient by a factor.
int rank_of_local_fault(const ForcedEvidence& evidence);

// Updates of tensors of which ranks hold parts, and updates that nobody can recompute.

/// What a whole tensor has at the place of a part of it; nothing where it is another tensor.
std::optional<std::vector<double>> values_at(const NamedTensor& whole, const Record& part);

/// What a step began with: the values that are known, or else the step before.
struct BeforeUpdate {
  const Snapshot* state = nullptr;     ///< or null
  const StepOfRun* step = nullptr;     ///< the run's step before, or null
  const std::vector<NamedTensor>* after = nullptr;  ///< the parameters after the update, where `state` is known
  const Snapshot* reference_state = nullptr;        ///< of the reference, or null
  const std::vector<NamedTensor>* reference_after = nullptr;
};

/// Did the part of that parameter that the rank holds keep every bit, although its reduced gradient is not 0 and other ranks'
/// parts of it moved? Where it is known how the reference moved there, it must have done so by more than rounding: a gradient that is nearly 0 may
/// move nothing.
bool shard_stood_still(const StepOfRun& step, const BeforeUpdate& before, std::size_t rank, const std::string& name);

/// A parameter that both runs moved from equal values by equal gradients, and not alike.
struct UnlikeUpdate {
  std::string name;
  double expected = 0, actual = 0, gap = 0;  ///< norms of both changes and of their difference, over elements whose gradient is not small
};

/// The one whose changes lie furthest apart, of an optimizer that cannot be recomputed. Elements count whose gradient is more than a
/// thousandth of the largest, and far beyond rounding: what an adaptive optimizer makes of a gradient of rounding alone means nothing. Nothing where changes lie no
/// further apart than a twentieth of the reference's.
std::optional<UnlikeUpdate> unlike_update(const ForcedEvidence& evidence);

/// Parameters that moved as if each rank's part were a matrix by itself.
struct ShardUpdates {
  std::vector<std::string> tensors;  ///< empty: none did
  std::string how;
  bool exact = false;  ///< by a factor for each part, or by the polar factor of each part's gradient
};
ShardUpdates updates_by_shard(const ForcedEvidence& evidence, const StepOfRun& cell);

// What the free runs of a forced comparison say for sure: exact phases, ledgers, replicas; at one layout also bits.

struct FreeFindings {
  std::optional<CauseInputs> found;    ///< the first step whose exact phases, ledger or replicas are wrong
  std::optional<CauseInputs> bits;     ///< at one layout: the first differing bit, signs of zeros left out
  std::optional<Difference> passed;    ///< at one layout: the first that does not count, see StepDifferences
  std::optional<Divergence> zeros;     ///< at one layout: the first step that differs in signs of zeros alone
  std::map<int64_t, KnownState> states;  ///< of the reference, at its snapshot steps
  int64_t compared = 0;
  bool compared_bits = false;
  int64_t reordered = -1;    ///< at one layout: the first step whose rows stand in another order or in other micro-steps; -1: none
  Compared looked_at;        ///< before the finding
  Evaluations evaluations;
  std::string ends, missing_end, gaps;  ///< see StepPairs
};

/// `most_steps`: see StepPairs. `epsilon`: of the precision in which the runs compute.
FreeFindings read_free_runs(const std::string& reference, const std::string& cell, int64_t most_steps, double epsilon);

/// Exact phases (if asked), ledger and replicas of one step: the first that is wrong, with the ledger's
/// finding if that is the first. `before` is the cell's step before and may be null; `compared` takes what was looked at, or
/// is null. At one layout rows may stand in another order, as between two.
struct OwnFindings {
  std::optional<Difference> difference;
  std::optional<LedgerFinding> ledger;

  /// Is replaced by `other`, which `of_ledger` tells more of, if that lies earlier in the step.
  void keep_earlier(const std::optional<Difference>& other, const std::optional<LedgerFinding>& of_ledger = std::nullopt) {
    if (other && (!difference || earlier(*other, *difference))) *this = {other, of_ledger};
  }
};
/// Do ranks hold other gradients than each other, and yet end the step with the same parameters, which are the reference's but for
/// rounding? Then the program joins its ranks later: in the optimizer's step, or by averaging parameters.
bool joins_updates(const StepOfRun& a, const StepOfRun* before_a, const StepOfRun& b, const StepOfRun* before_b);
/// `one_program`, `reference_before`: see AuditedBeside.
OwnFindings own_findings(const StepOfRun& reference, const StepOfRun& cell, const StepOfRun* before, bool exact_phases, bool one_program,
                         Compared* compared = nullptr, const StepOfRun* reference_before = nullptr);

/// NaN and infinity in one run alone are no rounding, whatever the parameters are: the first such place of the step. The
/// rank is told where one rank alone holds them.
std::optional<Difference> number_of_one_run(const StepOfRun& a, const StepOfRun& b);

/// Replaces `first` by `other` if that lies earlier in the step.
void keep_earlier(std::optional<Difference>& first, const std::optional<Difference>& other);

/// The verdict of two runs that part there, with all that the end of the comparison knows.
Comparison parted_at(CauseInputs around, StepPairs& pairs, const StepRules& rules, Mechanism result = {});

/// Everything that free runs tell of the step at which they are.
CauseInputs inputs_at(const StepPairs& pairs, const Difference& difference);
/// What the step itself tells of a difference. `before`: the cell's step before.
CauseInputs inputs_of(const Difference& difference, const StepOfRun& reference, const StepOfRun& cell, const std::optional<StepOfRun>& before = {});

// One step that two runs began with the same parameters, judged phase by phase.

struct JudgedStep {
  ForcedStep at;                     ///< how much of the bands is used
  std::optional<CauseInputs> first;  ///< the first difference beyond its band
  bool reduced_by_sum = false;       ///< of the cell: its ranks' gradients are added up, and rightly
  /// What single ranks recorded otherwise, where all ranks reduce the reference's gradients: no difference, see is_of_one_rank.
  std::vector<Difference> passed = {};

  /// Are the recorded local gradients not what was reduced, and rightly so?
  bool local_passed() const { return std::any_of(passed.begin(), passed.end(), [](const Difference& each) { return each.phase == Phase::local_gradients; }); }
};

/// " Not compared, since the reduced gradients agree: ..."; empty if nothing was passed.
std::string passed_text(const std::optional<Difference>& passed);

/// Throws TraceError where a run did not keep its gradients whole.
JudgedStep judge_equal_step(const EqualStep& step, const StepRules& rules);

/// What the step's values tell of a difference that was found in its bits. Throws as judge_equal_step.
ForcedEvidence evidence_of_step(const EqualStep& step, const StepRules& rules);

/// A step that the runs began with parameters of their own: what the cell's records show by themselves, where the
/// reference's show that it must hold. Reduction (`of_local`: of the recorded local gradients), gradient norm, clipping, update.
/// `reduced_by_sum`: see JudgedStep.
std::optional<CauseInputs> judge_own_step(const EqualStep& step, const StepRules& rules, bool reduced_by_sum, bool of_local);

/// Did rank 0 keep reduced gradients, and every one whole?
bool keeps_gradients(const StepOfRun& step);

/// The next step that has gradients, which initial parameters and evaluations are not; `before` becomes the last of those passed.
std::optional<StepOfRun> next_with_gradients(RunReader& run, std::optional<StepOfRun>& before);

// Where a run that was resumed begins: with which of the reference's weights and moments.

/// Where a difference says that a resumed run's optimizer begins without its moments.
inline constexpr const char* kMoments = "moments";

/// A run whose trace begins with a later step than the first, and with another state than the reference begins that step with: its weights are much nearer
/// to those of another step; one tensor is far away and most are not; or its optimizer's moments are 0. What is known around that step. Nothing where
/// weights were not kept, or where they are as near as a resumption in another layout comes, or as training further apart leaves them. Throws TraceError.
std::optional<CauseInputs> begins_elsewhere(const std::string& reference_dir, const std::string& cell_dir);

}  // namespace lockstep
