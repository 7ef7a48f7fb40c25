// Every cause that has a name.

#include <array>

#include "harness/lib/rewards/failure.h"

namespace lockstep::rewards {

std::span<const Cause> causes() {
  static constexpr std::array kCauses{
      // The broadcast.
      Cause{"no-broadcast", "the rank never got the rewards: it still holds what stood there before"},
      Cause{"wrong-root", "the broadcast came from a rank that has no rewards, or its own ones"},
      Cause{"stale-buffer", "the rewards are those of an earlier step"},
      Cause{"partial-batch", "only the first elements came"},
      Cause{"order-lost", "the rewards came, for other samples than their own"},
      Cause{"broadcast-twice", "the rewards of one step were sent more than once"},
      Cause{"scored-here", "a rank other than the root called the reward function"},
      Cause{"zeros", "the rank's rewards are zeros that nobody replaced"},
      Cause{"expanded", "one reward was silently expanded to all samples"},
      Cause{"narrowed-float32", "the rewards were narrowed to float32"},
      Cause{"narrowed-bfloat16", "the rewards were narrowed to bfloat16"},
      Cause{"other-length", "the rank holds another number of rewards than it has samples"},
      Cause{"reward-differs", "the rank holds other rewards than the root, for no reason known here"},
      // Statistics and advantages.
      Cause{"local-statistics", "mean and deviation are of the rank's own rows"},
      Cause{"mean-of-means", "means and deviations of ranks were averaged, whatever their numbers of rows"},
      Cause{"empty-rank-counted", "ranks' means were averaged with a 0 for each rank without rows"},
      Cause{"between-rank-missing", "the variance is the mean of the ranks' own, without what lies between them"},
      Cause{"padded-rows", "rows that do not count were counted"},
      Cause{"other-ddof", "the variance divides by count - 1 where the convention says count, or the other way round"},
      Cause{"epsilon-missing", "the epsilon of the convention was left out"},
      Cause{"epsilon-misplaced", "the epsilon stands on the other side of the root"},
      Cause{"floor-missing", "the floor of the convention was left out"},
      Cause{"floor-misplaced", "the floor holds up the variance where the convention says deviation, or the other way round"},
      Cause{"cancelled-variance", "the variance was computed as E[x^2] - E[x]^2, which cancels"},
      Cause{"micro-statistics", "mean and deviation are of the rank's micro-batch"},
      Cause{"accumulation-statistics", "mean and deviation are of one micro-batch of all ranks, not of the accumulation"},
      Cause{"kl-left-out", "rewards were gathered without the KL that is subtracted from them: it was scored after the gather"},
      Cause{"kl-missing", "KL was not subtracted at all"},
      Cause{"kl-gathered-twice", "KL terms were gathered more than once and summed by sample"},
      Cause{"nan-poisoned", "a row that is masked took part, and all that it touched is NaN"},
      Cause{"not-normalised", "the advantages are the rewards themselves"},
      Cause{"not-divided", "the mean was subtracted, and nothing divided"},
      Cause{"normalised-twice", "the advantages were normalised once more over the batch"},
      Cause{"variance-for-deviation", "the variance divides where the deviation should"},
      Cause{"advantages-narrowed", "the advantages were narrowed to float32"},
      Cause{"advantages-rounded", "the advantages are right but for rounding: something was added up in another order"},
      Cause{"stale-statistics", "mean and deviation are those of the step before"},
      Cause{"advantages-order-lost", "the advantages stand at other rows than their own"},
      Cause{"sign-lost", "the advantages have the other sign: a cost was taken for a reward"},
      Cause{"baseline-includes-itself", "a row's baseline includes the row itself"},
      Cause{"groups-interleaved", "rows were partitioned to groups in turn, so that groups mix prompts"},
      Cause{"groups-shifted", "rows were cut into groups by place after one group came short"},
      Cause{"groups-local", "groups were cut at the ranks' borders"},
      Cause{"one-baseline", "all groups got one baseline"},
      Cause{"other-estimator", "the advantages are those of another estimator"},
      Cause{"not-refused", "the rank went on with a reward that the convention refuses"},
      Cause{"statistics-differ", "the advantages are right, and the mean, deviation or count beside them is not"},
      Cause{"advantage-differs", "the advantages are others, for no reason known here"},
      // Running normalisers.
      Cause{"normalizer-local", "the rank merged its own rows alone"},
      Cause{"history-counted-again", "totals were sent in place of what came since the last merge: history counts once a rank"},
      Cause{"normalizer-between-missing", "sums of squares were added without what lies between the ranks' means"},
      Cause{"normalizer-not-seeded", "the normaliser began anew after a resumption"},
      Cause{"merge-skipped", "the rank did not merge where the others did"},
      Cause{"merged-twice", "the ranks' rows were merged twice"},
      Cause{"delta-lost", "rows that came since the last merge are not in what was sent"},
      Cause{"merged-early", "the rank merged at a step where the others did not"},
      Cause{"merge-differs", "the merged moments are others, for no reason known here"},
      // Denominators.
      Cause{"world-dropped", "the weight lacks the number of ranks, by which the mean over ranks divides"},
      Cause{"world-twice", "the weight holds the number of ranks twice"},
      Cause{"denominator-local", "the loss divides by what the rank has"},
      Cause{"denominator-micro", "the loss divides by what the micro-batch has"},
      Cause{"accumulation-twice", "the loss divides by the number of micro-batches once more"},
      Cause{"rows-for-steps", "the loss divides by rows where valid steps are meant"},
      Cause{"steps-for-rows", "the loss divides by valid steps where rows are meant"},
      Cause{"groups-for-rows", "the loss divides by groups where rows are meant"},
      Cause{"counted-before-filter", "the loss divides by the rows before some were filtered out"},
      Cause{"weight-differs", "the weight is another, for no reason known here"},
      // The ratio of the first update.
      Cause{"noise-drawn-again", "the action that is scored is another than the one that was taken"},
      Cause{"sigma-of-another-step", "the deviation of another step of the chain was used"},
      Cause{"stale-policy", "the rank took its actions, or scores them, with an older policy"},
      Cause{"sigma-terms-missing", "one branch of the log-probability lacks -log sigma - log(2 pi) / 2"},
      Cause{"detached-from-itself", "the ratio does not move with the policy: log pi less a copy of itself"},
      Cause{"other-batch-shape", "the terms are the same, added up in another shape of the batch"},
      Cause{"ratio-differs", "the ratio is not 1, for no reason known here"},
      // Failures of exchanges.
      Cause{"score-threw", "the reward function threw"},
      Cause{"score-hung", "the reward function gave no answer in time"},
      Cause{"score-length", "the reward function gave another number of rewards"},
      Cause{"score-not-finite", "the reward function gave NaN or an infinity, which the convention refuses"},
      Cause{"rank-ended", "a rank ended"},
      Cause{"rank-silent", "a rank gave no sign of progress in time"},
      Cause{"header-differs", "a rank is at another operation, step or count"},
      Cause{"convention-differs", "a rank has another convention, or other samples"},
      Cause{"id-repeats", "one sample comes from two ranks, or twice from one"},
      Cause{"rows-ragged", "a rank's lists have different lengths"},
      Cause{"unreadable", "what a rank sent cannot be read"},
  };
  return kCauses;
}

}  // namespace lockstep::rewards
