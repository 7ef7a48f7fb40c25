#pragma once
// The gradients of the divergence's step beside the reference's: before the reduction the mean over ranks of
// the local ones.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/causes/signatures.h"

namespace lockstep::causes {

/// The inputs that it points into must outlive it.
struct StepGradients {
  const ForcedEvidence* evidence = nullptr;
  const GradientJudgement* judgement = nullptr;
  const TrainerRules* rules = nullptr;
  std::vector<NamedTensor> mean;
  int world = 1;
  const Declared* declared = nullptr;  ///< of a trainer that is not ours
  Signatures signatures() const { return {evidence->reference.gradients, mean, *judgement, *rules, declared}; }
  std::string text() const;
};

/// Is what differs a gradient that the reference has and the cell does not, in its local ones or, so that it is first seen there, in its
/// reduced ones? Then every wrong gradient that lacks may be one of 0.
bool lacks_a_gradient(const CauseInputs& inputs);

/// The local ones; nothing unless the divergence lies in them, and they are known.
std::optional<StepGradients> local_of(const CauseInputs& inputs);

/// The gradients that a wrong loss made: the local ones, or the reduced ones where local ones were not kept.
/// Nothing without forced runs.
std::optional<StepGradients> gradients_of(const CauseInputs& inputs);

}  // namespace lockstep::causes
