#pragma once
// The pages of all causes, family by family.

#include <span>

#include "harness/causes/cause.h"

namespace lockstep::causes {

std::span<const CausePage> data_pages();       ///< samples, random streams, control values
std::span<const CausePage> gradient_pages();   ///< energies, loss, gradients before the reduction
std::span<const CausePage> reduction_pages();  ///< reduction, update
std::span<const CausePage> run_pages();        ///< replicas, ledger, failed runs, unexplained

}  // namespace lockstep::causes
