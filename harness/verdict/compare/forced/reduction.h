#pragma once
// What the reduction made of the local gradients, judged without a reference; and which bucket held a tensor.

#include <string>
#include <vector>

#include "harness/verdict/compare/forced/values.h"

namespace lockstep {

/// One reduced gradient against the mean (or sum) of the local ones.
struct ReductionUse {
  std::string name;
  double used = 0;  ///< largest difference of an element over what the rounding of V terms explains
};

/// What rounding may change in element i of a mean (or sum) of V terms: (V + 4) * epsilon * mean (sum) of |terms|.
std::vector<double> reduction_allowance(const ForcedValues& values, const NamedTensor& tensor);

/// Every tensor that has a finite mean; empty if local gradients were not kept.
std::vector<ReductionUse> judge_reduction(const ForcedValues& cell);

/// "bucket 2", the bucket that held the tensor: its fingerprint is the sum of its tensors' fingerprints.
/// Empty if the ledger does not tell.
std::string bucket_of(const StepRecords& rank0, const std::string& tensor);

}  // namespace lockstep
