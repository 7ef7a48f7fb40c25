#pragma once

#include <string>
#include <vector>

#include "harness/verdict/compare/forced/values.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/results/results.h"

// Gradients of one forced step against their band, tensor by tensor and in parameter groups.

namespace lockstep {

/// How wide a band is and how much of it a difference takes.
struct BandUse {
  double difference = 0, band = 0;
  double used() const;  ///< difference / band; 0 for no difference at all, infinite for one without a band
};

struct TensorUse {
  std::string name;
  BandUse use;
  double norm_reference = 0, norm_cell = 0;
};

struct GradientJudgement {
  std::vector<TensorUse> tensors;
  std::vector<GradientSignature> groups;  ///< in order of first appearance, then "all"
  std::vector<std::string> missing;       ///< tensors that only one of the two has
  std::vector<std::string> misshapen;
  const TensorUse* worst() const;  ///< null if there is no tensor
};

/// "context_encoder.weight1" belongs to "context_encoder".
std::string parameter_group(const std::string& name);

class TwinBounds;

/// With `twins` these are the bands. Else, without repeats, the band is the analytic bound relative to the whole gradient, or the floor if that is
/// larger. With config.exact > 0 it is that times max(|g_ref|, |sum of |terms||), whatever the repeats say.
GradientJudgement judge_gradients(const ForcedValues& reference, const ForcedValues& cell,
                                  const std::vector<ForcedValues>& repeats, const BandConfig& config,
                                  const TwinBounds* twins = nullptr);
/// The same of other gradients than the reduced ones, such as the means of the local ones; `reference` tells of their terms.
struct GradientPair {
  const std::vector<NamedTensor>&reference, &cell;
};
GradientJudgement judge_gradients(const ForcedValues& reference, const GradientPair& gradients,
                                  const std::vector<ForcedValues>& repeats, const BandConfig& config,
                                  const TwinBounds* twins = nullptr);

// What the reduction made of the local gradients, judged without a reference; and which bucket held a tensor.

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
