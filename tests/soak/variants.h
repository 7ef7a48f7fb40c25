#pragma once
// The small runs that the soak repeats.

#include <string>
#include <vector>

#include "harness/verdict/config/run_config.h"

namespace lockstep {

struct Variant {
  std::string name;
  RunConfig config;
  /// Index of the variant at whose snapshot a forced run computes, or -1.
  int forced_from = -1;
};

/// Every loss with every kind of negatives that it takes, on one process, three emulated and three real
/// ranks, in each precision, free and forced. Optimizers, partitionings of rows, micro-steps and trace levels take
/// turns.
std::vector<Variant> soak_variants();

}  // namespace lockstep
