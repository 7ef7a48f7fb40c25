#pragma once
// A gradient as a weighted sum of others, by least squares: of the ranks' own, of their micro-steps', of a step before.

#include <vector>

#include "harness/judge/compare/forced/values.h"

namespace lockstep {

/// One tensor of the sum, and by part the part's of that name; null: the part has none there, which counts as zeros.
struct WeighedTensor {
  const std::vector<double>* sum = nullptr;
  std::vector<const std::vector<double>*> parts;
};

struct Weights {
  std::vector<double> of;  ///< by part; NaN: the tensors leave it open
  double residual = 0;     ///< what no weights explain: 2-norm, relative to the sum's
  bool all_known() const;
};

/// Over all elements of the tensors together, in float64 by QR with column pivoting. Parts of equal values share a weight. What is
/// smaller than roundings of `epsilon`, relative to its part, determines nothing. Empty without parts.
Weights weigh(const std::vector<WeighedTensor>& tensors, double epsilon);

/// Of those tensors of `sum` that every part has, in the same size.
std::vector<WeighedTensor> weighed_tensors(const std::vector<NamedTensor>& sum, const std::vector<std::vector<NamedTensor>>& parts);

}  // namespace lockstep
