#include <nlohmann/json.hpp>

#include "harness/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/errors.h"
#include "harness/base/sealed_json.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/run_config.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string nested(std::size_t levels, const std::string& open, const std::string& close) {
  std::string text, end;
  for (std::size_t i = 0; i < levels; ++i) text += open, end += close;
  return text + "1" + end;
}

std::string problem_of(const std::string& text) {
  JsonProblem problem;
  const bool discarded = parse_json(text, &problem).is_discarded();
  EXPECT_EQ(discarded, !problem.message.empty());
  return problem.text();
}

TEST(JsonText, ReadsWhatIsNestedUpToItsLimit) {
  EXPECT_EQ(problem_of(nested(kMostJsonDepth, "[", "]")), "");
  EXPECT_EQ(problem_of(nested(kMostJsonDepth + 1, "[", "]")),
            "nested deeper than 100 levels, at line 1, column 101");
  EXPECT_EQ(problem_of(nested(kMostJsonDepth + 1, "{\"a\":\n", "}")),
            "nested deeper than 100 levels, at line 101, column 1");
}

TEST(JsonText, CountsLevelsAndNotBrackets) {
  std::string wide = "[[]";
  for (int i = 0; i < 1000; ++i) wide += ",[{}]";
  EXPECT_EQ(problem_of(wide + "]"), "");
  EXPECT_EQ(problem_of("\"" + std::string(1000, '[') + "\""), "") << "brackets of a text";
  EXPECT_EQ(problem_of("\"\\\"" + std::string(1000, '{') + "\\\\\""), "")
      << "behind an escaped quotation mark";
}

TEST(JsonText, SurvivesAHundredThousandLevels) {
  for (const std::string open : {"[", "{\"a\":"}) {
    const std::string text = nested(100000, open, open == "[" ? "]" : "}");
    EXPECT_THAT(problem_of(text), HasSubstr("nested deeper than 100 levels"));
    EXPECT_THAT(problem_of(text.substr(0, text.size() / 2)), HasSubstr("nested deeper than 100 levels"));
    EXPECT_THROW(run_config_from_json(text, "run.json"), ConfigError);
  }
}

TEST(JsonText, SaysWhereItIsNoJson) {
  EXPECT_EQ(problem_of("{\n  \"a\" 3}"), "not JSON, or cut short, at line 2, column 7");
  EXPECT_EQ(problem_of("{\"a\": "), "not JSON, or cut short, at line 1, column 7");
  EXPECT_EQ(problem_of(""), "not JSON, or cut short, at line 1, column 1");
  EXPECT_THAT(problem_of("[1e999]"), HasSubstr("outside the range of a double"));
}

TEST(JsonText, NamesTheFileThatCannotBeRead) {
  const TemporaryFolder folder;
  std::string problem;
  write_text(folder / "deep.json", nested(100000, "{\"a\":", "}"));
  EXPECT_FALSE(read_sealed(folder / "deep.json", problem));
  EXPECT_EQ(problem, "is damaged: nested deeper than 100 levels, at line 1, column 501");
  EXPECT_FALSE(read_sealed(folder.path(), problem));
  EXPECT_EQ(problem, "is a folder, not a file");
  nlohmann::json good = {{"a", 1}};
  seal(good);
  write_text(folder / "good.json", good.dump());
  EXPECT_EQ(read_sealed(folder / "good.json", problem)->at("a"), 1);
  EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace lockstep
