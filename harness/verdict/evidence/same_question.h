#pragma once
// Do two arms answer the same question? Numbers that answer different questions cannot be compared.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/evidence/arms.h"

namespace lockstep {

/// A setting by which two arms answer different questions, so that their numbers cannot be compared.
struct QuestionDifference {
  std::string what, a, b;
};

/// Trainer and data: what two traces must share for their bits to be about the same training.
std::vector<QuestionDifference> data_differences(const RunConfig& a, const RunConfig& b);

/// Throws ConfigError where the parameters of two traced runs tell that they train two models: fewer than half of the smaller one's have a
/// partner of their name and shape, and fewer than half one of their shape. Nothing is said of parameters that may be parts.
void require_one_model(const std::string& run_a, const std::string& run_b);

/// Those, then evaluation, and steps (samples, where the batches differ). Layout, objective and rule of the
/// learning rate are what is compared: they make no other question.
std::vector<QuestionDifference> run_differences(const RunConfig& a, const RunConfig& b);

/// Those, then what the matrices ask and declare, as far as `given` does not replace it.
struct Given {
  std::string metric;  ///< empty: as declared
  std::optional<double> margin, alpha, target;
};
std::vector<QuestionDifference> question_differences(const Arm& a, const Arm& b, const Given& given);

/// The metric, margin and alpha to judge by: `given`, else what both declare. Throws ConfigError if neither
/// gives them, or if one is out of range.
Primary primary_of(const Arm& a, const Arm& b, const Given& given);

}  // namespace lockstep
