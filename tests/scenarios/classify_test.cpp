// The trainer classify: what it cuts, what it computes under every partitioning of rows, and that it learns.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/task.h"
#include "scenarios/classify/spec.h"
#include "scenarios/classify/task.h"
#include "scenarios/scenario.h"
#include "tests/support/certificate.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::Alone;
using support::of_ranks;
using support::StepGradients;
using support::StepSetting;

constexpr double kExact = 1e-12;

/// Twelve and twenty-four rows, of which one sample comes again.
const std::vector<int64_t> kTwelve{5, 3, 8, 21, 13, 1, 5, 2, 34, 30, 4, 17};
const std::vector<int64_t> kTwentyFour{5,  3,  8,  21, 13, 1,  5,  2,  34, 30, 4,  17,
                                       22, 11, 40, 29, 6,  38, 19, 27, 10, 33, 16, 0};

ClassifyConfig small_model() {
  ClassifyConfig own;
  own.data = {3, 10, 4, 1};
  own.model.width = 6;
  own.model.hidden = 8;
  own.label_smoothing = 0.1;
  return own;
}

RunConfig config_of(Layout layout, const ClassifyConfig& own) {
  RunConfig config(classify_spec());
  config.data.source = DataSource::synthetic;
  config.data.series = 8;
  config.data.series_steps = 40;
  config.layout = layout;
  config.precision = Precision::float64;
  classify(config) = own;
  return config;
}

std::vector<Denominator> denominators(bool global_alone) {
  std::vector<Denominator> all;
  for (const auto over : {DenominatorOver::valid_steps, DenominatorOver::rows, DenominatorOver::constant}) {
    for (const auto scope : {DenominatorScope::global, DenominatorScope::local, DenominatorScope::micro}) {
      if (!global_alone || scope == DenominatorScope::global) {
        all.push_back({over, scope, over == DenominatorOver::constant ? 100.0 : 0.0});
      }
    }
  }
  return all;
}

std::string words(const RunConfig& config) {
  return classify_spec().objective(config) + ", " + std::to_string(config.layout.world_size) + " ranks, partitioned " +
         std::to_string(static_cast<int>(config.rows)) + ", accumulation " + std::to_string(config.accumulation);
}

class Classify : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scenario_ = make_scenario("classify").release();
    scenario_->prepare(config_of({1, 12}, small_model()));
  }
  static void TearDownTestSuite() {
    delete scenario_;
    scenario_ = nullptr;
  }

  static void expect_exact(const RunConfig& config) {
    const std::vector<int64_t>& ids = config.layout.global_batch() == 24 ? kTwentyFour : kTwelve;
    support::expect_exact(*scenario_, config, {ids, 3}, words(config));
  }

  /// Twelve rows on so many ranks, under every partitioning, in one micro-step and in two.
  static void expect_exact_partitioned(const ClassifyConfig& own, std::initializer_list<int> worlds) {
    for (RunConfig& config : support::partitioned(config_of({1, 12}, own), worlds)) {
      for (const int64_t accumulation : {1, 2}) {
        config.accumulation = accumulation;
        expect_exact(config);
      }
    }
  }

  /// How far apart the gradients of two layouts are, relative to the first one's.
  static double apart(Layout a, Layout b, const ClassifyConfig& own, RowPartition partition = RowPartition::equal,
                      int64_t accumulation = 1) {
    const StepSetting setting{kTwentyFour, 3, {}};
    const StepGradients one = of_ranks(*scenario_, config_of(a, own), setting);
    RunConfig other = config_of(b, own);
    other.rows = partition;
    other.accumulation = accumulation;
    const StepGradients found = of_ranks(*scenario_, other, setting);
    double worst = 0;
    for (const auto& [name, expected] : one.by_group) {
      worst = std::max(worst, (found.by_group.at(name) - expected).norm().item<double>() /
                                  expected.norm().item<double>());
    }
    return worst;
  }

  static Scenario* scenario_;
};
Scenario* Classify::scenario_ = nullptr;

TEST_F(Classify, EveryDenominatorEqualsItsReferenceUnderEveryPartitioning) {
  for (const Denominator& denominator : denominators(false)) {
    ClassifyConfig own = small_model();
    own.denominator = denominator;
    expect_exact_partitioned(own, {1, 2, 3, 4});
    expect_exact(config_of({8, 3}, own));
  }
}

TEST_F(Classify, ASecondLossEqualsItsReferenceUnderEveryPartitioning) {
  ClassifyConfig own = small_model();
  own.auxiliary.weight = 0.7;
  for (const Denominator& denominator : denominators(false)) {
    own.denominator = denominator;
    expect_exact_partitioned(own, {3});
  }
  own.denominator = {};
  own.norm = NormKind::sync_batch;
  expect_exact(config_of({3, 4}, own));
}

TEST_F(Classify, ItsLossIsTheWeightedSumOfItsNamedParts) {
  ClassifyConfig own = small_model();
  own.auxiliary.weight = 0.7;
  const RunConfig config = config_of({1, 12}, own);
  Alone task(*scenario_, config);
  const StepOutput output = task.forward(kTwelve);
  ASSERT_EQ(output.terms.size(), 2U);
  EXPECT_EQ(output.terms[0].name, "cross_entropy");
  EXPECT_EQ(output.terms[1].name, "reconstruction");
  EXPECT_EQ(output.terms[1].weight, 0.7);
  double sum = 0;
  for (const LossTerm& term : output.terms) sum += term.weight * term.loss.item<double>();
  EXPECT_NEAR(output.loss.item<double>(), sum, 1e-13);
  own.auxiliary.weight = 0;
  const RunConfig plain = config_of({1, 12}, own);
  const StepOutput first = Alone(*scenario_, plain).forward(kTwelve);
  EXPECT_TRUE(first.terms.empty());
  EXPECT_EQ(first.loss.item<double>(), output.terms[0].loss.item<double>()) << "the other parameters are drawn alike";
}

TEST_F(Classify, AHiddenLayerComputedAgainGivesTheSameBits) {
  for (const double auxiliary : {0.0, 0.7}) {
    for (const Precision precision : {Precision::float32, Precision::bfloat16}) {
      std::vector<std::vector<at::Tensor>> gradients;
      for (const bool again : {false, true}) {
        ClassifyConfig own = small_model();
        own.auxiliary.weight = auxiliary;
        own.activation_checkpointing = again;
        RunConfig config = config_of({1, 12}, own);
        config.precision = precision;
        Alone task(*scenario_, config);
        const StepOutput output = task.forward(kTwelve);
        ASSERT_EQ(output.streams.size(), 1U);
        EXPECT_EQ(output.streams[0].draws, 12U * 8U) << "what is drawn again is the same";
        output.loss.backward();
        gradients.emplace_back();
        for (const at::Tensor& parameter : task->parameters().tensors) gradients.back().push_back(parameter.grad().clone());
      }
      for (std::size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
    }
  }
}

TEST_F(Classify, TellsOfItsRowsWhatTheyHoldAndCount) {
  const RunConfig config = config_of({1, 12}, small_model());
  Alone task(*scenario_, config);
  StepInput input{4, kTwelve, kTwelve, 0, 0, 12};
  EXPECT_TRUE(task->forward(input).row_inputs.empty()) << "nobody asked";
  input.describes_rows = true;
  const StepOutput output = task->forward(input);
  ASSERT_EQ(output.row_inputs.size(), 12U);
  EXPECT_EQ(output.row_inputs[0], output.row_inputs[6]) << "one sample twice";
  EXPECT_NE(output.row_inputs[0], output.row_inputs[1]);
  ASSERT_EQ(output.rows.labels.size(), 12U);
  EXPECT_EQ(std::accumulate(output.rows.counts.begin(), output.rows.counts.end(), int64_t{0}),
            static_cast<int64_t>(output.counted));
  EXPECT_EQ(output.rows.widths, std::vector<int64_t>(12, 10));
}

TEST_F(Classify, EveryNormalisationEqualsItsReference) {
  ClassifyConfig own = small_model();
  for (const NormKind norm : {NormKind::batch, NormKind::sync_batch}) {
    own.norm = norm;
    expect_exact_partitioned(own, {1, 3, 4});
  }
}

TEST_F(Classify, GlobalDenominatorsGiveOneGradientUnderEveryLayout) {
  for (const Denominator& denominator : denominators(true)) {
    ClassifyConfig own = small_model();
    own.denominator = denominator;
    EXPECT_LT(apart({1, 24}, {8, 3}, own), kExact) << words(config_of({8, 3}, own));
    EXPECT_LT(apart({1, 24}, {4, 6}, own, RowPartition::unequal), kExact) << words(config_of({4, 6}, own));
    EXPECT_LT(apart({1, 24}, {4, 6}, own, RowPartition::one_empty, 3), kExact) << words(config_of({4, 6}, own));
    own.norm = NormKind::sync_batch;
    EXPECT_LT(apart({1, 24}, {8, 3}, own), kExact) << words(config_of({8, 3}, own));
  }
}

TEST_F(Classify, AMeanOfMeansDoesNot) {
  ClassifyConfig own = small_model();
  own.denominator.scope = DenominatorScope::local;
  EXPECT_GT(apart({1, 24}, {8, 3}, own), 1e-2);
  own.denominator.scope = DenominatorScope::micro;
  EXPECT_GT(apart({1, 24}, {4, 6}, own, RowPartition::equal, 3), 1e-2);
  EXPECT_GT(apart({1, 24}, {1, 24}, own, RowPartition::equal, 8), 1e-2) << "one rank alone, in micro-steps";
}

TEST_F(Classify, ABatchNormOfEachRanksOwnRowsDoesNot) {
  ClassifyConfig own = small_model();
  own.norm = NormKind::batch;
  EXPECT_GT(apart({1, 24}, {8, 3}, own), 1e-2);
}

TEST_F(Classify, PartsOfABatchAddUpToTheWhole) {
  Alone task(*scenario_, config_of({1, 12}, small_model()));
  const at::Tensor whole = task.gradient(kTwelve, 12);
  EXPECT_LT((task.gradient(kTwelve, 3) - whole).norm().item<double>(), 1e-13 * whole.norm().item<double>());
}

TEST_F(Classify, ARowsLossDependsOnItsSampleAlone) {
  Alone task(*scenario_, config_of({1, 12}, small_model()));
  const at::Tensor whole = task.forward(kTwelve).row_losses_B, alone = task.forward({34}).row_losses_B;
  EXPECT_NEAR(whole[8].item<double>(), alone[0].item<double>(), 1e-13);
  EXPECT_EQ(whole[0].item<double>(), whole[6].item<double>()) << "one sample twice, dropout and all";
}

TEST_F(Classify, ItsParametersAreThoseThatThePlannerKnows) {
  for (const NormKind norm : {NormKind::none, NormKind::batch}) {
    ClassifyConfig own = small_model();
    own.norm = norm;
    own.auxiliary.weight = norm == NormKind::none ? 0 : 1;
    const RunConfig config = config_of({1, 12}, own);
    Alone task(*scenario_, config);
    support::expect_parameters(task->parameters(), classify_spec().parameters(config, 6));
  }
}

TEST_F(Classify, EveryParameterGetsAGradientInEveryPrecision) {
  for (const Precision precision : {Precision::float32, Precision::float64, Precision::bfloat16}) {
    for (const NormKind norm : {NormKind::none, NormKind::batch}) {
      ClassifyConfig own = small_model();
      own.norm = norm;
      RunConfig config = config_of({1, 12}, own);
      config.precision = precision;
      Alone task(*scenario_, config);
      task.forward(kTwelve).loss.backward();
      for (std::size_t i = 0; i < task->parameters().tensors.size(); ++i) {
        const at::Tensor& parameter = task->parameters().tensors[i];
        ASSERT_TRUE(parameter.grad().defined()) << task->parameters().names[i];
        EXPECT_EQ(parameter.grad().scalar_type(), parameter.scalar_type());
        EXPECT_GT(parameter.grad().abs().sum().item<double>(), 0) << task->parameters().names[i];
      }
    }
  }
}

TEST(Classifier, NothingLooksAhead) {
  const Classifier model({10, 6, 4, 6, 8, false}, 3);
  at::Tensor values = at::arange(600, at::kFloat).mul(0.37).sin().reshape({10, 10, 6});
  const at::Tensor before = model.logits(model.hidden(model.features(values), {}));
  values.narrow(1, 7, 3).fill_(5);
  const at::Tensor after = model.logits(model.hidden(model.features(values), {}));
  EXPECT_LT((before - after).narrow(1, 0, 7).abs().max().item<double>(), 1e-6);
  EXPECT_GT((before - after).narrow(1, 7, 1).abs().max().item<double>(), 1e-3);
}

TEST(BatchNorm, ItsRunningStatisticsAreThoseOfWhatItSaw) {
  ClassifierShape shape{10, 6, 4, 6, 8, true};
  const Classifier model(shape, 3, at::kDouble);
  BatchNorm norm(NormKind::batch, 6, at::kDouble);
  const std::unique_ptr<Comm> comm = make_solo_comm();
  const at::Tensor features = at::arange(240, at::kDouble).mul(0.37).sin().reshape({4, 10, 6}) * 3 + 1;
  const at::Tensor valid =
      at::arange(10, at::kLong).unsqueeze(0) < at::tensor({10, 3, 7, 1}, at::kLong).unsqueeze(1);
  const at::Tensor seen = features.masked_select(valid.unsqueeze(2)).reshape({-1, 6});
  const at::Tensor normalised =
      norm.train(model, *comm, features, valid, {}).masked_select(valid.unsqueeze(2)).reshape({-1, 6});
  EXPECT_LT(normalised.mean(0).abs().max().item<double>(), 1e-12);
  EXPECT_LT((normalised.square().mean(0) - 1).abs().max().item<double>(), 1e-4);
  norm.update_running(*comm);
  const std::vector<NamedBuffer> buffers = norm.buffers();
  EXPECT_LT((buffers[0].value - 0.1 * seen.mean(0)).abs().max().item<double>(), 1e-12);
  EXPECT_LT((buffers[1].value - (0.9 + 0.1 * seen.var(0))).abs().max().item<double>(), 1e-12);
}

TEST(ClassScores, TiesCountAgainstTheClassAndSeriesAreJudgedBySums) {
  CropTensors crops;
  crops.label_N = at::tensor({0, 0, 1}, at::kLong);
  crops.valid_steps = {2, 1, 1};
  crops.series = {7, 7, 9};
  // The first series is wrong at one of three steps, and right in the sum; the second one is a tie.
  const at::Tensor p = at::tensor({0.9, 0.1, 0.4, 0.6, 0.8, 0.2, 0.9, 0.1, 0.5, 0.5, 0.9, 0.1}, at::kDouble);
  const ClassScores scores = score_classes(p.log().reshape({3, 2, 2}), crops);
  EXPECT_DOUBLE_EQ(scores.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(scores.step_accuracy, 0.5);
  EXPECT_NEAR(scores.cross_entropy, -(std::log(0.9) + std::log(0.4) + std::log(0.8) + std::log(0.5)) / 4, 1e-13)
      << "the third crop's first step counts, padding does not";
}

TEST(Crops, AreWhatThePlannerCountsAndKeyedBySample) {
  for (const CropConfig& crops : {CropConfig{3, 10, 4, 1}, CropConfig{1, 40, 7, 2}, CropConfig{5, 60, 1, 0}}) {
    ClassifyConfig own = small_model();
    own.data = crops;
    const RunConfig config = config_of({1, 12}, own);
    const CropDataset dataset = load_crops(config);
    const DataFacts facts = inspect_crops(config);
    EXPECT_EQ(facts.samples.train, dataset.train.size());
    EXPECT_EQ(facts.samples.holdout, dataset.holdout.size());
    EXPECT_EQ(facts.samples.test, dataset.test.size());
    EXPECT_EQ(facts.hash, dataset.hash);
    EXPECT_EQ(counted_crops(config)->train, dataset.train.size());
    EXPECT_EQ(classes_of(config), static_cast<int64_t>(dataset.classes.size()));
    for (int64_t crop = 0; crop < dataset.train.size(); ++crop) {
      const int64_t steps = dataset.train.valid_steps[static_cast<std::size_t>(crop)];
      EXPECT_EQ(steps, std::min(keyed_crop_steps(config, CropPart::train, crop), 40));
      EXPECT_GE(steps, crops.min_steps);
      EXPECT_LE(steps, crops.max_steps);
    }
  }
}

std::string write_series(const std::string& path, const std::vector<std::string>& classes) {
  std::string text = "@problemName Toy\n@timeStamps false\n@missing false\n@univariate true\n@equalLength true\n";
  text += classes.front().empty() ? "@classLabel false\n@data\n" : "@classLabel true A B C\n@data\n";
  for (std::size_t series = 0; series < classes.size(); ++series) {
    for (std::size_t step = 0; step < 12; ++step) {
      text += (step == 0 ? "" : ",") + std::to_string((series * 5 + step * 3) % 7);
    }
    text += classes[series].empty() ? "\n" : ":" + classes[series] + "\n";
  }
  std::ofstream(path) << text;
  return path;
}

TEST(Crops, OfFilesTheClassesAreTheirOwn) {
  const TempFolder folder;
  ClassifyConfig own = small_model();
  own.data = {3, 8, 2, 0};
  RunConfig config = config_of({1, 4}, own);
  config.data.source = DataSource::ts_files;
  config.data.train_file = write_series(folder / "train.ts", {"B", "A", "B"});
  config.data.test_file = write_series(folder / "test.ts", {"A", "B"});
  const CropDataset dataset = load_crops(config);
  EXPECT_EQ(dataset.classes, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(dataset.train.labels.front(), 1);
  EXPECT_EQ(inspect_crops(config).hash, dataset.hash);

  const auto problem = [&](const std::string& what) {
    EXPECT_THAT(support::thrown_by([&] { load_crops(config); }), testing::HasSubstr(what));
  };
  write_series(folder / "test.ts", {"A", "C"});
  problem("has the class 'C', which no series of");
  write_series(folder / "test.ts", {"", ""});
  problem("test.ts: its series have no classes");
  write_series(folder / "train.ts", {"A", "A"});
  write_series(folder / "test.ts", {"A", "A"});
  problem("all its series have one class");
}

TEST(ClassifyFields, EverySettingGoesThroughJson) {
  const std::vector<std::pair<std::string, std::string>> others{
      {"data.min_steps", "5"},         {"data.max_steps", "31"},
      {"data.stride", "9"},            {"data.holdout_series", "2"},
      {"model.width", "17"},           {"model.hidden", "33"},
      {"denominator.over", "\"rows\""}, {"denominator.scope", "\"micro\""},
      {"denominator.constant", "12.5"}, {"norm", "\"sync_batch\""},
      {"label_smoothing", "0.25"},     {"dropout", "0.5"},
      {"auxiliary.weight", "1.5"},      {"activation_checkpointing", "true"}};
  EXPECT_EQ(classify_spec().fields().size(), others.size());
  std::string json = R"({"trainer":"classify")";
  for (const auto& [key, value] : others) {
    json += ",\"" + key + "\":" + value;
  }
  const RunConfig config = run_config_from_json(json + "}", "test");
  const RunConfig again = run_config_from_json(canonical_json(config), "test");
  EXPECT_TRUE(same_config(config, again));
  EXPECT_FALSE(same_config(config, RunConfig(classify_spec())));
  const ClassifyConfig& own = classify(again);
  EXPECT_EQ(own.data.min_steps + own.data.max_steps + own.data.stride + own.data.holdout_series, 5 + 31 + 9 + 2);
  EXPECT_EQ(own.model.width + own.model.hidden, 17 + 33);
  EXPECT_EQ(own.denominator.over, DenominatorOver::rows);
  EXPECT_EQ(own.denominator.scope, DenominatorScope::micro);
  EXPECT_EQ(own.norm, NormKind::sync_batch);
  EXPECT_EQ(own.denominator.constant + own.label_smoothing + own.dropout, 12.5 + 0.25 + 0.5);
  EXPECT_EQ(own.auxiliary.weight, 1.5);
  EXPECT_TRUE(own.activation_checkpointing);
}

TEST(ClassifyProblems, AreFoundWhereTheyStand) {
  const auto keys = [](const RunConfig& config) {
    std::vector<std::string> found;
    for (const auto& [key, message] : classify_spec().problems(config, {})) {
      found.push_back(key);
    }
    return found;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys(config_of({8, 3}, small_model())), Keys{});
  ClassifyConfig own = small_model();
  own.denominator.constant = 10;
  EXPECT_EQ(keys(config_of({8, 3}, own)), Keys{"denominator.constant"});
  own.denominator = {DenominatorOver::constant, DenominatorScope::global, 0};
  EXPECT_EQ(keys(config_of({8, 3}, own)), Keys{"denominator.constant"});
  own = small_model();
  own.data.min_steps = 11;
  EXPECT_EQ(keys(config_of({8, 3}, own)), Keys{"data.min_steps"});
  own.data = {41, 50, 4, 0};
  EXPECT_EQ(keys(config_of({8, 3}, own)), Keys{"data.min_steps"});
  own.data = {3, 10, 4, 8};
  EXPECT_EQ(keys(config_of({8, 3}, own)), Keys{"data.holdout_series"});
  own = small_model();
  own.norm = NormKind::batch;
  EXPECT_EQ(keys(config_of({8, 1}, own)), Keys{"norm"});
  EXPECT_EQ(keys(config_of({8, 2}, own)), Keys{});
  own = small_model();
  own.dropout = 0;
  RunConfig config = config_of({8, 3}, own);
  config.perturb = Perturbation::random_draws;
  config.data.correlation = 0.5;
  EXPECT_EQ(keys(config), (Keys{"data.correlation", "perturb"}));
}

/// Steps of Adam on fixed batches of 24 in order; the metrics at the end.
std::map<std::string, double> trained(const ClassifyConfig& own, int64_t steps) {
  RunConfig config = config_of({1, 24}, own);
  config.precision = Precision::float32;
  config.data.series = 24;
  config.data.series_steps = 100;
  const std::unique_ptr<Scenario> scenario = make_scenario("classify");
  scenario->prepare(config);
  Alone task(*scenario, config);
  Optimizer optimizer(config, task->parameters());
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<int64_t> ids(24);
    std::iota(ids.begin(), ids.end(), int64_t{0});
    for (int64_t& id : ids) {
      id = (id * 101 + step * 37) % scenario->samples();
    }
    for (at::Tensor& parameter : task->parameters().tensors) parameter.mutable_grad() = at::Tensor();
    task->forward({step, ids, ids, 0, 0, 24}).loss.backward();
    optimizer.step(3e-3);
    task->update_buffers();
  }
  return task->evaluate(Evaluation::last, [] {});
}

TEST(ClassifyTask, LearnsToTellTheClasses) {
  for (const NormKind norm : {NormKind::none, NormKind::batch}) {
    ClassifyConfig own;
    own.norm = norm;
    const std::map<std::string, double> before = trained(own, 0), after = trained(own, 300);
    EXPECT_LT(before.at("step_accuracy"), 0.5);
    EXPECT_GT(after.at("accuracy"), 0.85) << "chance is 0.25";
    EXPECT_GT(after.at("step_accuracy"), 0.7);
    EXPECT_LT(after.at("cross_entropy"), 0.8) << "chance is log 4 = 1.386";
    EXPECT_GT(after.at("holdout_step_accuracy"), 0.7);
  }
}

TEST(ClassifyTask, WritesTheMetricsThatItsSpecNames) {
  std::map<std::string, double> written = trained({}, 1);
  for (const MetricSpec& metric : classify_spec().metrics()) {
    if (metric.when != MetricSpec::When::step) {
      EXPECT_EQ(written.erase(std::string(metric.name)), 1U) << metric.name;
    }
  }
  EXPECT_TRUE(written.empty());
}

}  // namespace
}  // namespace lockstep
