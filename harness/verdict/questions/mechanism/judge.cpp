// What cells compute decides.

#include "harness/verdict/questions/mechanism/compare_results.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"

namespace lockstep::questions::mechanism {

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_mechanism,
      .compare_untraced = &compare_results,
      .sentences = &mechanism_sentences,
  };
  return kJudge;
}

}  // namespace lockstep::questions::mechanism
