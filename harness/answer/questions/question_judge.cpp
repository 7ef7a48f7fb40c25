#include "harness/answer/questions/question_judge.h"

#include <algorithm>
#include <array>

#include "harness/plan/matrix/matrix.h"

// The questions as the judge knows them, in the order of their other halves.

namespace lockstep {

#define LOCKSTEP_DECLARE(name)    \
  namespace questions::name {     \
  const QuestionJudge& judge();   \
  }
#define LOCKSTEP_ENTRY(name) &questions::name::judge(),
LOCKSTEP_QUESTIONS(LOCKSTEP_DECLARE)

const QuestionJudge& judge_of(std::string_view question) {
  static const std::array kJudges{LOCKSTEP_QUESTIONS(LOCKSTEP_ENTRY)};
  const auto plans = question_plans();
  const auto at = std::ranges::find(plans, question, &QuestionPlan::name);
  LOCKSTEP_CHECK(at != plans.end(), "a question that was read exists");
  return *kJudges[static_cast<std::size_t>(at - plans.begin())];
}

#undef LOCKSTEP_DECLARE
#undef LOCKSTEP_ENTRY

VerdictKind verdict_by_mechanism(const CellResult& cell) {
  return cell.mechanism ? cell.mechanism->verdict : VerdictKind::inconclusive;
}

VerdictKind verdict_by_outcome(const CellResult& cell) {
  return cell.outcome ? cell.outcome->verdict : VerdictKind::inconclusive;
}

}  // namespace lockstep
