#pragma once
// The pages of causes that any trainer may have, family by family; those of a trainer's own causes stand in
// its folder.

#include <span>

#include "harness/verdict/causes/rules.h"

namespace lockstep::causes {

std::span<const CausePage> data_pages();       ///< samples, random streams, control values
std::span<const CausePage> gradient_pages();   ///< scores, loss, gradients before the reduction
std::span<const CausePage> reduction_pages();  ///< reduction, update
std::span<const CausePage> reward_pages();     ///< rewards and advantages
std::span<const CausePage> run_pages();        ///< replicas, ledger, failed runs, unexplained

}  // namespace lockstep::causes
