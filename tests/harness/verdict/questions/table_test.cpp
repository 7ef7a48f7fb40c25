// What every question must have, whichever it is: both halves, facts that agree with each other, a config that
// asks it, and words in the documentation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "harness/base/files.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"
#include "tests/support/suite_config.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

const fs::path kSource = LOCKSTEP_SOURCE_DIR;

/// Questions that a config of configs/ asks.
std::set<std::string> asked_in_configs() {
  std::set<std::string> asked;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "configs")) {
    const bool suite = support::is_suite_config(entry.path());
    if (entry.path().extension() == ".yaml" && !suite) asked.insert(read_matrix(entry.path().string(), {}).question);
  }
  return asked;
}

TEST(Questions, HaveAFolderAConfigAndAPlaceInTheDocumentation) {
  const std::set<std::string> asked = asked_in_configs();
  const std::string docs = read_file((kSource / "docs/config.md").string()).text;
  for (const QuestionPlan* question : question_plans()) {
    const std::string name(question->name);
    for (const char* half : {"plan.cpp", "judge.cpp"}) {
      EXPECT_TRUE(fs::exists(kSource / "harness/verdict/questions" / name / half)) << name << "/" << half;
    }
    EXPECT_THAT(asked, Contains(name)) << "no config of configs/ asks it";
    EXPECT_THAT(docs, HasSubstr("`" + name + "`")) << "docs/config.md does not name it";
    EXPECT_FALSE(question->help.empty()) << name;
    EXPECT_FALSE(question->help.ends_with('?')) << name << ": it stands within sentences";
  }
}

TEST(Questions, AreOfOneNameAndOneDefaultEach) {
  std::set<std::string_view> names(question_names().begin(), question_names().end());
  EXPECT_EQ(names.size(), question_plans().size()) << "two have one name";
  EXPECT_EQ(default_question(), question_names().front());
  const auto of_several = [](const QuestionPlan* question) { return question->of_several_seeds; };
  EXPECT_EQ(std::ranges::count_if(question_plans(), of_several), 1);
  EXPECT_EQ(find_question("mechansim"), nullptr);
}

TEST(Questions, SayOfThemselvesWhatAgrees) {
  for (const QuestionPlan* question : question_plans()) {
    const std::string_view name = question->name;
    EXPECT_EQ(question->cells != nullptr, question->references == References::own) << name;
    EXPECT_TRUE(!question->against_plain() || !question->trains) << name;
    EXPECT_EQ(question->compares_results, judge_of(name).compare_untraced != nullptr) << name;
  }
}

TEST(Questions, KeepTheirKeysUnderTheirName) {
  for (const QuestionPlan* question : question_plans()) {
    const std::string name(question->name);
    const bool has_keys = question->fields != nullptr || question->keys != nullptr;
    EXPECT_EQ(question->section != nullptr, has_keys) << name << ": a section is what its keys fill";
    if (question->fields != nullptr) {
      for (const MatrixField& field : question->fields())
        EXPECT_THAT(field.spec.key, testing::StartsWith(name + "."));
    }
    if (question->keys == nullptr) continue;
    for (const QuestionKey& key : question->keys()) {
      EXPECT_TRUE(key.key == name || key.key.starts_with(name + ".")) << key.key;
      EXPECT_EQ(find_question_key(key.key)->read, key.read) << key.key;
      EXPECT_TRUE(key.schema().contains("description") || key.schema().contains("anyOf")) << key.key;
    }
  }
}

TEST(Questions, JudgeACellThatNothingIsKnownOf) {
  const CellResult nothing;
  Results results;
  for (const QuestionPlan* question : question_plans()) {
    const QuestionJudge& judge = judge_of(question->name);
    EXPECT_EQ(judge.verdict(nothing), VerdictKind::inconclusive) << question->name;
    results.question = question->name;
    // Without its part of the results it neither decides alone nor speaks for all.
    if (judge.passed != nullptr) {
      EXPECT_EQ(judge.passed(results), std::nullopt) << question->name;
    }
    if (judge.whole_summary != nullptr) {
      EXPECT_TRUE(judge.whole_summary(results).empty()) << question->name;
    }
    EXPECT_TRUE(judge.sentences(results, SortedCells{}).empty()) << question->name;
  }
}

struct Weather {
  int rain = 3;
};

TEST(Sections, AreFoundByTheirTypeAndCopiedWithTheirMatrix) {
  Matrix matrix;
  matrix.sections.emplace_back(Weather{});
  Matrix copy = matrix;
  section_of<Weather>(copy).rain = 4;
  EXPECT_EQ(section_of<Weather>(matrix).rain, 3);
  EXPECT_EQ(section_of<Weather>(copy).rain, 4);
}

TEST(Sections, StandInEveryMatrixWithTheirDefaults) {
  std::size_t with_section = 0;
  for (const QuestionPlan* question : question_plans()) with_section += question->section != nullptr;
  const Matrix matrix;
  EXPECT_EQ(matrix.sections.size(), with_section);
  EXPECT_DEATH(section_of<Weather>(matrix), "has the section of every question");
}

}  // namespace
}  // namespace lockstep
