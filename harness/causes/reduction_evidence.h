#pragma once
// The reduction of one step, tensor by tensor, and what a hypothesis of it would have given.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/causes/cause.h"

namespace lockstep::causes {

/// A tensor with everything that its reduction can be recomputed from.
struct Reduced {
  const NamedTensor* reduced = nullptr;
  NamedTensor mean;
  std::vector<const NamedTensor*> local;  ///< by rank
  std::vector<double> allowance;          ///< what rounding explains of each element
  bool wrong = false;
};

struct Reduction {
  const ForcedEvidence* evidence = nullptr;
  std::vector<Reduced> tensors;
  std::size_t world = 1;
  std::string bucket;  ///< of the divergence's tensor, ", in bucket 2", or empty
};

/// Nothing unless the divergence lies in the reduced gradients, and every rank's local gradients are known.
std::optional<Reduction> reduction_of(const CauseInputs& inputs);

/// What element i of a tensor's reduction would be.
using Hypothesis = std::function<double(const Reduced& tensor, std::size_t element)>;

std::size_t wrong_count(const Reduction& reduction);

/// Does every wrong tensor follow the hypothesis; and if it must hold everywhere, every other too?
bool explains(const Reduction& reduction, const Hypothesis& hypothesis, bool everywhere);

/// A hypothesis about one rank that explains every wrong tensor: which rank, or -1 if none or several.
int single_rank(const Reduction& reduction, const std::function<Hypothesis(std::size_t rank)>& hypothesis);

/// "3 of 17 tensors, in bucket 2".
std::string of_tensors(const Reduction& reduction);

}  // namespace lockstep::causes
