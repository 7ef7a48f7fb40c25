#include "harness/verdict/questions/config_pairs/pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/verdict/config/config_difference.h"
#include "harness/verdict/config/learning_keys.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::string kBase =
    "# Is a key found?\nname: p\nquestion: config_pairs\nmodel: {width: 8, hidden: 16}\nsteps: 4\neval_every: 0\n"
    "data: {source: synthetic, series: 7, holdout_series: 1, series_steps: 86, min_context: 10}\n";

TEST(ConfigPairs, AreEveryKeyThatDecidesLearningAtAnotherValueOrLeftOutWithAReason) {
  const Matrix matrix = parse(kBase);
  const ConfigPairsConfig& section = section_of<ConfigPairsConfig>(matrix);
  std::set<std::string> tried;
  for (const KeyPair& pair : section.pairs) {
    tried.insert(pair.key);
    const auto differences = config_differences(pair.base, pair.changed);
    ASSERT_EQ(differences.size(), 1U) << pair.key << "=" << pair.value;
    EXPECT_EQ(differences[0].key, pair.key);
  }
  for (const LeftOut& each : section.left_out) {
    EXPECT_FALSE(each.why.empty()) << each.key;
    tried.insert(each.key.substr(0, each.key.find('=')));
  }
  for (const RunField* field : fields_of(spec_of(section.pairs.front().base))) {
    const std::string key(field->spec.key);
    const bool apart = key == "trainer" || key == "layout" || key == "steps" || key == "rows" || key == "data.source" || key.ends_with("_file") || key.starts_with("resume_") ||
                       key.find("mutant.") != std::string::npos;
    if (field->spec.setter == Setter::user && decides_learning(key) && !apart) {
      EXPECT_THAT(tried, Contains(key));
    }
  }
}

TEST(ConfigPairs, MayBeSetOnTheCommandLine) {
  EXPECT_NO_THROW(parse(kBase, {{"data.source=synthetic", "lr=0.01"}, "", "", ""}));
}

TEST(ConfigPairs, StandOnceBetweenLayoutsAndOnceAtOne) {
  const Matrix matrix = parse(kBase);
  const std::vector<std::string> names = names_of(matrix);
  EXPECT_THAT(names, Contains("4x6 weight_decay=0.1"));
  EXPECT_THAT(names, Contains("4x6 weight_decay=0.1 against 4x6"));
  EXPECT_THAT(names, Contains("4x6 negatives=local"));
  for (const Cell& cell : matrix.cells) {
    EXPECT_EQ(cell.paired, cell.reference.layout == cell.config.layout) << cell.name;
    EXPECT_THAT(cell.declared, Not(Contains(cell.settings.front().first))) << "or its own config would judge it";
  }
}

TEST(ConfigPairs, AreTriedOnFurtherBases) {
  const Matrix matrix = parse(kBase + "config_pairs: {on: [optimizer=sgd lr=0.2]}\n");
  EXPECT_THAT(names_of(matrix), Contains("4x6 momentum=0.1 on optimizer=sgd lr=0.2"));
  EXPECT_THAT(problems_of(kBase + "config_pairs: {on: [optimizr=sgd]}\n"), Contains(HasSubstr("did you mean optimizer")));
  EXPECT_THAT(problems_of(kBase + "config_pairs: {on: [sgd]}\n"), Contains(HasSubstr("key=value")));
  EXPECT_THAT(problems_of(kBase + "axes: {layout: [8x3]}\n"), Contains(HasSubstr("axes is not allowed")));
}

}  // namespace
}  // namespace lockstep
