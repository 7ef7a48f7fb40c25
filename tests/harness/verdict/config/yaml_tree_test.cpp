#include "harness/verdict/config/yaml_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/field.h"

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/matrix.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// kHead has three lines: what tests append begins at line 4.
const std::string kGood = kHead + "axes: {layout: [8x3, 3x8]}\n";

TEST(Yaml, RefusesTagsWithTheirPlace) {
  EXPECT_THAT(
      problems_of(kGood + "steps: !!str 5\n"),
      ElementsAre("m.yaml:5:8: tags (tag:yaml.org,2002:str) are not supported: the key says what its value is"));
  EXPECT_THAT(problems_of(kGood + "data: !foo {stride: 2}\n"),
              ElementsAre(HasSubstr("m.yaml:5:7: tags (!foo)")));
  EXPECT_THAT(problems_of(kGood + "seeds: !!set [1]\n"), ElementsAre(HasSubstr("m.yaml:5:8: tags (")));
  EXPECT_THAT(problems_of(kGood + "!!str steps: 5\n"), ElementsAre(HasSubstr("m.yaml:5:1: tags (")));
}

TEST(Yaml, RefusesAnchorsAliasesAndMerges) {
  EXPECT_THAT(problems_of(kGood + "data: &d {stride: 2}\n"),
              ElementsAre(HasSubstr("m.yaml:5:7: anchors (&name)")));
  EXPECT_THAT(problems_of(kGood + "lr: &a 1\nlr_scale: *a\n"),
              ElementsAre(HasSubstr("5:5: anchors"), HasSubstr("6:11: aliases (*name)"),
                          HasSubstr("lr_scale must be")));
  EXPECT_THAT(problems_of(kGood + "data: {<<: {stride: 2}}\n"),
              ElementsAre(HasSubstr("5:8: unknown key 'data.<<'")));
}

TEST(Yaml, AliasesThatWouldMultiplyAreNotFollowed) {
  std::string bomb = kGood + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string from = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + from;
    for (int j = 1; j < 10; ++j) bomb += ", " + from;
    bomb += "]\n";
  }
  EXPECT_THAT(problems_of(bomb), testing::Contains(HasSubstr("aliases (*name) are not supported")));
}

TEST(Yaml, RefusesWhatIsNestedTooDeep) {
  for (const std::string open : {"[", "{a: "}) {
    std::string deep = kGood + "seeds: ";
    for (int i = 0; i < 100000; ++i) deep += open;
    EXPECT_THAT(problems_of(deep), testing::Contains(HasSubstr("nested deeper than 50 levels"))) << open;
  }
  std::string block = kGood + "axes2:\n";
  for (int i = 1; i < 600; ++i) block += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(problems_of(block), testing::Contains(HasSubstr("nested deeper than 50 levels")));
}

TEST(Yaml, RefusesCharactersThatNobodySees) {
  EXPECT_THAT(
      problems_of(kGood + "data.train_file: \"a\\e[31mb\"\n"),
      testing::Contains("m.yaml:5:18: 'ab' holds the control character U+001B: write visible characters only"));
  EXPECT_THAT(problems_of(kGood + "data.train_file: a\xE2\x80\xAE"
                                  "b.ts\n"),
              testing::Contains(HasSubstr("m.yaml:5:18: 'a\uFFFDb.ts' holds the direction mark U+202E")));
  EXPECT_THAT(problems_of(kGood + "x\xC2\x9By: 1\n"),
              testing::Contains(HasSubstr("the control character U+009B")));
  EXPECT_THAT(
      problems_of(kGood + "data.train_file: \"a\\nb\"\n"),
      ElementsAre("m.yaml:5:18: data.train_file must be a text of one line, without tabs, not 'a b'"));
}

TEST(Yaml, RefusesOtherEncodingsWithTheirPlace) {
  EXPECT_THAT(problems_of(kGood + "lr: 1 # caf\xE9\n"), ElementsAre("m.yaml:5:12: a byte that is not UTF-8"));
  EXPECT_THAT(problems_of(kGood + std::string("lr: 1\0", 6)),
              ElementsAre("m.yaml:5:6: a NUL byte: a config must be text"));
  EXPECT_THAT(problems_of("\xFF\xFE" + kGood), ElementsAre("m.yaml:1:1: a byte that is not UTF-8"));
  EXPECT_THAT(problems_of("\xEF\xBB\xBF" + kGood), IsEmpty()) << "a byte order mark of UTF-8";
  EXPECT_THAT(problems_of("# é ü 中 ±\r\nname: tiny\r\nreference: {layout: 1x24}\r\nlayout: 8x3\r\n"),
              IsEmpty());
}

TEST(Yaml, SaysTheFirstTwentyProblemsAndHowManyMore) {
  std::string text = kGood;
  for (int i = 0; i < 20000; ++i) text += "zebra" + std::to_string(i) + ": 1\n";
  try {
    parse(text);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string all = error.what();
    EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 20);
    EXPECT_THAT(all, testing::StartsWith("m.yaml:5:1: unknown key 'zebra0'\n"));
    EXPECT_THAT(all, testing::EndsWith("\n… and 19,980 more"));
    EXPECT_THAT(error.problems(), SizeIs(20000));
  }
}

TEST(Numbers, HaveOneSpellingAndTheOthersAreSuggestedInIt) {
  const auto expect = [](const std::string& key, const std::string& spelling, const std::string& suggestion) {
    const std::string ending =
        suggestion.empty() ? "'" + spelling + "'" : "; did you mean " + suggestion + "?";
    EXPECT_THAT(problems_of(kGood + key + ": " + spelling + "\n"), ElementsAre(testing::EndsWith(ending)))
        << spelling;
  };
  expect("steps", "010", "10");
  expect("steps", "0x10", "16");
  expect("steps", "0o10", "8");
  expect("steps", "1_000", "1000");
  expect("steps", "1e3", "1000");
  expect("steps", "5.0", "5");
  expect("steps", "+5", "5");
  expect("steps", "-0", "0");
  expect("steps", "5.5", "");
  expect("lr", "010", "10");
  expect("lr", "0x10", "16");
  expect("lr", "1_000.5", "1000.5");
  expect("lr", "+0.5", "0.5");
  expect("lr", "1e999", "");
  for (const std::string good : {"0.5", ".5", "5.", "1e-3", "1E3", "10"}) {
    EXPECT_THAT(problems_of(kGood + "lr: " + good + "\n"), IsEmpty()) << good;
  }
  EXPECT_THAT(problems_of(kHead + "layout: 08x3\n"), ElementsAre(HasSubstr("layout must be VxB")));
  EXPECT_THAT(problems_of(kGood + "question: mechanism\nseeds: 00..03\n"),
              ElementsAre(HasSubstr("seeds are written A..B")));
}

/// `config`: that reads well, and takes a line more with one of the fields.
template <class Owner, class Fields>
void expect_bounds(const Fields& fields, Owner owner, const std::string& config) {
  for (const auto& field : fields) {
    const FieldRef ref = field.of(owner);
    const bool is_number = std::holds_alternative<int*>(ref) || std::holds_alternative<int64_t*>(ref) ||
                           std::holds_alternative<double*>(ref) ||
                           std::holds_alternative<std::vector<int64_t>*>(ref);
    if (!is_number) continue;
    EXPECT_TRUE(std::isfinite(field.spec.range.low) && std::isfinite(field.spec.range.high))
        << field.spec.key;
    if (field.spec.setter != Setter::user) continue;
    const bool is_list = std::holds_alternative<std::vector<int64_t>*>(ref);
    for (const std::string extreme :
         {"1e18", "1e300", "-1e300", "9223372036854775807", "-9223372036854775808", "99999999999999999999",
          ".nan", ".inf", "-.inf", "nan", "inf"}) {
      double number = 0;
      const Range& range = field.spec.range;
      if (parse_double(extreme, number) && number >= range.low && number <= range.high) continue;
      const std::string value = is_list ? "[" + extreme + "]" : extreme;
      EXPECT_THAT(problems_of(config + std::string(field.spec.key) + ": " + value + "\n"),
                  testing::Contains(HasSubstr(std::string(field.spec.key) + " must be")))
          << extreme;
    }
  }
}

TEST(Numbers, HaveABoundOnEitherSideAndRefuseWhatIsBeyond) {
  for (const TrainerSpec* trainer : trainer_specs()) {
    expect_bounds(trainer->fields(), RunConfig(*trainer), kGood + "trainer: " + std::string(trainer->name) + "\n");
  }
  expect_bounds(core_fields(), RunConfig(), kGood);
  expect_bounds(matrix_fields(), Matrix(), kGood);
}

TEST(Numbers, MakeNoModelThatNoMachineHolds) {
  EXPECT_THAT(problems_of(kGood + "model: {width: 4096, hidden: 4096}\n"), IsEmpty());
  EXPECT_THAT(problems_of(kGood + "negatives: mixed\nmodel: {width: 8192, action_layers: 256}\n"),
              testing::Contains(HasSubstr("weights: at most 2^28")));
  EXPECT_THAT(
      problems_of(kGood +
                  "data: {source: synthetic, context_steps: 9000, min_context: 1, series_steps: 10000, "
                  "channels: 1000, series: 26}\nmodel: {hidden: 8192}\n"),
      testing::Contains(HasSubstr("weights: at most 2^28")));
}

TEST(Numbers, HaveOneZeroWhereNoSignHasAMeaning) {
  const Matrix plain = parse(kGood + "clip_norm: 0\n"), signed_zero = parse(kGood + "clip_norm: -0.0\n");
  EXPECT_EQ(config_hash(plain.cells[0].config), config_hash(signed_zero.cells[0].config));
}

}  // namespace
}  // namespace lockstep
