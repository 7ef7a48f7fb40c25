// Mistakes that move the ratio of the first update.

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/jobs/orders/rewards/mutants.h"

namespace lockstep::rewards {
namespace {

void drawn_again(RatioSeam& seam) {
  Rollout again = roll_out(seam.policy, seam.rollout.sigmas, seam.rollout.ids, seam.rollout.shape, seam.at.one.key + 77);
  seam.shown.scored = action_hashes(again);
  seam.shown.log_new = log_probs(seam.policy, again.sigmas, again);
}

void sigma_of_the_next(RatioSeam& seam) {
  std::ranges::rotate(seam.shown.sigmas_update, seam.shown.sigmas_update.begin() + 1);
  seam.shown.log_new = log_probs(seam.policy, seam.shown.sigmas_update, seam.rollout);
}

void older_policy(RatioSeam& seam) {
  ChainPolicy older = seam.policy;
  older.gain -= 0.01;
  const Rollout rollout = roll_out(older, seam.rollout.sigmas, seam.rollout.ids, seam.rollout.shape, seam.at.one.key);
  seam.shown.policy_rollout = older.hash();
  seam.shown.log_old = rollout.log_probs;
  seam.shown.taken = seam.shown.scored = action_hashes(rollout);
  seam.shown.log_new = log_probs(seam.policy, rollout.sigmas, rollout);
}

void older_policy_throughout(RatioSeam& seam) {
  older_policy(seam);
  seam.shown.policy_update = seam.shown.policy_rollout;
  seam.shown.log_new = seam.shown.log_old;
}

void quadratic_alone(RatioSeam& seam) {
  for (std::size_t i = 0; i < seam.shown.log_new.size(); ++i) {
    const double sigma = seam.rollout.sigmas[i % seam.rollout.sigmas.size()];
    for (int64_t dim = 0; dim < seam.shown.dims; ++dim)
      seam.shown.log_new[i] += std::log(sigma) + 0.5 * std::log(2 * 3.14159265358979323846);
  }
}

void less_a_copy_of_itself(RatioSeam& seam) {
  seam.shown.log_old = seam.shown.log_new;
  for (double& ratio : seam.shown.probe) ratio = 1;
}

void in_halves(RatioSeam& seam) {
  seam.shown.log_new = log_probs(seam.policy, seam.rollout.sigmas, seam.rollout, SumShape::in_halves);
  seam.shown.rows_update = std::max<int64_t>(1, seam.shown.rows_rollout / 2);
}

constexpr Mutant row(std::string_view name, std::string_view cause, std::string_view help, void (*act)(RatioSeam&)) {
  Mutant mutant{name, "ratio", cause, help, 2, false};
  mutant.ratio = act;
  return mutant;
}

constexpr Mutant alone(Mutant mutant) {
  mutant.least_ranks = 1;
  mutant.all_ranks = true;
  return mutant;
}

/// Of two ranks that differ nobody can say which policy is the old one.
constexpr Mutant among_three(Mutant mutant) {
  mutant.least_ranks = 3;
  return mutant;
}

constexpr std::array kRatioMutants{
    alone(row("noise_drawn_again", "noise-drawn-again", "the update draws its noise again", drawn_again)),
    alone(row("other_sigma", "sigma-of-another-step", "the update takes the deviation of the step after", sigma_of_the_next)),
    row("stale_policy", "stale-policy", "one rank takes its actions with an older policy", older_policy),
    among_three(row("stale_replica", "stale-policy", "one rank has an older policy throughout", older_policy_throughout)),
    alone(row("sigma_terms_missing", "sigma-terms-missing", "one branch computes the quadratic term alone", quadratic_alone)),
    alone(row("detached_from_itself", "detached-from-itself", "log pi less a copy of itself, in place of the rollout's",
              less_a_copy_of_itself)),
    alone(row("other_batch_shape", "other-batch-shape", "the update adds up its terms in two halves", in_halves)),
};

}  // namespace

std::span<const Mutant> ratio_mutants() { return kRatioMutants; }

}  // namespace lockstep::rewards
