// Pairs of tiny traces whose truth is known, as tests/conformance/verdicts.py writes them: what is said of each.

#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/trace/trace_error.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

const std::string kFolder = LOCKSTEP_SOURCE_DIR "/tests/conformance/";

Json all_pairs() {
  std::ifstream file(kFolder + "verdicts.json");
  return Json::parse(file);
}

CompareOptions options_of(const std::string& name) {
  return {kFolder + "verdicts/" + name + "/a", kFolder + "verdicts/" + name + "/b", {}, {}};
}

void hold(const Json& expected) {
  const Mechanism said = compare_runs(options_of(expected["name"]));
  EXPECT_EQ(name_of(said.verdict), expected["verdict"]) << said.sentence;
  EXPECT_THAT(said.sentence, testing::Not(testing::HasSubstr("of another shape"))) << "parts are put together";
  ASSERT_EQ(said.first_divergence.has_value(), expected.contains("step")) << said.sentence;
  if (!said.first_divergence) return;
  EXPECT_EQ(said.first_divergence->step, expected["step"]) << said.sentence;
  EXPECT_EQ(said.first_divergence->phase, expected["phase"]) << said.sentence;
  EXPECT_EQ(said.first_divergence->rank, expected.value("rank", said.first_divergence->rank)) << said.sentence;
  ASSERT_TRUE(said.cause);
  EXPECT_EQ(said.cause->code, expected["cause"]) << said.sentence << " " << said.cause->evidence;
}

TEST(Verdicts, OfPairsWhoseTruthIsKnownAreThatTruth) {
  const Json pairs = all_pairs();
  std::set<std::string> causes, verdicts;
  for (const Json& expected : pairs) {
    SCOPED_TRACE(expected["name"].get<std::string>());
    if (expected.contains("refused")) continue;
    hold(expected);
    verdicts.insert(expected["verdict"]);
    if (expected.contains("cause")) causes.insert(expected["cause"]);
  }
  EXPECT_GE(pairs.size(), 60u);
  EXPECT_GE(causes.size(), 30u);
  EXPECT_THAT(verdicts, testing::ElementsAre("divergent", "identical", "inconclusive", "within_envelope"));
}

TEST(Verdicts, OfATraceThatIsNewerThanThisBuildAreRefused) {
  int refused = 0;
  for (const Json& expected : all_pairs()) {
    if (!expected.contains("refused")) continue;
    ++refused;
    try {
      compare_runs(options_of(expected["name"]));
      ADD_FAILURE() << expected["name"] << " was compared";
    } catch (const TraceError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(expected["refused"].get<std::string>()));
    }
  }
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace lockstep
