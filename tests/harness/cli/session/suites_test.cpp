// Configs that name a suite: those of the repository, their schema, and what a session makes of them.

#include "harness/cli/session/out_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "tests/support/json_schema.h"
#include "tests/support/suite_config.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace fs = std::filesystem;

TEST(SuiteConfigs, AllReadAndAskAQuestion) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string text = read_file(entry.path().string()).text;
    EXPECT_EQ(names_a_suite(text), support::is_suite_config(entry.path())) << entry.path();
    if (!names_a_suite(text)) continue;
    ++count;
    const SuiteConfig config = read_suite(text, entry.path().string(), {}, suite_kinds());
    EXPECT_EQ(config.source.name, entry.path().stem().string());
    EXPECT_TRUE(config.source.question_text.ends_with("?")) << config.source.question_text;
    EXPECT_THAT(config.suite->plan(), Not(IsEmpty()));
  }
  EXPECT_GE(count, 1);
}

TEST(SuiteConfigs, HaveAPlaceInTheDocumentation) {
  const std::string docs = read_file(LOCKSTEP_SOURCE_DIR "/docs/config.md").text;
  for (const SuiteKind* kind : suite_kinds())
    EXPECT_THAT(docs, HasSubstr("`suite: " + std::string(kind->name) + "`"));
}

TEST(ConfigSchema, TakesMatricesAndSuites) {
  const nlohmann::json schema = nlohmann::json::parse(every_config_schema());
  const nlohmann::json suite{{"name", "x"}, {"laboratory", "program"}, {"program", {{"save", "s {out}"}, {"points", 4}}}};
  EXPECT_THAT(support::schema_violations(suite, schema), IsEmpty());
  nlohmann::json wrong = suite;
  wrong["program"]["failures"] = {"kil"};
  EXPECT_THAT(support::schema_violations(wrong, schema), Not(IsEmpty()));
  wrong = suite;
  wrong["steps"] = 3;
  EXPECT_THAT(support::schema_violations(wrong, schema), Not(IsEmpty()));
}

TEST(PrepareSuite, RefusesWhatASuiteHasNoUseFor) {
  MatrixSelection selection;
  selection.config = "c.yaml";
  selection.seeds = "0..3";
  EXPECT_THROW(prepare_suite("name: x\nlaboratory: program\n", selection), ConfigError);
}

TEST(TrialsLine, IsOneLineATenthWhereNobodyWatches) {
  std::ostringstream out, err;
  const Console console{out, err};
  TrialsLine line(console);
  for (std::size_t done = 1; done <= 100; ++done) line.on_progress({done, 100, 0, static_cast<double>(done), 100.0 - done});
  EXPECT_THAT(err.str(), HasSubstr("10/100 trials · about 1 min 30 s left\n"));
  EXPECT_THAT(err.str(), HasSubstr("100/100 trials\n"));
  const std::string text = err.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(TrialsLine, NamesATrialThatTakesLong) {
  std::ostringstream out, err;
  const Console console{out, err};
  TrialsLine line(console);
  for (int second = 1; second <= 40; ++second) line.on_progress({0, 3, 0, static_cast<double>(second), 0, "cases:gloo:V64:0", static_cast<double>(second)});
  EXPECT_EQ(err.str(), "0/3 trials · cases:gloo:V64:0 for 15 s\n0/3 trials · cases:gloo:V64:0 for 30 s\n");
}

}  // namespace
}  // namespace lockstep
