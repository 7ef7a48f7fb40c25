// Every cause that has a name.

#include <array>

#include "harness/lib/rewards/failure.h"

namespace lockstep::rewards {

std::span<const Cause> causes() {
  static constexpr std::array kCauses{
      // The broadcast.
      Cause{"no-broadcast", "the rank did not receive the rewards: its buffer still has the previous contents"},
      Cause{"wrong-root", "the broadcast came from a rank that has no rewards, or only its own"},
      Cause{"stale-buffer", "the rewards are those of an earlier step"},
      Cause{"partial-batch", "only the first elements arrived"},
      Cause{"order-lost", "the rewards arrived, but assigned to the wrong samples"},
      Cause{"broadcast-twice", "the rewards of one step were sent more than once"},
      Cause{"scored-here", "a rank other than the root called the reward function"},
      Cause{"zeros", "the rank's rewards are still the initial zeros"},
      Cause{"expanded", "one reward was silently expanded to all samples"},
      Cause{"narrowed-float32", "the rewards were narrowed to float32"},
      Cause{"narrowed-bfloat16", "the rewards were narrowed to bfloat16"},
      Cause{"other-length", "the rank's number of rewards is not its number of samples"},
      Cause{"reward-differs", "the rank's rewards differ from the root's; no known cause"},
      // Statistics and advantages.
      Cause{"local-statistics", "mean and deviation are computed from the rank's own rows only"},
      Cause{"mean-of-means", "the ranks' means and deviations were averaged without weighting by their numbers of rows"},
      Cause{"empty-rank-counted", "the ranks' means were averaged with a 0 for each rank without rows"},
      Cause{"between-rank-missing", "the variance is the mean of the ranks' variances, without the variance between the ranks"},
      Cause{"padded-rows", "padded rows were counted"},
      Cause{"other-ddof", "the variance divides by count - 1 where the convention says count, or vice versa"},
      Cause{"epsilon-missing", "the convention's epsilon is missing"},
      Cause{"epsilon-misplaced", "the epsilon is on the wrong side of the square root"},
      Cause{"floor-missing", "the convention's floor is missing"},
      Cause{"floor-misplaced", "the floor is applied to the variance where the convention says deviation, or vice versa"},
      Cause{"cancelled-variance", "the variance was computed as E[x^2] - E[x]^2, which loses digits by cancellation"},
      Cause{"micro-statistics", "mean and deviation are computed from the rank's micro-batch only"},
      Cause{"accumulation-statistics", "mean and deviation are computed from one micro-batch of all ranks, not from all micro-batches of the step"},
      Cause{"kl-left-out", "rewards were gathered before their KL term was subtracted"},
      Cause{"kl-missing", "the KL term was not subtracted"},
      Cause{"kl-gathered-twice", "KL terms were gathered more than once and summed by sample"},
      Cause{"nan-poisoned", "a masked row was included, and every value that depends on it is NaN"},
      Cause{"not-normalised", "the advantages are the rewards themselves"},
      Cause{"not-divided", "the mean was subtracted, but nothing was divided"},
      Cause{"normalised-twice", "the advantages were normalised a second time over the batch"},
      Cause{"variance-for-deviation", "the variance is the divisor, where the deviation should be"},
      Cause{"advantages-narrowed", "the advantages were narrowed to float32"},
      Cause{"advantages-rounded", "the advantages are right up to rounding: a sum was taken in another order"},
      Cause{"stale-statistics", "mean and deviation are those of the previous step"},
      Cause{"advantages-order-lost", "the advantages are assigned to the wrong rows"},
      Cause{"sign-lost", "the advantages have the wrong sign: a cost was used as a reward"},
      Cause{"baseline-includes-itself", "a row's baseline includes the row itself"},
      Cause{"groups-interleaved", "rows were assigned to groups in turn, so groups mix prompts"},
      Cause{"groups-shifted", "rows were cut into groups by position after one group had too few rows"},
      Cause{"groups-local", "groups were cut at rank boundaries"},
      Cause{"one-baseline", "all groups have the same baseline"},
      Cause{"other-estimator", "the advantages are those of another estimator"},
      Cause{"not-refused", "the rank continued with a reward that the convention refuses"},
      Cause{"statistics-differ", "the advantages are right, but the recorded mean, deviation or count is wrong"},
      Cause{"advantage-differs", "the advantages differ; no known cause"},
      // Running normalisers.
      Cause{"normalizer-local", "the rank merged only its own rows"},
      Cause{"history-counted-again", "totals were sent instead of the rows since the last merge: history is counted once per rank"},
      Cause{"normalizer-between-missing", "sums of squares were added without the differences between the ranks' means"},
      Cause{"normalizer-not-seeded", "the normaliser started from zero after a resume"},
      Cause{"merge-skipped", "the rank did not merge at a step where the others did"},
      Cause{"merged-twice", "the ranks' rows were merged twice"},
      Cause{"delta-lost", "rows since the last merge are missing from the message"},
      Cause{"merged-early", "the rank merged at a step where the others did not"},
      Cause{"merge-differs", "the merged moments differ; no known cause"},
      // Denominators.
      Cause{"world-dropped", "the weight lacks the factor W (number of ranks) that the mean over ranks divides by"},
      Cause{"world-twice", "the weight has the factor W (number of ranks) twice"},
      Cause{"denominator-local", "the loss divides by the rank's own count"},
      Cause{"denominator-micro", "the loss divides by the micro-batch's count"},
      Cause{"accumulation-twice", "the loss divides by the number of micro-batches a second time"},
      Cause{"rows-for-steps", "the loss divides by the number of rows instead of valid steps"},
      Cause{"steps-for-rows", "the loss divides by the number of valid steps instead of rows"},
      Cause{"groups-for-rows", "the loss divides by the number of groups instead of rows"},
      Cause{"counted-before-filter", "the loss divides by the number of rows before filtering"},
      Cause{"weight-differs", "the weight differs; no known cause"},
      // The ratio of the first update.
      Cause{"noise-drawn-again", "the scored action is not the action that was taken"},
      Cause{"sigma-of-another-step", "the deviation (sigma) of another step of the action chain was used"},
      Cause{"stale-policy", "the rank sampled or scored its actions with an older policy"},
      Cause{"sigma-terms-missing", "one branch of the log-probability lacks -log sigma - log(2 pi) / 2"},
      Cause{"detached-from-itself", "the ratio does not change with the policy: it is log pi minus a copy of itself"},
      Cause{"other-batch-shape", "the terms are equal, but summed in a batch of another shape"},
      Cause{"ratio-differs", "the ratio is not 1; no known cause"},
      // Failures of exchanges.
      Cause{"score-threw", "the reward function threw an exception"},
      Cause{"score-hung", "the reward function did not return in time"},
      Cause{"score-length", "the reward function returned the wrong number of rewards"},
      Cause{"score-not-finite", "the reward function returned NaN or infinity, which the convention refuses"},
      Cause{"rank-ended", "a rank ended"},
      Cause{"rank-silent", "a rank sent no heartbeat in time"},
      Cause{"header-differs", "a rank is at another operation, step or count"},
      Cause{"convention-differs", "a rank has another convention, or other samples"},
      Cause{"id-repeats", "one sample came from two ranks, or twice from one rank"},
      Cause{"rows-ragged", "a rank's lists have different lengths"},
      Cause{"unreadable", "a rank's message cannot be read"},
  };
  return kCauses;
}

}  // namespace lockstep::rewards
