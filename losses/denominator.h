#pragma once
// What a sum of losses is divided by, and among whom that is counted: the commonest bug of distributed training
// is a mean of means.

#include <cstdint>

namespace lockstep {

/// What is counted: valid time steps | rows that have one | nothing, the denominator is a constant.
enum class DenominatorOver { valid_steps, rows, constant };
/// Of whom: all ranks and micro-steps | this rank's step, then the mean over ranks | each micro-step, then the
/// mean over micro-steps and ranks. Only the first is the same number under any layout.
enum class DenominatorScope { global, local, micro };

struct Denominator {
  DenominatorOver over = DenominatorOver::valid_steps;
  DenominatorScope scope = DenominatorScope::global;
  double constant = 0;  ///< over constant alone
};

/// Terms of a loss.
struct LossCounts {
  double rows = 0, valid_steps = 0;
};

/// The counts that surround one pass of one rank.
struct DenominatorCounts {
  LossCounts micro_step, rank, all;  ///< of the pass's micro-step; of the rank's step; of all ranks' step
  int ranks = 1;
  int64_t micro_steps = 1;  ///< of each rank
};

/// What is counted of them.
inline double counted_by(const Denominator& denominator, const LossCounts& counts) {
  if (denominator.over == DenominatorOver::rows) return counts.rows;
  return denominator.over == DenominatorOver::constant ? denominator.constant : counts.valid_steps;
}

/// The factor of a pass's sum of losses such that the mean over ranks of the sum over micro-steps is the
/// objective: ranks / all, 1 / rank, or 1 / (micro_steps * micro_step). 0 where nothing is counted.
inline double loss_weight(const Denominator& denominator, const DenominatorCounts& counts) {
  const LossCounts* counted = &counts.all;
  double factor = counts.ranks;
  if (denominator.scope == DenominatorScope::local) {
    counted = &counts.rank;
    factor = 1;
  } else if (denominator.scope == DenominatorScope::micro) {
    counted = &counts.micro_step;
    factor = 1.0 / static_cast<double>(counts.micro_steps);
  }
  const double divisor = counted_by(denominator, *counted);
  return divisor > 0 ? factor / divisor : 0.0;
}

}  // namespace lockstep
