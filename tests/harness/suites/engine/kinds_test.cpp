// Reading of configs that name a suite.

#include "harness/suites/engine/kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Sizes {
  int64_t shards = 2;
  std::string path;
};

const std::array kFields{
    Field<Sizes>{{"vault.shards", Range{1, 8}, "", "shards"}, [](Sizes& s) -> FieldRef { return ref_to(s.shards); }},
    Field<Sizes>{{"vault.path", {}, "", "path"}, [](Sizes& s) -> FieldRef { return ref_to(s.path); }},
};

class Vault : public Suite {
 public:
  explicit Vault(Sizes sizes) : sizes(std::move(sizes)) {}
  std::string subject() const override { return std::to_string(sizes.shards); }
  std::vector<std::string> plan() const override { return {}; }
  std::vector<Trial> trials(const SuiteRun&) override { return {}; }
  Sizes sizes;
};

const SuiteKind kVault{"vault", "a vault",
                            [](const SuiteSource& source, Problems& problems) -> std::unique_ptr<Suite> {
                              Sizes sizes;
                              read_fields<Sizes>(source, kFields, sizes, problems);
                              return std::make_unique<Vault>(sizes);
                            },
                            [] { return nlohmann::ordered_json{{"type", "object"}}; }};

SuiteConfig read(const std::string& text, const std::vector<std::string>& set = {}) {
  const SuiteKind* const kinds[] = {&kVault};
  return read_suite(text, "c.yaml", set, kinds);
}

std::string problem_of(const std::string& text, const std::vector<std::string>& set = {}) {
  try {
    read(text, set);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

const std::string kText = "# Does it hold?\nname: held\nlaboratory: vault\nvault:\n  shards: 3\n";

TEST(SuiteConfigs, AreKnownByTheirKey) {
  EXPECT_TRUE(names_a_suite(kText));
  EXPECT_FALSE(names_a_suite("name: x\ntrainer: energy\n"));
  EXPECT_FALSE(names_a_suite("# suite: vault\nname: x\n"));
  EXPECT_FALSE(names_a_suite(""));
}

TEST(SuiteSchema, HasTheSectionOfEachOfSeveralKinds) {
  SuiteKind cellar = kVault, attic = kVault;
  cellar.name = "cellar";
  attic.name = "attic";
  const SuiteKind* const kinds[] = {&kVault, &cellar, &attic};
  const nlohmann::ordered_json schema = suite_schema(kinds);
  EXPECT_EQ(schema.at("properties").at("laboratory").at("enum"), (nlohmann::ordered_json{"vault", "cellar", "attic"}));
  for (const char* name : {"vault", "cellar", "attic"})
    EXPECT_EQ(schema.at("properties").at(name).at("description"), "a vault") << name;
}

TEST(SuiteConfigs, AreReadWithTheirSection) {
  const SuiteConfig config = read(kText);
  EXPECT_EQ(config.source.name, "held");
  EXPECT_EQ(config.source.question_text, "Does it hold?");
  EXPECT_EQ(config.suite->subject(), "3");
}

TEST(SuiteConfigs, TakeKeysOfTheCommandLine) {
  EXPECT_EQ(read(kText, {"vault.shards=5"}).suite->subject(), "5");
  EXPECT_THAT(problem_of(kText, {"vault.shards=50"}), HasSubstr("--set vault.shards=50"));
}

TEST(SuiteConfigs, SayWhatIsWrongAndWhere) {
  EXPECT_THAT(problem_of("name: x\nlaboratory: valt\n"), HasSubstr("c.yaml:2:13: unknown suite 'valt'; known are vault; did you mean"));
  EXPECT_THAT(problem_of("suite: vault\n"), HasSubstr("the key name is missing"));
  EXPECT_THAT(problem_of("name: a/b\nlaboratory: vault\n"), HasSubstr("c.yaml:1:7"));
  EXPECT_THAT(problem_of(kText + "  shard: 3\n"), HasSubstr("c.yaml:6:3"));
  EXPECT_THAT(problem_of(kText + "steps: 5\n"), HasSubstr("c.yaml:6:1"));
  EXPECT_THAT(problem_of("name: x\nlaboratory: vault\nvault: {shards: 9}\n"), HasSubstr("c.yaml:3:17"));
}

TEST(SuiteSchema, HasEveryKindAndItsSection) {
  SuiteKind other = kVault, third = kVault;
  other.name = "cellar";
  third.name = "attic";
  const SuiteKind* const kinds[] = {&kVault, &other, &third};
  const nlohmann::ordered_json schema = suite_schema(kinds);
  EXPECT_EQ(schema["properties"]["laboratory"]["enum"], nlohmann::ordered_json({"vault", "cellar", "attic"}));
  for (const char* name : {"vault", "cellar", "attic"}) EXPECT_EQ(schema["properties"][name]["type"], "object") << name;
}

}  // namespace
}  // namespace lockstep
