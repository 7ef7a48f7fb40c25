#pragma once
// Are two arms about the same question? Numbers that answer different ones do not speak about each other.

#include <optional>
#include <string>
#include <vector>

#include "harness/evidence/arms.h"

namespace lockstep {

/// In what two arms answer different questions, so that their numbers do not speak about each other.
struct QuestionDifference {
  std::string what, a, b;
};

/// Trainer and data: what two traces must share for their bits to be about the same training.
std::vector<QuestionDifference> data_differences(const RunConfig& a, const RunConfig& b);

/// Those, then evaluation, and steps (samples, where the batches differ). A layout, an objective or a rule of
/// the learning rate is what is compared, and no other question.
std::vector<QuestionDifference> run_differences(const RunConfig& a, const RunConfig& b);

/// Those, then what the matrices ask and declare, as far as `given` does not replace it.
struct Given {
  std::string metric;  ///< empty: as declared
  std::optional<double> margin, alpha, target;
  bool timed = false;  ///< runs are timed to the target, so that it is part of the question
};
std::vector<QuestionDifference> question_differences(const Arm& a, const Arm& b, const Given& given);

/// What is judged by: `given`, else what both declare. Throws ConfigError if nothing says it, or if it is
/// out of range.
Primary primary_of(const Arm& a, const Arm& b, const Given& given);

}  // namespace lockstep
