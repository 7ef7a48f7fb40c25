#include "harness/verdict/trace/header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kHeader =
    R"({"config_hash": "x", "rank": 0, "world_size": 4, "trainer": "t", "level": "full", "started_by": "p", "declared": )";

std::optional<TraceHeader> header_with(const std::string& declared, std::string* why = nullptr) {
  std::string problem;
  auto header = header_from_json(kHeader + declared + "}", problem);
  if (why) *why = problem;
  return header;
}

TEST(DeclaredHeader, IsReadFromTheHeaderAndWrittenBack) {
  const auto header = header_with(R"({
    "strip_prefixes": ["engine."], "clip_norm": 0.5, "accumulation": 2, "global_batch": 16, "base_rate": 0.1,
    "precision": "bfloat16", "gradient_reduction": "sum",
    "optimizer": {"name": "adamw", "betas": [0.8, 0.99], "weight_decay": 0.1},
    "parameters": [{"prefix": "head.", "role": "score head", "rate_factor": 10, "weight_decay": 0}, {"prefix": ""}],
    "groups": {"tensor 0": [0, 1]}, "replicas": [[0, 2], [1, 3]]})");
  ASSERT_TRUE(header && header->declared);
  for (const Declared& it : {*header->declared, *header_with(to_json(*header->declared).dump())->declared}) {
    EXPECT_THAT(it.strip_prefixes, ElementsAre("engine."));
    EXPECT_EQ(it.clip_norm, 0.5);
    EXPECT_EQ(it.accumulation, 2);
    EXPECT_EQ(it.global_batch, 16);
    EXPECT_EQ(it.base_rate, 0.1);
    EXPECT_EQ(it.precision, "bfloat16");
    EXPECT_EQ(it.gradient_reduction, "sum");
    ASSERT_TRUE(it.optimizer);
    EXPECT_EQ(it.optimizer->beta2, 0.99);
    EXPECT_EQ(it.optimizer->weight_decay, 0.1);
    EXPECT_THAT(it.groups.at("tensor 0"), ElementsAre(0, 1));
    EXPECT_THAT(it.replicas, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
    EXPECT_EQ(entry_of(it.parameters, "head.weight")->role, "score head");
    EXPECT_EQ(entry_of(it.parameters, "head.weight")->weight_decay, 0);
    EXPECT_EQ(entry_of(it.parameters, "body.weight")->rate_factor, 1);
  }
}

TEST(DeclaredHeader, IsNothingWhereTheHeaderSaysNothing) {
  std::string why;
  const auto header = header_from_json(
      R"({"config_hash": "x", "rank": 0, "world_size": 1, "trainer": "t", "level": "hash", "started_by": "p"})", why);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->declared, nullptr);
}

TEST(DeclaredHeader, TellsHowStreamsAreSeededAndWeightsAveraged) {
  const auto header = header_with(R"({"streams": {"process/dropout": "rank", "sampler": "same", "masks": "sample"}, "average_decay": 0.875})");
  ASSERT_TRUE(header && header->declared);
  for (const Declared& it : {*header->declared, *header_with(to_json(*header->declared).dump())->declared}) {
    EXPECT_EQ(it.average_decay, 0.875);
    ASSERT_EQ(it.streams.size(), 3u);
    EXPECT_EQ(it.streams.at("process/dropout"), "rank");
    EXPECT_EQ(it.streams.at("sampler"), "same");
    EXPECT_EQ(it.streams.at("masks"), "sample");
  }
  const auto without = header_with("{}");
  ASSERT_TRUE(without && without->declared);
  EXPECT_EQ(without->declared->average_decay, 0);
  EXPECT_TRUE(without->declared->streams.empty());
}

TEST(DeclaredHeader, RefusesWhatIsNoDeclaration) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "an object"},
           {R"({"clip_norm": -1})", "\"clip_norm\", which is not a finite number of 0 or more"},
           {R"({"accumulation": 0})", "a whole number of 1 or more"},
           {R"({"precision": "fp8"})", "float32, float64, bfloat16 or float16"},
           {R"({"groups": {"a": [4]}})", "a list of different ranks of this run"},
           {R"({"groups": {"a": [1, 1]}})", "a list of different ranks"},
           {R"({"replicas": [[]]})", "a list of ranks"},
           {R"({"optimizer": {}})", "an object with a \"name\""},
           {R"({"parameters": [{"role": "x"}]})", "\"prefix\""},
           {R"({"strip_prefixes": [3]})", "a list of texts"},
           {R"({"clipnorm": 1})", "not a key of a declaration; did you mean \"clip_norm\"?"},
           {R"({"optimizer": {"name": "adam", "beta": [0.9, 0.99]}})", "did you mean \"betas\"?"},
           {R"({"replicas": [[0, 1], [1, 2, 3]]})", "without a rank in common"},
           {R"({"replicas": [[0, 1]]})", "every rank of this run"},
           {R"({"streams": ["dropout"]})", "an object of texts"},
           {R"({"streams": {"dropout": "ranks"}})", "\"dropout\", which is not rank, same or sample"},
           {R"({"streams": {"dropout": 1}})", "\"dropout\", which is not a text"},
           {R"({"average_decay": -0.5})", "\"average_decay\", which is not a finite number of 0 or more"},
           {R"({"average_decay": "0.9"})", "a finite number of 0 or more"},
           {R"({"averages_decay": 0.9})", "did you mean \"average_decay\"?"},
       }) {
    std::string why;
    EXPECT_FALSE(header_with(text, &why)) << text;
    EXPECT_THAT(why, HasSubstr(expected)) << text;
  }
}

}  // namespace
}  // namespace lockstep
