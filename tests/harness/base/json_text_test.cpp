#include <nlohmann/json.hpp>

#include "harness/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "harness/base/errors.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/run_config.h"
#include "tests/support/temp_folder.h"

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
  const TempFolder folder;
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

TEST(JsonFields, AreOfTheTypeThatIsAskedForOrNamedWithTheirFile) {
  const nlohmann::json object = {{"n", 5}, {"big", uint64_t{1} << 40}, {"less", -1}, {"half", 0.5}, {"t", "x"}, {"yes", true}, {"list", {1, "x"}}, {"map", {{"a", "b"}}}, {"none", nullptr}};
  const JsonFields fields(object, "OUT/f.json");
  EXPECT_EQ(fields.at<int>("n"), 5);
  EXPECT_EQ(fields.value("n", 0.0), 5);
  EXPECT_EQ(fields.value("t", ""), "x");
  EXPECT_EQ(fields.value("not there", 7), 7);
  EXPECT_EQ((fields.at<std::map<std::string, std::string>>("map").at("a")), "b");
  EXPECT_EQ(fields.at<std::vector<nlohmann::json>>("list").size(), 2U);
  const auto refuses = [](const auto& read, const std::string& what) { EXPECT_THAT(read, testing::ThrowsMessage<ConfigError>(HasSubstr("OUT/f.json: " + what))) << what; };
  refuses([&] { fields.at<int>("not there"); }, "there is no 'not there'");
  refuses([&] { fields.at<int>("big"); }, "'big' is 1099511627776");
  refuses([&] { fields.at<uint64_t>("less"); }, "'less' is -1");
  refuses([&] { fields.value("half", 0); }, "'half' is 0.5");
  refuses([&] { fields.value("t", 0); }, "'t' is \"x\"");
  refuses([&] { fields.value("n", ""); }, "'n' is 5");
  refuses([&] { fields.value("n", false); }, "'n' is 5");
  refuses([&] { fields.value("none", 1); }, "'none' is null");
  refuses([&] { fields.value("list", std::vector<int>()); }, "'list' is [1,\"x\"]");
  refuses([&] { fields.at<std::vector<std::string>>("map"); }, "'map' is {\"a\":\"b\"}");
  const nlohmann::json none = nlohmann::json::array();
  EXPECT_EQ(JsonFields(none, "f").value("n", 3), 3);
}

}  // namespace
}  // namespace lockstep
