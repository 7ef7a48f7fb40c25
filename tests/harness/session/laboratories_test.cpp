// Configs that name a laboratory: those of the repository, their schema, and what a session makes of them.

#include "harness/session/laboratories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/base/read_file.h"
#include "tests/support/json_schema.h"
#include "tests/support/laboratory_config.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace fs = std::filesystem;

TEST(LaboratoryConfigs, AllReadAndAskAQuestion) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string text = read_file(entry.path().string()).text;
    EXPECT_EQ(names_a_laboratory(text), support::is_laboratory_config(entry.path())) << entry.path();
    if (!names_a_laboratory(text)) continue;
    ++count;
    const LaboratoryConfig config = read_laboratory(text, entry.path().string(), {}, laboratory_kinds());
    EXPECT_EQ(config.source.name, entry.path().stem().string());
    EXPECT_TRUE(config.source.question_text.ends_with("?")) << config.source.question_text;
    EXPECT_THAT(config.laboratory->plan(), Not(IsEmpty()));
  }
  EXPECT_GE(count, 1);
}

TEST(LaboratoryConfigs, HaveAPlaceInTheDocumentation) {
  const std::string docs = read_file(LOCKSTEP_SOURCE_DIR "/docs/config.md").text;
  for (const LaboratoryKind* kind : laboratory_kinds())
    EXPECT_THAT(docs, HasSubstr("`laboratory: " + std::string(kind->name) + "`"));
}

TEST(ConfigSchema, StandsBesideTheConfigsAsItIs) {
  EXPECT_TRUE(read_file(LOCKSTEP_SOURCE_DIR "/configs/matrix.schema.json").text == every_config_schema())
      << "rewrite it: lockstep schema > configs/matrix.schema.json";
}

TEST(ConfigSchema, TakesMatricesAndLaboratories) {
  const nlohmann::json schema = nlohmann::json::parse(every_config_schema());
  const nlohmann::json laboratory{{"name", "x"}, {"laboratory", "program"}, {"program", {{"save", "s {out}"}, {"points", 4}}}};
  EXPECT_THAT(support::schema_violations(laboratory, schema), IsEmpty());
  nlohmann::json wrong = laboratory;
  wrong["program"]["failures"] = {"kil"};
  EXPECT_THAT(support::schema_violations(wrong, schema), Not(IsEmpty()));
  wrong = laboratory;
  wrong["steps"] = 3;
  EXPECT_THAT(support::schema_violations(wrong, schema), Not(IsEmpty()));
}

TEST(PrepareLaboratory, RefusesWhatALaboratoryHasNoUseFor) {
  MatrixSelection selection;
  selection.config = "c.yaml";
  selection.seeds = "0..3";
  EXPECT_THROW(prepare_laboratory("name: x\nlaboratory: program\n", selection), ConfigError);
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

}  // namespace
}  // namespace lockstep
