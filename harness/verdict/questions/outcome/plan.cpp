// What `question: outcome` asks of a config: a metric with a margin, power controls, and seeds, which may be added
// look by look.

#include "harness/verdict/plan/question.h"

namespace lockstep::questions::outcome {

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "outcome",
      .help = "does it learn the same",
      .of_several_seeds = true,
      .by_outcome = true,
  };
  return kPlan;
}

}  // namespace lockstep::questions::outcome
