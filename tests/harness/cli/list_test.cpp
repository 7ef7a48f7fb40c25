#include "harness/cli/list.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

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

TEST(List, TakesTheQuestionFromAConfigsFirstLine) {
  const TemporaryFolder folder;
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

}  // namespace
}  // namespace lockstep
