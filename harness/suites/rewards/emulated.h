#pragma once
// A case on ranks that are fibers of one thread.

#include <vector>

#include "harness/jobs/orders/rewards/play.h"

namespace lockstep::rewards {

/// What each rank has at the end, by rank. A rank that ends or hangs has nothing but `left`.
std::vector<Played> play_emulated(const Case& one, const Plant& plant = {});

}  // namespace lockstep::rewards
