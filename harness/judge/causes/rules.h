#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/lib/rewards/advantages.h"

// Why two runs part: named from the evidence around the first divergence, or `unexplained`.

namespace lockstep {

/// The cause of a divergence that lies outside its band. One rule answers with one code; where no rule fits,
/// or two that fit equally well contradict each other, the code is `unexplained` and the evidence tells what
/// was seen.
std::optional<Cause> name_cause(const CauseInputs& inputs);

/// The cause of a run that did not finish, from what the launcher and the header exchange said. Nothing if it
/// was stopped on request, or if nothing was wrong with its ranks. `ranks` of the run that failed.
std::optional<Cause> name_failure_cause(const Failure& failure, int ranks);

/// A cause at length: what `lockstep explain CODE` prints.
struct CausePage {
  std::string_view code;
  std::string_view family;  ///< samples, random, control, energies, loss, gradient, reduction, update, ...
  std::string_view what;    ///< one sentence
  std::string_view recognised;    ///< the formula or the evidence
  std::string_view wrong, right;  ///< a minimal example: a few lines of code each
  std::string_view remedy;        ///< one sentence
  std::string_view reports = {};  ///< public reports, "owner/repository#number, ..."
};

/// Where the cause of a page can first show, and what evidence it needs: "loss; from values of both runs". Of causes
/// that no hypothesis names, those of failures and of the ledger, their family.
std::string shown_by(std::string_view code);

/// Which mutants and tests have it: "mutant grad_scale, tests/probe/mistakes.py"; "no program" where none trains.
std::string proved_by(std::string_view code);

/// All codes, those of every trainer's own causes among them, family by family; `unexplained` last.
std::span<const CausePage> cause_pages();

/// Null if there is no such code.
const CausePage* find_cause_page(std::string_view code);

}  // namespace lockstep

// Hypotheses, by what can first show them: a table of those that hold for any trainer in each file, and a trainer's own in
// its folder. A hypothesis predicts something from the evidence, and answers where that is what was recorded; name_cause
// asks those of the divergence's phase, and weighs what they answer.

namespace lockstep::causes {

using Answer = std::optional<Cause>;
using Rule = Answer (*)(const CauseInputs& inputs);

// How much an answer says: the evidence is reproduced exactly; it fits and little else would; a general name for what is
// seen, which gives way to any other.
inline constexpr double kExact = 0.98, kStrong = 0.9, kFits = 0.8, kGeneral = 0.5;

/// Phases as a set.
using Phases = uint32_t;
template <typename... Each>
constexpr Phases in(Each... phases) {
  return ((Phases{1} << static_cast<unsigned>(phases)) | ...);
}
constexpr bool holds(Phases set, Phase phase) { return (set & in(phase)) != 0; }
inline constexpr Phases kAnyPhase = ~Phases{0};
inline constexpr Phases kInSamples = in(Phase::samples), kInInputs = in(Phase::inputs), kInRandom = in(Phase::random),
                        kInControl = in(Phase::control), kInScores = in(Phase::scores), kInLoss = in(Phase::loss),
                        kInLocal = in(Phase::local_gradients), kInReduced = in(Phase::reduced_gradients),
                        kInGradients = kInLocal | kInReduced, kInNorm = in(Phase::gradient_norm),
                        kInApplied = in(Phase::applied_gradients), kInParameters = in(Phase::parameters),
                        kInState = in(Phase::optimizer_state), kInSnapshot = in(Phase::snapshot),
                        kInEvaluation = in(Phase::evaluation);
inline constexpr Phases kInexactPhases = ~(kInSamples | kInInputs | kInRandom | kInControl);

/// Evidence that a hypothesis needs, as a set.
enum Need : uint32_t {
  kNothing = 0,
  kRuns = 1,           ///< the step's records of both runs
  kRanks = 2,          ///< of several ranks
  kBefore = 4,         ///< of the run's step before
  kValues = 8,         ///< values of both, as forced runs keep them
  kState = 16,         ///< what the run's update began from
  kLocal = 32,         ///< local gradients of every rank
  kReplicas = 64,      ///< ranks that differ where they should be alike
  kConfigs = 128,      ///< both configs
  kScores = 256,       ///< scores of the same rows and columns
  kClip = 512,         ///< a norm to clip to
  kCandidates = 1024,  ///< rows scored against candidates
  kWorld = 2048,       ///< several ranks that hold the same parameters
  kOurs = 4096,        ///< a trainer of this program
};
using Needs = uint32_t;

/// One row of a table.
struct Hypothesis {
  std::string_view codes;     ///< one; or several, of which `predict` chooses
  Phases phases = kAnyPhase;  ///< in which it can first show
  Needs needs = kNothing;     ///< without these it is not asked
  double strength = kExact;   ///< of an answer that has none of its own
  Rule predict = nullptr;
  std::string_view key = {};  ///< of the config, where this is just what it is for
};

/// A rule of what `evidence_of` makes of the inputs, if it makes something.
template <auto evidence_of, auto predict>
Answer given(const CauseInputs& inputs) {
  const auto evidence = evidence_of(inputs);
  if (!evidence) return {};
  if constexpr (std::is_invocable_v<decltype(predict), decltype(*evidence)>) return predict(*evidence);
  else return predict(inputs, *evidence);
}

std::span<const Hypothesis> sample_hypotheses();
std::span<const Hypothesis> random_hypotheses();  ///< of random streams
std::span<const Hypothesis> rate_hypotheses();    ///< of control values
std::span<const Hypothesis> score_hypotheses();   ///< scores, what rows hold, and a loss over candidates
std::span<const Hypothesis> reward_hypotheses();
std::span<const Hypothesis> loss_hypotheses();  ///< its named parts, averages of weights and metrics
std::span<const Hypothesis> reduction_hypotheses();
std::span<const Hypothesis> update_hypotheses();    ///< and what the optimizer took
std::span<const Hypothesis> replica_hypotheses();   ///< ranks that differ, the ledger, and tensors in parts
std::span<const Hypothesis> gradient_hypotheses();  ///< before the reduction, by micro-step, and of one factor on all


// Hypotheses of a code that another table than their file's has.

Answer gradients_over_world(const CauseInputs& inputs);
/// A step that reduces nothing, although its passes gather what the step before gathered.
Answer no_gradient_reduced(const CauseInputs& inputs);
/// The optimizer took the reduced gradients times or over the number of ranks.
Answer taken_by_another_count(const CauseInputs& inputs);
/// Some tensors were reduced once more: of what all others were multiplied by, W times as much, or 1/W.
Answer some_reduced_again(const CauseInputs& inputs);
Answer norm_of_another_window(const CauseInputs& inputs);
Answer mean_of_own_rows_in_a_buffer(const CauseInputs& inputs);
Answer metric_of_own_part(const CauseInputs& inputs);
Answer metric_is_norm_of_own_shard(const CauseInputs& inputs);
/// In a step that holds rows of several steps an optimizer took some parameters' gradients alone.
Answer some_parameters_not_updated(const CauseInputs& inputs);
Answer replica_stood_still(const CauseInputs& inputs);

/// A cause without its remedy, which its page has.
Cause made(std::string code, double confidence, std::string evidence);
/// The cause of the hypothesis' row, with its strength.
inline Cause told(std::string evidence) { return made("", 0, std::move(evidence)); }

template <typename... Args>
Cause made(std::string code, double confidence, fmt::format_string<Args...> evidence, Args&&... args) {
  return made(std::move(code), confidence, fmt::format(evidence, std::forward<Args>(args)...));
}
template <typename... Args>
Cause told(fmt::format_string<Args...> evidence, Args&&... args) {
  return made("", 0, evidence, std::forward<Args>(args)...);
}
/// With another strength.
template <typename... Args>
Cause told(double strength, fmt::format_string<Args...> evidence, Args&&... args) {
  return made("", strength, evidence, std::forward<Args>(args)...);
}

/// The cause as one rank's mistake, where it is that of exactly one.
template <typename Ranks>
Cause of_rank(Cause cause, const Ranks& ranks) {
  if (ranks.size() == 1) cause.rank = static_cast<int>(*ranks.begin());
  return cause;
}

/// Rounded to nearest even at `bits` of the 23 bits that float32's mantissa has: 7 of bfloat16, 10 of float16.
double rounded_to(double value, int bits);

/// Of all the rank's records of the phase, from statistics; NaN where one has none.
double norm_of(const StepRecords& rank, Phase phase);

/// World size of the cell; 1 if it is not known.
int world_size_of(const CauseInputs& inputs);

/// Numbers of ranks that a mistake may count: of the world, of all ranks, of the groups that the header declares, with
/// what they are called; none of 1.
std::map<std::size_t, std::string> group_sizes(const CauseInputs& inputs);

/// May the cell's loss leave out rows of a step, without the sample ids telling which? False where the config
/// or the trainer is not known.
bool rows_may_not_count(const CauseInputs& inputs);

/// The signatures of the groups in words: "context_encoder 0.125 (= 1/8), residual 1e-7; head 1".
std::string signature_text(const GradientJudgement& judgement, int world_size);

// Scores of the cell beside the reference's, row by row and column by column.

/// A row of the cell beside the reference's, column by column.
struct AlignedRow {
  int64_t id = 0;
  int rank = 0;
  std::vector<int64_t> columns;
  std::vector<double> expected, actual;
};

/// Rows that both have, with the columns that both have; empty if scores were not kept.
std::vector<AlignedRow> aligned_rows(const CauseInputs& inputs);

/// Of forced runs that record rewards: what each rank has of them at each step, as a table and a drawing.
void add_reward_answers(const ForcedInputs& inputs, Mechanism& mechanism);

/// Which scores lie outside the band.
struct WrongScores {
  std::size_t count = 0, total = 0;
  std::map<int64_t, std::size_t> by_row, by_column;
  std::map<int64_t, std::size_t> row_width, column_height;
  std::map<int, std::size_t> by_rank, of_rank;
};
WrongScores wrong_in(const std::vector<AlignedRow>& rows, double band);

/// Does the cell lack columns or rows, so that nothing can be said of the values?
bool misses_scores(const CauseInputs& inputs);

/// Do rows have candidates as columns, their own among them? Where it is not known of the trainer, most rows' ids must stand among the columns.
bool scores_candidates(const CauseInputs& inputs);

/// What the trainer's scores are called: "energies".
std::string_view score_name(const CauseInputs& inputs);

// The loss of the divergence's step, and the rows that it is made of, beside the reference's.

/// "loss 2.5 where the reference has 2.25". Needs forced runs.
std::string losses_text(const CauseInputs& inputs);

/// One rank of the cell.
struct RankRows {
  RankLoss rank;
  std::vector<double> expected;  ///< what the reference has for its rows, in their order
};

/// Every rank's rows with the reference's losses of the same samples, if every row that counts (its loss is
/// not 0) agrees with the reference: then the rows are right, and only what the loss makes of them is wrong.
/// Empty if a row disagrees, or if the divergence does not lie in the loss of a forced step whose row losses
/// both runs kept. Exact arithmetic records a row's loss as it was differentiated: there the rows are taken to be the reference's,
/// and the rank's loss is what it made of them.
std::vector<RankRows> rows_that_agree(const CauseInputs& inputs);

/// "8 (the world size)", "1/8", "-1", "0": closed forms by name, other numbers in six digits.
std::string factor_text(double factor, int world_size);

// What a trainer adds to the rules that hold for any: roles of its parameters, rules of its own, and their
// pages.

/// What a group of parameters is in its trainer's model (one encoder, the head, the rest), as a number that
/// the trainer defines.
using Role = int;

/// How a run's rewards become advantages.
struct DeclaredAdvantages {
  rewards::AdvantageWay way;
  int64_t group_rows = 1;  ///< so many rows that follow each other by id are a group
  double penalty = 0;      ///< what a cost takes off a reward
};

struct TrainerRules {
  /// The role of a group of parameters ("encoder"). One mistake acts on all groups of a role alike. Null:
  /// roles are not known, and no rule that needs them runs.
  Role (*role_of)(std::string_view group) = nullptr;
  /// Beside those that hold for any trainer; null: none. Those that need no trainer of ours hold for any model that
  /// declares these roles.
  std::span<const Hypothesis> (*hypotheses)() = nullptr;
  /// The role of that name, as a trace's header may declare it ("candidate encoder"); nothing: none of this trainer's.
  /// Null: its roles cannot be declared.
  std::optional<Role> (*role_named)(std::string_view name) = nullptr;
  /// Of a run that records rewards; null: it is taken from the reference's own numbers.
  DeclaredAdvantages (*advantages)(const RunConfig& config) = nullptr;
  /// What a column of its scores is to `question: replay`, and of which transition of its row: "acted", "old", "recomputed", or a name of
  /// ActedRecord::again; an empty name: nothing. Null: its runs have no rollouts.
  std::pair<std::string_view, int64_t> (*acted_column)(int64_t column) = nullptr;
  /// Pages of the codes that only its rules give, family by family; null: none.
  std::span<const CausePage> (*pages)() = nullptr;
};

/// The rules of one trainer.
struct RulesOfTrainer {
  std::string_view trainer;  ///< its name
  const TrainerRules* rules = nullptr;
};

/// Every trainer that has rules. Defined in scenarios/causes.cpp, apart from the trainers' specs: the rank program
/// links those, and must not change with a rule or its words, or every run would train anew.
std::span<const RulesOfTrainer> all_trainer_rules();

/// Those that hold for any trainer, and those of each trainer.
std::vector<std::span<const Hypothesis>> all_hypotheses();

/// The rules of a trainer; empty ones if it has none.
const TrainerRules& trainer_rules(std::string_view trainer);
/// The rules of the runs' trainer; of a trainer that is not ours those whose roles the cell's header declares, all of
/// them; else empty ones.
const TrainerRules& trainer_rules(const CauseInputs& inputs);

/// A test, and what it expects: codes in quotes, among other words.
struct Proof {
  std::string_view test, codes;
};
std::vector<Proof> proofs();

/// What the header of the cell's traces declares; null: nothing.
const Declared* declared_of(const CauseInputs& inputs);

// The pages of causes that any trainer may have, family by family; those of a trainer's own causes stand in
// its folder.

std::span<const CausePage> pages_of_any();
std::span<const CausePage> reward_pages();

}  // namespace lockstep::causes
