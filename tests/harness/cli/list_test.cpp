#include "harness/cli/list.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

TEST(List, AlignsNamesUnderTheirKind) {
  const std::vector<ListedKind> kinds = {{"losses", {{"a", "first"}, {"long_name", "second"}}},
                                         {"mutants", {}}};
  EXPECT_EQ(list_text(kinds), "losses\n  a          first\n  long_name  second\n\nmutants\n  (none)\n");
  EXPECT_EQ(list_text({kinds[0]}), "a          first\nlong_name  second\n");
  const auto json = nlohmann::json::parse(list_json(kinds));
  EXPECT_EQ(json.at("losses").at(1).at("name"), "long_name");
  EXPECT_TRUE(json.at("mutants").empty());
}

TEST(List, NamesTheTrainerOfWhatFitsOneAlone) {
  const std::vector<ListedKind> kinds = {{"mutants", {{"any", "first"}, {"inside", "second", "energy"}}}};
  EXPECT_EQ(list_text(kinds), "any     first\ninside  second (trainer energy)\n");
  const auto json = nlohmann::json::parse(list_json(kinds)).at("mutants");
  EXPECT_FALSE(json.at(0).contains("trainer"));
  EXPECT_EQ(json.at(1).at("trainer"), "energy");
}

TEST(List, TakesTheQuestionFromAConfigsFirstLine) {
  const TempFolder folder;
  write_text(folder / "b.yaml", "# Does it?\nname: b\n");
  write_text(folder / "a.yaml", "name: a\n");
  write_text(folder / "schema.json", "{}");
  const auto configs = configs_in(folder.path());
  ASSERT_EQ(configs.size(), 2U);
  EXPECT_EQ(configs[0].name, folder / "a.yaml");
  EXPECT_EQ(configs[0].help, "");
  EXPECT_EQ(configs[1].help, "Does it?");
  EXPECT_TRUE(configs_in(folder / "none").empty());
}

class ConfigPath : public testing::Test {
 protected:
  ConfigPath() {
    std::filesystem::create_directories(folder_ / "configs");
    write_text(folder_ / "configs/smoke.yaml", "# Does it?\nname: smoke\n");
    write_text(folder_ / "own.yaml", "# Does it?\nname: own\n");
    std::filesystem::current_path(folder_.path());
  }
  ~ConfigPath() override { std::filesystem::current_path(before_); }
  const std::filesystem::path before_ = std::filesystem::current_path();
  const TempFolder folder_;
};

TEST_F(ConfigPath, IsTheFileThatWasNamed) {
  for (const std::string name : {"own.yaml", "configs/smoke.yaml"}) EXPECT_EQ(config_path(name), name);
  EXPECT_EQ(config_path(folder_ / "own.yaml"), folder_ / "own.yaml");
}

TEST_F(ConfigPath, OfANameIsInTheFolderOfConfigs) {
  EXPECT_EQ(config_path("smoke"), "configs/smoke.yaml");
  EXPECT_EQ(config_path("smoke.yaml"), "configs/smoke.yaml");
  EXPECT_EQ(config_path("configs/smoke"), "configs/smoke.yaml");
}

TEST_F(ConfigPath, OfWhatIsNowhereStaysAsItWasGiven) {
  for (const std::string name : {"none", "none.yaml", "configs/none.yaml", "../own.yaml", ""})
    EXPECT_EQ(config_path(name), name);
}

TEST_F(ConfigPath, IsAboveTheProgramWhereTheWorkingFolderHasNone) {
  std::filesystem::remove_all(folder_ / "configs");
  EXPECT_EQ(config_path("smoke"), LOCKSTEP_SOURCE_DIR "/configs/smoke.yaml");
}

}  // namespace
}  // namespace lockstep
