// What cells compute decides.

#include "harness/questions/question_judge.h"
#include "harness/questions/sentences.h"

namespace lockstep::questions::mechanism {

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_mechanism,
      .sentences = [](const Results&, const SortedCells& cells) { return mechanism_sentences(cells); },
  };
  return kJudge;
}

}  // namespace lockstep::questions::mechanism
