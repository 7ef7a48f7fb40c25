// The questions as the planner knows them.

#include <algorithm>
#include <array>

#include "harness/base/errors.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/questions/list.h"

namespace lockstep {

#define LOCKSTEP_DECLARE(name)    \
  namespace questions::name {     \
  const QuestionPlan& plan();     \
  }
#define LOCKSTEP_ENTRY(name) &questions::name::plan(),
LOCKSTEP_QUESTIONS(LOCKSTEP_DECLARE)

std::span<const QuestionPlan* const> question_plans() {
  static const std::array kPlans{LOCKSTEP_QUESTIONS(LOCKSTEP_ENTRY)};
  return kPlans;
}

#undef LOCKSTEP_DECLARE
#undef LOCKSTEP_ENTRY

std::span<const std::string_view> question_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const QuestionPlan* question : question_plans()) all.push_back(question->name);
    return all;
  }();
  return names;
}

const QuestionPlan* find_question(std::string_view name) {
  const auto plans = question_plans();
  const auto at = std::ranges::find(plans, name, &QuestionPlan::name);
  return at == plans.end() ? nullptr : *at;
}

const QuestionPlan& question_named(std::string_view name) {
  const QuestionPlan* found = find_question(name);
  LOCKSTEP_CHECK(found != nullptr, "a question that was read exists");
  return *found;
}

const QuestionPlan& asked_by(const Matrix& matrix) {
  const QuestionPlan& named = question_named(matrix.question);
  return matrix.of_command && named.of_command != nullptr ? named.of_command() : named;
}

std::string default_question() { return std::string(question_plans().front()->name); }

std::vector<std::any> question_sections() {
  std::vector<std::any> sections;
  for (const QuestionPlan* question : question_plans()) {
    if (question->section != nullptr) sections.push_back(question->section());
  }
  return sections;
}

const QuestionKey* find_question_key(std::string_view key) {
  for (const QuestionPlan* question : question_plans()) {
    if (question->keys == nullptr) continue;
    const auto keys = question->keys();
    if (const auto at = std::ranges::find(keys, key, &QuestionKey::key); at != keys.end()) return &*at;
  }
  return nullptr;
}

}  // namespace lockstep
