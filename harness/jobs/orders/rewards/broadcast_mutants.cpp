// Mistakes of a broadcast.

#include <algorithm>
#include <array>
#include <bit>

#include "harness/base/hashing.h"
#include "harness/base/numbers.h"
#include "harness/jobs/orders/rewards/mutants.h"

namespace lockstep::rewards {
namespace {

std::vector<double>& held(RewardsSeam& seam) { return seam.shown.held; }

void never_called(RewardsSeam& seam) {
  for (double& value : held(seam)) value = poison(seam.at.rank, seam.at.step);
  seam.shown.broadcasts = 0;
}

void from_a_rank_without(RewardsSeam& seam) {
  const int wrong = (seam.at.one.root + 1) % seam.at.one.world;
  for (double& value : held(seam)) value = poison(wrong, seam.at.step);
  seam.shown.root = wrong;
}

void before_it_was_filled(RewardsSeam& seam) {
  for (std::size_t i = 0; i < held(seam).size(); ++i)
    held(seam)[i] = i < seam.before.size() ? seam.before[i] : poison(seam.at.rank, seam.at.step);
}

void half_of_it(RewardsSeam& seam) {
  for (std::size_t i = held(seam).size() / 2; i < held(seam).size(); ++i) held(seam)[i] = poison(seam.at.rank, seam.at.step);
}

void half_over_the_last(RewardsSeam& seam) {
  for (std::size_t i = held(seam).size() / 2; i < held(seam).size(); ++i)
    held(seam)[i] = i < seam.before.size() ? seam.before[i] : poison(seam.at.rank, seam.at.step);
}

void sorted_by_length(RewardsSeam& seam) { std::ranges::reverse(held(seam)); }

void one_place_on(RewardsSeam& seam) { std::ranges::rotate(held(seam), held(seam).begin() + 1); }

void sent_again(RewardsSeam& seam) { seam.shown.broadcasts = 2; }

void scored_with_noise(RewardsSeam& seam) {
  if (seam.at.rank == seam.at.one.root) return;
  seam.shown.source = seam.score(seam.shown.ids);
  for (std::size_t i = 0; i < seam.shown.source.size(); ++i)
    seam.shown.source[i] += 1e-3 * unit_interval(keyed(seam.at.one.key, seam.at.rank, i));
  seam.shown.scored = 1;
  held(seam) = seam.shown.source;
}

void scored_alike(RewardsSeam& seam) {
  if (seam.at.rank == seam.at.one.root) return;
  seam.shown.source = seam.score(seam.shown.ids);
  seam.shown.scored = 1;
}

void left_at_zero(RewardsSeam& seam) { std::ranges::fill(held(seam), 0); }

void first_for_all(RewardsSeam& seam) { std::ranges::fill(held(seam), held(seam).front()); }

void through_float(RewardsSeam& seam) {
  for (double& value : held(seam)) value = static_cast<float>(value);
}

void through_bfloat16(RewardsSeam& seam) {
  for (double& value : held(seam)) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    const uint32_t low = bits & 0xffffu, up = low > 0x8000u || (low == 0x8000u && (bits & 0x10000u) != 0) ? 1 : 0;
    value = std::bit_cast<float>(((bits >> 16) + up) << 16);
  }
}

void too_few(RewardsSeam& seam) { held(seam).pop_back(); }

/// The rank that makes the mistake must not be the root, which has its rewards anyway.
void root_is_first(Case& one) { one.root = 0; }

constexpr std::array kBroadcastMutants{
    Mutant{"no_broadcast", "broadcast", "no-broadcast", "one rank leaves the broadcast out", 2, false, root_is_first, never_called},
    Mutant{"wrong_root", "broadcast", "wrong-root", "all take a rank for the root that has no rewards", 2, true, root_is_first,
           from_a_rank_without},
    Mutant{"stale_buffer", "broadcast", "stale-buffer", "a buffer is read before the new rewards are in it", 2, false,
           root_is_first, before_it_was_filled},
    Mutant{"partial_batch", "broadcast", "partial-batch", "only half of the batch is received", 2, false, root_is_first, half_of_it},
    Mutant{"partial_over_stale", "broadcast", "partial-batch", "half of the batch is received over the rewards of the step before", 2,
           false, root_is_first, half_over_the_last},
    Mutant{"order_reversed", "broadcast", "order-lost", "rewards come in another order than samples", 2, false, root_is_first,
           sorted_by_length},
    Mutant{"order_rotated", "broadcast", "order-lost", "every sample gets its neighbour's reward", 2, true, root_is_first, one_place_on},
    Mutant{"broadcast_twice", "broadcast", "broadcast-twice", "the same rewards are sent twice", 2, true, root_is_first, sent_again},
    Mutant{"scored_with_noise", "broadcast", "scored-here", "every rank scores, with noise of its own", 2, true, root_is_first,
           scored_with_noise},
    Mutant{"scored_alike", "broadcast", "scored-here", "every rank scores, with the same result", 2, true, root_is_first,
           scored_alike},
    Mutant{"zeros_elsewhere", "broadcast", "zeros", "ranks other than the root keep zeros", 2, false, root_is_first, left_at_zero},
    Mutant{"one_expanded", "broadcast", "expanded", "one reward is expanded to all samples", 2, false, root_is_first, first_for_all},
    Mutant{"float32_rewards", "broadcast", "narrowed-float32", "rewards are sent as float32", 2, false, root_is_first, through_float},
    Mutant{"bfloat16_rewards", "broadcast", "narrowed-bfloat16", "rewards are sent as bfloat16", 2, false, root_is_first,
           through_bfloat16},
    Mutant{"short_buffer", "broadcast", "other-length", "the buffer is one element too short", 2, false, root_is_first, too_few},
};

}  // namespace

std::span<const Mutant> broadcast_mutants() { return kBroadcastMutants; }

}  // namespace lockstep::rewards
