#pragma once
// Do the weights of a loss's terms make one process of all ranks, and if not, by which factor are they off and why?

#include <cstdint>
#include <span>
#include <vector>

#include "harness/lib/rewards/denominators.h"
#include "harness/lib/rewards/failure.h"

namespace lockstep::rewards {

/// What one rank shows of one micro-batch.
struct ShownWeight {
  int64_t rows = 0, valid_steps = 0, groups = 0;
  int64_t rows_before_filter = 0;  ///< with those that a filter took out
  double weight = 0;               ///< of each term, before the mean over ranks
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.rows, s.valid_steps, s.groups, s.rows_before_filter, s.weight);
  }
};

/// What one rank shows of a step.
struct ShownWeights {
  int64_t step = 0;
  std::vector<ShownWeight> micro;  ///< by micro-batch
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.step, s.micro);
  }
};

struct WeightOptions {
  Denominator denominator = Denominator::rows;
  Scope scope = Scope::global;  ///< what is declared; of a local one the factor is no finding
  int64_t groups = 0;           ///< of the whole batch; 0: the sum of the ranks'
  double constant = 1;
  std::vector<int64_t> rank_groups = {};  ///< of each rank; empty: the sums of its micro-batches'
};

/// What is wrong, by rank and micro-batch; each with its factor.
std::vector<Finding> audit_weights(std::span<const ShownWeights> by_rank, const WeightOptions& options);

}  // namespace lockstep::rewards
