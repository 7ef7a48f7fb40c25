#include "harness/verdict/stats/mllog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace lockstep {
namespace {

using nlohmann::json;

MllogSource source() {
  MllogSource s;
  s.benchmark = "lockstep_energy";
  s.platform = "8x3";
  s.optimizer = "adam";
  s.metric = "accuracy_24";
  s.seed = 3;
  s.batch = 24;
  s.steps = 100;
  s.learning_rate = 0.001;
  s.target = 0.4;
  s.train_samples = 1200;
  s.started_ms = 1'000'000;
  s.seconds = 10;
  s.evaluations = {{25, 0.1}, {50, 0.41}, {75, 0.39}, {100, 0.6}};
  return s;
}

/// The events of a key, in order.
std::vector<json> events_of(const std::string& text, const std::string& key) {
  std::vector<json> events;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    EXPECT_TRUE(line.starts_with(":::MLLOG ")) << line;
    json event = json::parse(line.substr(9));
    if (event.at("key") == key) events.push_back(std::move(event));
  }
  return events;
}

TEST(Mllog, EndsWhereTheTargetIsReached) {
  const std::string text = mllog_text(source());
  EXPECT_EQ(events_of(text, "submission_benchmark").at(0).at("value"), "lockstep_energy");
  EXPECT_EQ(events_of(text, "global_batch_size").at(0).at("value"), 24);
  EXPECT_EQ(events_of(text, "seed").at(0).at("value"), 3);
  const std::vector<json> evaluations = events_of(text, "eval_accuracy");
  ASSERT_EQ(evaluations.size(), 2U);
  EXPECT_EQ(evaluations[1].at("value"), 0.41);
  EXPECT_EQ(evaluations[1].at("time_ms"), 1'005'000) << "half of the steps in half of the time";
  EXPECT_EQ(evaluations[1].at("metadata").at("samples_count"), 50 * 24);
  EXPECT_EQ(evaluations[1].at("metadata").at("epoch_num"), 1.0);
  EXPECT_EQ(events_of(text, "run_stop").at(0).at("metadata").at("status"), "success");
}

TEST(Mllog, SaysOfARunThatNeverGotThereThatItDidNot) {
  MllogSource low = source();
  low.target = 0.9;
  EXPECT_EQ(events_of(mllog_text(low), "eval_accuracy").size(), 4U);
  EXPECT_EQ(events_of(mllog_text(low), "run_stop").at(0).at("metadata").at("status"), "aborted");
  low.finished = false;
  low.evaluations.clear();
  EXPECT_TRUE(events_of(mllog_text(low), "run_stop").empty());
}

TEST(Mllog, TakesALossDownToItsTarget) {
  MllogSource loss = source();
  loss.higher_is_better = false;
  loss.target = 0.1;
  EXPECT_EQ(events_of(mllog_text(loss), "eval_error").back().at("metadata").at("samples_count"), 25 * 24);
}

TEST(ReferencePoints, AreRecordsByName) {
  ReferenceRecord record;
  record.name = "lockstep_energy_ref_24";
  record.benchmark = "lockstep_energy";
  record.batch = 24;
  record.epochs = {1.5, 2};
  record.samples = {1800, 2400};
  record.hyperparameters = {{"optimizer", "\"adam\""}, {"opt_base_learning_rate", "0.001"}};
  EXPECT_EQ(json::parse(reference_points_json({record})),
            json::parse(R"({"lockstep_energy_ref_24": {"Benchmark": "lockstep_energy", "BS": 24,
                            "Hyperparams": {"optimizer": "adam", "opt_base_learning_rate": 0.001},
                            "Epochs to converge": [1.5, 2], "samples to converge": [1800, 2400]}})"));
}

}  // namespace
}  // namespace lockstep
