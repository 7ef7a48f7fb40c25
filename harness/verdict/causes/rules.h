#pragma once
// The rules that name causes of any trainer, family by family; a trainer's own stand in its folder. A rule is
// one small function: from the evidence to its code, or nothing. Rules do not know of each other; name_cause
// weighs what they answer.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/verdict/causes/cause.h"

namespace lockstep::causes {

using Rule = std::optional<Cause> (*)(const CauseInputs& inputs);

// Confidence that rules give: the evidence is reproduced exactly; it fits and little else would; a general
// name for what is seen, which gives way to any other.
inline constexpr double kExact = 0.98, kFits = 0.8, kGeneral = 0.5;

std::span<const Rule> sample_rules();
std::span<const Rule> random_rules();
std::span<const Rule> forward_draw_rules();  ///< of what a forward pass drew, where it shows behind it
std::span<const Rule> control_rules();
std::span<const Rule> score_rules();
std::span<const Rule> candidate_rules();  ///< of scores of rows against candidates
std::span<const Rule> contrast_rules();   ///< of a loss over such scores
std::span<const Rule> loss_rules();
std::span<const Rule> rows_apart_rules();  ///< of single rows in replays: in the loss and what comes of it
/// Where replays have measured single rows: on which ranks the trainer's function gives the reference's loss of the same rows; else empty.
std::string functions_seen(const CauseInputs& inputs);
std::span<const Rule> gradient_rules();  ///< before the reduction
std::span<const Rule> finite_rules();    ///< of values that are no numbers, in any phase
std::span<const Rule> reduction_rules();
std::span<const Rule> accumulation_rules(Phase phase);  ///< of micro-steps: in loss, local and reduced gradients
std::span<const Rule> named_loss_rules(Phase phase);    ///< of one named part of the loss: there, too
std::span<const Rule> missing_gradient_rules();         ///< of a parameter that has none, in any phase
std::span<const Rule> factor_rules();                   ///< one factor on loss and gradients
std::span<const Rule> shard_rules(Phase phase);         ///< of tensors in parts: in the gradient norm and parameters
std::span<const Rule> initial_rules();                  ///< of parameters before the first step
std::span<const Rule> input_rules();                    ///< of what rows hold
std::span<const Rule> average_rules();                  ///< of averaged weights
std::span<const Rule> evaluation_rules();
std::span<const Rule> state_rules();  ///< of the optimizer's state
std::span<const Rule> norm_rules();  ///< of the gradient norm
std::span<const Rule> clip_rules();  ///< of what the optimizer took
std::span<const Rule> update_rules();
std::span<const Rule> resumed_rules();  ///< of what a resumed run begins with
std::span<const Rule> replica_rules();
std::span<const Rule> buffer_rules();  ///< of buffers that move, in any phase
std::span<const Rule> ledger_rules();

/// A cause without its remedy, which stands in the cause's page.
Cause made(const char* code, double confidence, const std::string& evidence);

/// The cause as one rank's mistake, where it is that of exactly one.
template <typename Ranks>
Cause of_rank(Cause cause, const Ranks& ranks) {
  if (ranks.size() == 1) cause.rank = static_cast<int>(*ranks.begin());
  return cause;
}

/// World size of the cell; 1 if it is not known.
int world_size_of(const CauseInputs& inputs);

/// May the cell's loss leave out rows of a step, without the sample ids telling which? False where the config
/// or the trainer is not known.
bool rows_may_not_count(const CauseInputs& inputs);

/// Did the optimizer take gradients that were clipped by that norm: as they were recorded, or as the update shows?
bool clipped_by(const CauseInputs& inputs, double norm);

/// The signatures of the groups in words: "context_encoder 0.125 (= 1/8), residual 1e-7; head 1".
std::string signature_text(const GradientJudgement& judgement, int world_size);

/// "8 (the world size)", "1/8", "-1", "0": closed forms by name, other numbers in six digits.
std::string factor_text(double factor, int world_size);

}  // namespace lockstep::causes
