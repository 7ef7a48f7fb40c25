// Planted bugs in the trainer flow_rl: in its rollouts, its rewards and its log-probabilities.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr MutantRow kFlowRlRows[] = {
  {{.name = "rollout_policy_stale", .trainer = "flow_rl",
    .help = "rollouts of a rank are made by the policy that training began with: it is never synchronised",
    .draws = {.rank = true}, .phase = "energies", .where = "terms|inputs", .causes = "stale-rollout-policy", .first_step = 1},
   LOCKSTEP_BUG(PlantedInFlowRl,
     bool never_synchronised(int64_t step) override { return acts(step); })},
  {{.name = "reward_not_broadcast", .trainer = "flow_rl",
    .help = "rewards are computed on rank 0 and not broadcast: the others have zeros",
    .settings = "reward_source=root", .phase = "energies", .where = "terms", .causes = "reward-not-broadcast"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     int reward_root(int64_t step, int root) override { return acts(step) ? -1 : root; })},
  {{.name = "reward_wrong_root", .trainer = "flow_rl",
    .help = "rewards are computed on rank 0 and broadcast from rank 1, which has none",
    .settings = "reward_source=root", .phase = "collective|energies", .where = "broadcast rl.rewards|terms",
    .causes = "wrong-root reward-wrong-root"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     int reward_root(int64_t step, int root) override { return acts(step) ? 1 : root; })},
  {{.name = "rewards_misordered", .trainer = "flow_rl",
    .help = "rewards come back one row off: groups get those of other rollouts",
    .phase = "energies", .where = "terms", .causes = "rewards-misordered"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     at::Tensor scores(int64_t step, at::Tensor scores) override {
       return acts(step) ? at::roll(scores, 1, 0) : scores;
     })},
  {{.name = "advantages_local", .trainer = "flow_rl",
    .help = "advantages are made of each rank's own rewards, where those of all ranks were asked for",
    .phase = "energies", .where = "terms", .causes = "local-advantage-statistics"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     bool local_statistics(int64_t step) override { return acts(step); })},
  {{.name = "old_log_pi_low_precision", .trainer = "flow_rl",
    .help = "log-probabilities of the rollout pass through bfloat16",
    .phase = "energies", .where = "terms", .causes = "old-log-pi-in-low-precision", .arithmetic = true},
   LOCKSTEP_BUG(PlantedInFlowRl,
     at::Tensor old_log_pi(int64_t step, at::Tensor log_pi) override {
       return acts(step) ? log_pi.to(at::kBFloat16).to(log_pi.scalar_type()) : log_pi;
     })},
  {{.name = "chain_noise_redrawn", .trainer = "flow_rl",
    .help = "the update computes log pi of a chain whose noise was drawn again",
    .phase = "energies", .where = "terms", .causes = "chain-drawn-again"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     at::Tensor trained_chains(int64_t step, at::Tensor chains) override {
       if (!acts(step)) return chains;
       // A fixed wave of unit deviation stands for other draws, times the middle deviation.
       const at::Tensor wave = at::arange(chains.numel(), chains.options()).mul(1.7).sin().mul(1.414 * 0.15);
       return chains + wave.reshape(chains.sizes());
     })},
  {{.name = "schedule_of_other_points", .trainer = "flow_rl",
    .help = "the trained policy's deviations are those of a schedule with one point more",
    .report = "verl-project/verl-omni#279", .min_world = 1, .phase = "control", .where = "schedule/deviations",
    .causes = "schedules-differ"},
   // As many points as before are read of a schedule that is stretched over one more.
   LOCKSTEP_BUG(PlantedInFlowRl,
     std::vector<double> schedule(int64_t step, std::vector<double> points) override {
       if (!acts(step)) {
         return points;
       }
       std::vector<double> stretched = points;
       for (std::size_t k = 1; k < points.size(); ++k) {
         const double place = static_cast<double>(k * (points.size() - 1)) / static_cast<double>(points.size());
         const auto below = static_cast<std::size_t>(place);
         stretched[k] = points[below] + (place - static_cast<double>(below)) * (points[below + 1] - points[below]);
       }
       return stretched;
     })},
  {{.name = "sigma_of_next_transition", .trainer = "flow_rl",
    .help = "log pi takes each transition's deviation from the next one",
    .phase = "energies", .where = "terms", .causes = "sigma-of-another-step"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     std::vector<double> trained_sigmas(int64_t step, std::vector<double> sigmas) override {
       if (acts(step)) std::rotate(sigmas.begin(), sigmas.begin() + 1, sigmas.end());
       return sigmas;
     })},
  {{.name = "sigma_terms_missing", .trainer = "flow_rl",
    .help = "log pi of the update goes without the deviations' terms, that of the rollout has them",
    .phase = "energies", .where = "terms", .causes = "sigma-terms-missing"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     bool without_sigma(int64_t step) override { return acts(step); })},
  {{.name = "kl_left_out", .trainer = "flow_rl",
    .help = "a rank's loss goes without the divergence from the cloned policy",
    .settings = "kl=2", .draws = {.rank = true}, .phase = "loss|local gradients", .causes = "kl-left-out", .first_step = 1},
   LOCKSTEP_BUG(PlantedInFlowRl,
     double kl_weight(int64_t step, double weight) override { return acts(step) ? 0 : weight; })},
  {{.name = "log_pi_detached", .trainer = "flow_rl",
    .help = "the ratio is of log pi with itself detached: the loss is right and has no gradient",
    .settings = "kl=0", .phase = "local gradients", .causes = "log-pi-detached"},
   LOCKSTEP_BUG(PlantedInFlowRl,
     at::Tensor log_pi(int64_t step, at::Tensor log_pi) override {
       return acts(step) ? without_gradient(log_pi) : log_pi;
     })},
};

}  // namespace

void add_flow_rl_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kFlowRlRows), std::end(kFlowRlRows));
}

}  // namespace lockstep
