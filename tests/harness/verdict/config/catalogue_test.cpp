#include "harness/verdict/config/catalogue.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "harness/base/errors.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

TEST(Catalogue, GivesEveryEntryAnOwnNameAndALineOfHelp) {
  for (const auto entries : {catalogue_scenarios(), catalogue_losses(), catalogue_mutants()}) {
    std::set<std::string_view> names;
    for (const CatalogueEntry& entry : entries) {
      EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
      EXPECT_FALSE(entry.help.empty()) << entry.name;
      EXPECT_EQ(entry.help.find('\n'), std::string_view::npos) << entry.name;
    }
    EXPECT_FALSE(names.empty());
  }
}

constexpr std::array<std::string_view, 5> kWords{"seeds", "steps", "layout", "negatives", "lr"};

TEST(Nearest, FindsAWordWithOneLetterMissingWrongOrSwapped) {
  EXPECT_EQ(nearest("seds", kWords), "seeds");
  EXPECT_EQ(nearest("stepz", kWords), "steps");
  EXPECT_EQ(nearest("sedes", kWords), "seeds");
  EXPECT_EQ(nearest("lt", kWords), "lr");
  EXPECT_EQ(nearest("negatves", kWords), "negatives");
}

TEST(Nearest, GivesNothingForAWordThatIsFarFromAll) {
  EXPECT_EQ(nearest("optimizer", kWords), "");
  EXPECT_EQ(nearest("x", kWords), "");
  EXPECT_EQ(nearest("", kWords), "");
  EXPECT_EQ(nearest(std::string(100000, 's'), kWords), "");
}

TEST(Nearest, AllowsAThirdOfTheWordsLength) {
  constexpr std::array<std::string_view, 1> names{"abcdef"};
  EXPECT_EQ(nearest("abcdxy", names), "abcdef");
  EXPECT_EQ(nearest("abcxyz", names), "");
}

TEST(ConfigProblem, NamesThePlaceTheProblemAndTheSuggestion) {
  ConfigProblem problem;
  problem.file = "a.yaml";
  problem.line = 3;
  problem.column = 7;
  problem.message = "unknown key 'sedes'";
  problem.suggestion = "seeds";
  EXPECT_EQ(problem.text(), "a.yaml:3:7: unknown key 'sedes'; did you mean seeds?");
  problem.line = 0;
  problem.suggestion.clear();
  EXPECT_EQ(problem.text(), "a.yaml: unknown key 'sedes'");
}

TEST(ConfigError, SaysAllProblemsOneALine) {
  ConfigProblem first, second;
  first.message = "one";
  second.message = "two";
  EXPECT_STREQ(ConfigError({first, second}).what(), "one\ntwo");
  EXPECT_EQ(ConfigError("three").problems().size(), 1u);
}

TEST(CheckDeathTest, AbortsWithTheReason) {
  EXPECT_DEATH(LOCKSTEP_CHECK(1 == 2, "numbers are broken"), "numbers are broken \\(1 == 2\\)");
  LOCKSTEP_CHECK(1 == 1, "never said");
}

}  // namespace
}  // namespace lockstep
