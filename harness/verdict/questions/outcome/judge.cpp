// What cells learn decides.

#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"

namespace lockstep::questions::outcome {

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_outcome,
      .needs_pairs = true,
      .sentences = &outcome_sentences,
  };
  return kJudge;
}

}  // namespace lockstep::questions::outcome
