// What `question: mechanism` asks of a config: nothing but cells and their reference.

#include "harness/verdict/plan/question.h"

namespace lockstep::questions::mechanism {

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "mechanism",
      .help = "are the same numbers computed",
      .compares_results = true,
      .takes_replay = true,
  };
  return kPlan;
}

}  // namespace lockstep::questions::mechanism
