#pragma once
// Planted faults, one file each, switched by config: what the detectors are tested with.

#include <memory>
#include <span>
#include <string_view>

#include "harness/config/run_config.h"
#include "harness/train/fault.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {

struct MutantMaker {
  std::string_view name;
  std::unique_ptr<Mutant> (*make)(const Planting& planting);
};

/// All mutants but "none".
std::span<const MutantMaker> mutants();

/// The configured mutants that act on this rank, the second behind the first; nothing if there is none.
/// Throws std::invalid_argument if there is no such mutant.
std::unique_ptr<Mutant> make_mutant(const RunConfig& config, int rank);

/// Two at once: what the first one returns is what the second one gets.
std::unique_ptr<Mutant> make_both(std::unique_ptr<Mutant> first, std::unique_ptr<Mutant> second);

std::unique_ptr<Mutant> make_accumulation_not_scaled(const Planting& planting);
std::unique_ptr<Mutant> make_broadcast_not_received(const Planting& planting);
std::unique_ptr<Mutant> make_buckets_swapped(const Planting& planting);
std::unique_ptr<Mutant> make_buffers_not_synchronised(const Planting& planting);
std::unique_ptr<Mutant> make_candidates_detached(const Planting& planting);
std::unique_ptr<Mutant> make_candidates_misordered(const Planting& planting);
std::unique_ptr<Mutant> make_candidates_not_detached(const Planting& planting);
std::unique_ptr<Mutant> make_clip_before_reduction(const Planting& planting);
std::unique_ptr<Mutant> make_clip_local_norm(const Planting& planting);
std::unique_ptr<Mutant> make_clip_missing(const Planting& planting);
std::unique_ptr<Mutant> make_clip_twice_norm(const Planting& planting);
std::unique_ptr<Mutant> make_collective_extra(const Planting& planting);
std::unique_ptr<Mutant> make_collective_missing(const Planting& planting);
std::unique_ptr<Mutant> make_collective_order(const Planting& planting);
std::unique_ptr<Mutant> make_context_detached(const Planting& planting);
std::unique_ptr<Mutant> make_context_mask_ignored(const Planting& planting);
std::unique_ptr<Mutant> make_decay_coupled(const Planting& planting);
std::unique_ptr<Mutant> make_die(const Planting& planting);
std::unique_ptr<Mutant> make_divided_by_wrong_world(const Planting& planting);
std::unique_ptr<Mutant> make_dropout_not_replayed(const Planting& planting);
std::unique_ptr<Mutant> make_dropout_off(const Planting& planting);
std::unique_ptr<Mutant> make_extra_draws(const Planting& planting);
std::unique_ptr<Mutant> make_flip_bit(const Planting& planting);
std::unique_ptr<Mutant> make_gather_average(const Planting& planting);
std::unique_ptr<Mutant> make_gather_dtype(const Planting& planting);
std::unique_ptr<Mutant> make_gather_shape(const Planting& planting);
std::unique_ptr<Mutant> make_gather_step(const Planting& planting);
std::unique_ptr<Mutant> make_gather_without_gradient(const Planting& planting);
std::unique_ptr<Mutant> make_grad_scale(const Planting& planting);
std::unique_ptr<Mutant> make_gradient_message_flip(const Planting& planting);
std::unique_ptr<Mutant> make_gradient_over_world(const Planting& planting);
std::unique_ptr<Mutant> make_gradient_sum(const Planting& planting);
std::unique_ptr<Mutant> make_gradient_times_world(const Planting& planting);
std::unique_ptr<Mutant> make_gradients_not_zeroed(const Planting& planting);
std::unique_ptr<Mutant> make_head_counted_twice(const Planting& planting);
std::unique_ptr<Mutant> make_initial_weights_differ(const Planting& planting);
std::unique_ptr<Mutant> make_label_offset(const Planting& planting);
std::unique_ptr<Mutant> make_local_negatives(const Planting& planting);
std::unique_ptr<Mutant> make_loss_over_world(const Planting& planting);
std::unique_ptr<Mutant> make_loss_times_world(const Planting& planting);
std::unique_ptr<Mutant> make_low_precision_candidates(const Planting& planting);
std::unique_ptr<Mutant> make_low_precision_reduction(const Planting& planting);
std::unique_ptr<Mutant> make_mean_of_means(const Planting& planting);
std::unique_ptr<Mutant> make_mean_taken_twice(const Planting& planting);
std::unique_ptr<Mutant> make_message_flip(const Planting& planting);
std::unique_ptr<Mutant> make_nan_gradient(const Planting& planting);
std::unique_ptr<Mutant> make_negatives_missing(const Planting& planting);
std::unique_ptr<Mutant> make_noise_by_rank(const Planting& planting);
std::unique_ptr<Mutant> make_optimizer_counter_lost(const Planting& planting);
std::unique_ptr<Mutant> make_optimizer_state_lost(const Planting& planting);
std::unique_ptr<Mutant> make_own_slice(const Planting& planting);
std::unique_ptr<Mutant> make_own_slice_times_world(const Planting& planting);
std::unique_ptr<Mutant> make_padding_unmasked(const Planting& planting);
std::unique_ptr<Mutant> make_parameter_not_reduced(const Planting& planting);
std::unique_ptr<Mutant> make_parameter_not_updated(const Planting& planting);
std::unique_ptr<Mutant> make_past_the_reducer(const Planting& planting);
std::unique_ptr<Mutant> make_rank_behind(const Planting& planting);
std::unique_ptr<Mutant> make_rank_behind_data(const Planting& planting);
std::unique_ptr<Mutant> make_rank_counted_twice(const Planting& planting);
std::unique_ptr<Mutant> make_rank_missing(const Planting& planting);
std::unique_ptr<Mutant> make_rate_linear(const Planting& planting);
std::unique_ptr<Mutant> make_rate_sqrt(const Planting& planting);
std::unique_ptr<Mutant> make_rows_left_out(const Planting& planting);
std::unique_ptr<Mutant> make_same_noise(const Planting& planting);
std::unique_ptr<Mutant> make_sample_content(const Planting& planting);
std::unique_ptr<Mutant> make_sample_dropped(const Planting& planting);
std::unique_ptr<Mutant> make_sample_duplicated(const Planting& planting);
std::unique_ptr<Mutant> make_sample_replaced(const Planting& planting);
std::unique_ptr<Mutant> make_sampler_seed_differs(const Planting& planting);
std::unique_ptr<Mutant> make_schedule_shifted(const Planting& planting);
std::unique_ptr<Mutant> make_scheduler_per_rank(const Planting& planting);
std::unique_ptr<Mutant> make_set_epoch_forgotten(const Planting& planting);
std::unique_ptr<Mutant> make_shard_overlap(const Planting& planting);
std::unique_ptr<Mutant> make_shards_identical(const Planting& planting);
std::unique_ptr<Mutant> make_sign_flipped(const Planting& planting);
std::unique_ptr<Mutant> make_sliced_backward(const Planting& planting);
std::unique_ptr<Mutant> make_stale_buffer(const Planting& planting);
std::unique_ptr<Mutant> make_stale_gradient(const Planting& planting);
std::unique_ptr<Mutant> make_stall(const Planting& planting);
std::unique_ptr<Mutant> make_stream_not_advanced(const Planting& planting);
std::unique_ptr<Mutant> make_temperature_applied_twice(const Planting& planting);
std::unique_ptr<Mutant> make_temperature_detached(const Planting& planting);
std::unique_ptr<Mutant> make_temperature_reduced_twice(const Planting& planting);
std::unique_ptr<Mutant> make_throw(const Planting& planting);
std::unique_ptr<Mutant> make_weight_decay_missing(const Planting& planting);
std::unique_ptr<Mutant> make_weight_decay_twice(const Planting& planting);
std::unique_ptr<Mutant> make_weight_flip(const Planting& planting);
std::unique_ptr<Mutant> make_wrong_dtype(const Planting& planting);
std::unique_ptr<Mutant> make_wrong_gradient_op(const Planting& planting);
std::unique_ptr<Mutant> make_wrong_op(const Planting& planting);
std::unique_ptr<Mutant> make_wrong_root(const Planting& planting);

}  // namespace lockstep
