#include <array>
#include <stdexcept>
#include <string>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/witness.h"

namespace lockstep {
namespace {

constexpr std::array kMutants{
    MutantMaker{"accumulation_not_scaled", &make_accumulation_not_scaled},
    MutantMaker{"broadcast_not_received", &make_broadcast_not_received},
    MutantMaker{"buckets_swapped", &make_buckets_swapped},
    MutantMaker{"buffers_not_synchronised", &make_buffers_not_synchronised},
    MutantMaker{"candidates_detached", &make_candidates_detached},
    MutantMaker{"candidates_misordered", &make_candidates_misordered},
    MutantMaker{"candidates_not_detached", &make_candidates_not_detached},
    MutantMaker{"clip_before_reduction", &make_clip_before_reduction},
    MutantMaker{"clip_local_norm", &make_clip_local_norm},
    MutantMaker{"clip_missing", &make_clip_missing},
    MutantMaker{"clip_twice_norm", &make_clip_twice_norm},
    MutantMaker{"collective_extra", &make_collective_extra},
    MutantMaker{"collective_missing", &make_collective_missing},
    MutantMaker{"collective_order", &make_collective_order},
    MutantMaker{"context_detached", &make_context_detached},
    MutantMaker{"context_mask_ignored", &make_context_mask_ignored},
    MutantMaker{"decay_coupled", &make_decay_coupled},
    MutantMaker{"die", &make_die},
    MutantMaker{"divided_by_wrong_world", &make_divided_by_wrong_world},
    MutantMaker{"dropout_not_replayed", &make_dropout_not_replayed},
    MutantMaker{"dropout_off", &make_dropout_off},
    MutantMaker{"extra_draws", &make_extra_draws},
    MutantMaker{"flip_bit", &make_flip_bit},
    MutantMaker{"gather_average", &make_gather_average},
    MutantMaker{"gather_dtype", &make_gather_dtype},
    MutantMaker{"gather_shape", &make_gather_shape},
    MutantMaker{"gather_step", &make_gather_step},
    MutantMaker{"gather_without_gradient", &make_gather_without_gradient},
    MutantMaker{"grad_scale", &make_grad_scale},
    MutantMaker{"gradient_message_flip", &make_gradient_message_flip},
    MutantMaker{"gradient_over_world", &make_gradient_over_world},
    MutantMaker{"gradient_sum", &make_gradient_sum},
    MutantMaker{"gradient_times_world", &make_gradient_times_world},
    MutantMaker{"gradients_not_zeroed", &make_gradients_not_zeroed},
    MutantMaker{"head_counted_twice", &make_head_counted_twice},
    MutantMaker{"initial_weights_differ", &make_initial_weights_differ},
    MutantMaker{"label_offset", &make_label_offset},
    MutantMaker{"local_negatives", &make_local_negatives},
    MutantMaker{"loss_over_world", &make_loss_over_world},
    MutantMaker{"loss_times_world", &make_loss_times_world},
    MutantMaker{"low_precision_candidates", &make_low_precision_candidates},
    MutantMaker{"low_precision_reduction", &make_low_precision_reduction},
    MutantMaker{"mean_of_means", &make_mean_of_means},
    MutantMaker{"mean_taken_twice", &make_mean_taken_twice},
    MutantMaker{"message_flip", &make_message_flip},
    MutantMaker{"nan_gradient", &make_nan_gradient},
    MutantMaker{"negatives_missing", &make_negatives_missing},
    MutantMaker{"noise_by_rank", &make_noise_by_rank},
    MutantMaker{"optimizer_counter_lost", &make_optimizer_counter_lost},
    MutantMaker{"optimizer_state_lost", &make_optimizer_state_lost},
    MutantMaker{"own_slice", &make_own_slice},
    MutantMaker{"own_slice_times_world", &make_own_slice_times_world},
    MutantMaker{"padding_unmasked", &make_padding_unmasked},
    MutantMaker{"parameter_not_reduced", &make_parameter_not_reduced},
    MutantMaker{"parameter_not_updated", &make_parameter_not_updated},
    MutantMaker{"past_the_reducer", &make_past_the_reducer},
    MutantMaker{"rank_behind", &make_rank_behind},
    MutantMaker{"rank_behind_data", &make_rank_behind_data},
    MutantMaker{"rank_counted_twice", &make_rank_counted_twice},
    MutantMaker{"rank_missing", &make_rank_missing},
    MutantMaker{"rate_linear", &make_rate_linear},
    MutantMaker{"rate_sqrt", &make_rate_sqrt},
    MutantMaker{"rows_left_out", &make_rows_left_out},
    MutantMaker{"same_noise", &make_same_noise},
    MutantMaker{"sample_content", &make_sample_content},
    MutantMaker{"sample_dropped", &make_sample_dropped},
    MutantMaker{"sample_duplicated", &make_sample_duplicated},
    MutantMaker{"sample_replaced", &make_sample_replaced},
    MutantMaker{"sampler_seed_differs", &make_sampler_seed_differs},
    MutantMaker{"schedule_shifted", &make_schedule_shifted},
    MutantMaker{"scheduler_per_rank", &make_scheduler_per_rank},
    MutantMaker{"set_epoch_forgotten", &make_set_epoch_forgotten},
    MutantMaker{"shard_overlap", &make_shard_overlap},
    MutantMaker{"shards_identical", &make_shards_identical},
    MutantMaker{"sign_flipped", &make_sign_flipped},
    MutantMaker{"sliced_backward", &make_sliced_backward},
    MutantMaker{"stale_buffer", &make_stale_buffer},
    MutantMaker{"stale_gradient", &make_stale_gradient},
    MutantMaker{"stall", &make_stall},
    MutantMaker{"stream_not_advanced", &make_stream_not_advanced},
    MutantMaker{"temperature_applied_twice", &make_temperature_applied_twice},
    MutantMaker{"temperature_detached", &make_temperature_detached},
    MutantMaker{"temperature_reduced_twice", &make_temperature_reduced_twice},
    MutantMaker{"throw", &make_throw},
    MutantMaker{"weight_decay_missing", &make_weight_decay_missing},
    MutantMaker{"weight_decay_twice", &make_weight_decay_twice},
    MutantMaker{"weight_flip", &make_weight_flip},
    MutantMaker{"wrong_dtype", &make_wrong_dtype},
    MutantMaker{"wrong_gradient_op", &make_wrong_gradient_op},
    MutantMaker{"wrong_op", &make_wrong_op},
    MutantMaker{"wrong_root", &make_wrong_root},
};

std::unique_ptr<Mutant> make_one(const RunConfig& run, const MutantConfig& config, const char* key,
                                 int rank) {
  if (config.name == "none" || (config.rank >= 0 && config.rank != rank)) {
    return nullptr;
  }
  for (const MutantMaker& entry : kMutants) {
    if (entry.name == config.name) {
      const Planting planting{config, run, rank};
      return make_witness(entry.make(planting), planting, key);
    }
  }
  throw std::invalid_argument("no mutant is called " + config.name);
}

}  // namespace

std::span<const MutantMaker> mutants() { return kMutants; }

std::unique_ptr<Mutant> make_mutant(const RunConfig& run, int rank) {
  std::unique_ptr<Mutant> first = make_one(run, run.mutant, "mutant", rank);
  std::unique_ptr<Mutant> second = make_one(run, run.second_mutant, "second_mutant", rank);
  if (first == nullptr || second == nullptr) {
    return first == nullptr ? std::move(second) : std::move(first);
  }
  return make_both(std::move(first), std::move(second));
}

}  // namespace lockstep
