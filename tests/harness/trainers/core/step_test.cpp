#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/judge/trace/reader.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/loop.h"
#include "harness/trainers/core/step.h"
#include "harness/trainers/core/task.h"
#include "harness/trainers/core/update.h"
#include "tests/support/ranks.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

// What a step writes down of a task that nobody here knows.

namespace lockstep {
namespace {

/// One weight; row i's loss is the weight times its sample id. Records a score a row, with and without columns,
/// and steers by a target.
class FakeTask : public Task {
 public:
  FakeTask() { weight_ = parameters_.add("fake.weight", at::full({1}, 2.0F)); }

  ParameterList& parameters() override { return parameters_; }
  int64_t rows_at_once() const override { return at_once; }
  StepOutput forward(const StepInput& input) override {
    std::vector<float> ids;
    for (int64_t row = input.first_row; row < input.end_row; ++row) {
      ids.push_back(static_cast<float>(input.ids[static_cast<std::size_t>(row)]));
    }
    const at::Tensor ids_B = at::tensor(ids);
    const at::Tensor scores_B = ids_B * weight_;
    StepOutput output;
    output.row_losses_B = scores_B;
    output.row_weight = 0.5;
    output.loss = scores_B.sum() * output.row_weight;
    output.records.push_back(
        {Phase::scores, "scores", at::stack({ids_B, -ids_B}, 1), "choices", {70 + input.micro_step, 71}});
    output.records.push_back({Phase::loss, "margins", scores_B.detach().unsqueeze(1)});
    output.controls = {{"target", 0.25}};
    output.scalars = {{"rows", static_cast<double>(ids.size())}};
    return output;
  }
  std::map<std::string, double> evaluate(Evaluation /*kind*/, const Heartbeat& /*heartbeat*/) override { return {}; }
  int64_t at_once = 0;  ///< 0: all rows

 private:
  ParameterList parameters_;
  at::Tensor weight_;
};

/// Of one rank alone.
RankContext context_of(const RunConfig& config, TraceWriter& trace, Task& task) {
  static const std::unique_ptr<Comm> comm = make_solo_comm();
  RankContext context;
  context.config = &config;
  context.comm = comm.get();
  context.trace = &trace;
  context.task = &task;
  context.heartbeat = [](int64_t, const std::string&) {};
  return context;
}

class Steps : public testing::Test {
 protected:
  /// The records of one step over sample ids 3, 1, 4, 5 in two micro-steps of two rows.
  std::vector<Record> records_of(TraceLevel level, const TracedStep::Options& options, int64_t rows_at_once = 0) {
    RunConfig config;
    config.accumulation = 2;
    config.layout = {1, 4};
    const std::string path = folder_.path() + "/trace";
    FakeTask task;
    task.at_once = rows_at_once;
    {
      TraceHeader header;
      header.level = level;
      TraceWriter trace(path, header);
      const RankContext context = context_of(config, trace, task);
      TracedStep step(context);
      trace.begin_step(6);
      gradient_ = step.run(6, options).gradient_norm;
      trace.end_step();
      trace.finish();
    }
    return read_trace(path).steps.at(0).records;
  }

  static const Record* find(const std::vector<Record>& records, const std::string& name) {
    for (const Record& record : records) {
      if (record.name == name) return &record;
    }
    return nullptr;
  }
  static std::vector<double> values(const Record& record) { return values_of(record).value(); }
  static TracedStep::Options whole() {
    TracedStep::Options options;
    options.keep = Keep::whole;
    options.ids = {3, 1, 4, 5};
    options.learning_rate = 0.125;
    return options;
  }

  TempFolder folder_;
  double gradient_ = 0;
};

TEST_F(Steps, ATasksRecordsStandInTheirPhaseByTheNamesItGave) {
  const std::vector<Record> records = records_of(TraceLevel::hash, whole());
  const Record* scores = find(records, "scores");
  ASSERT_NE(scores, nullptr);
  EXPECT_EQ(scores->phase, Phase::scores);
  EXPECT_EQ(scores->ids, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(scores->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(values(*scores), (std::vector<double>{3, -3, 1, -1}));
  ASSERT_NE(find(records, "choices"), nullptr);
  EXPECT_EQ(values(*find(records, "choices")), (std::vector<double>{70, 71}));
  ASSERT_NE(find(records, "margins"), nullptr);
  EXPECT_EQ(find(records, "margins")->phase, Phase::loss);
  EXPECT_EQ(values(*find(records, "margins")), (std::vector<double>{6, 2}));
  EXPECT_DOUBLE_EQ(gradient_, 0.5 * (3 + 1 + 4 + 5));
}

TEST_F(Steps, EveryMicroStepHasItsOwnRecords) {
  const std::vector<Record> records = records_of(TraceLevel::hash, whole());
  ASSERT_NE(find(records, "scores.1"), nullptr);
  EXPECT_EQ(find(records, "scores.1")->ids, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(values(*find(records, "scores.1")), (std::vector<double>{4, -4, 5, -5}));
  ASSERT_NE(find(records, "choices.1"), nullptr);
  EXPECT_EQ(values(*find(records, "choices.1")), (std::vector<double>{71, 71}));
}

TEST_F(Steps, RowsComputedInPartsAreOneRecord) {
  const std::vector<Record> together = records_of(TraceLevel::hash, whole());
  const std::vector<Record> parts = records_of(TraceLevel::hash, whole(), 1);
  for (const char* name : {"scores", "scores.1", "margins", "margins.1"}) {
    ASSERT_NE(find(parts, name), nullptr) << name;
    EXPECT_EQ(find(parts, name)->stats, find(together, name)->stats) << name;
    EXPECT_EQ(find(parts, name)->ids, find(together, name)->ids) << name;
  }
}

TEST_F(Steps, ColumnsAreWrittenWhereValuesAre) {
  TracedStep::Options options = whole();
  options.keep = Keep::by_level;
  const std::vector<Record> hashes = records_of(TraceLevel::hash, options);
  EXPECT_EQ(find(hashes, "choices"), nullptr);
  ASSERT_NE(find(hashes, "scores"), nullptr);
  EXPECT_TRUE(find(hashes, "scores")->payload.empty());
  EXPECT_EQ(find(hashes, "scores")->shape, (std::vector<int64_t>{2, 2}));
}

TEST_F(Steps, ATasksControlValuesStandBesideTheLearningRate) {
  const std::vector<Record> records = records_of(TraceLevel::hash, whole());
  const Record* rate = find(records, "learning_rate");
  const Record* target = find(records, "target");
  ASSERT_NE(rate, nullptr);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(rate->phase, Phase::control);
  EXPECT_EQ(rate->value, 0.125);
  EXPECT_EQ(target->phase, Phase::control);
  EXPECT_EQ(target->value, 0.25);
  EXPECT_TRUE(target->replicated);
}

TEST(RandomStreams, KeyedStreamsFollowTheSampleNotTheRank) {
  const RandomStreams rank0(RankSeed::keyed, 7, 0);
  const RandomStreams rank5(RankSeed::keyed, 7, 5);
  EXPECT_EQ(rank0.row_key(Purpose::dropout, 3, 42, 0), rank5.row_key(Purpose::dropout, 3, 42, 2));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0), rank0.row_key(Purpose::dropout, 3, 43, 0));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0), rank0.row_key(Purpose::dropout, 4, 42, 0));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0), rank0.row_key(Purpose::context_noise, 3, 42, 0));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0),
            RandomStreams(RankSeed::keyed, 8, 0).row_key(Purpose::dropout, 3, 42, 0));
}

TEST(RandomStreams, OneStreamForAllIsTheSameOnEveryRankAndPlusRankIsNot) {
  EXPECT_EQ(RandomStreams(RankSeed::same, 7, 0).row_key(Purpose::dropout, 3, 1, 2),
            RandomStreams(RankSeed::same, 7, 5).row_key(Purpose::dropout, 3, 99, 2));
  EXPECT_NE(RandomStreams(RankSeed::plus_rank, 7, 0).row_key(Purpose::dropout, 3, 1, 2),
            RandomStreams(RankSeed::plus_rank, 7, 5).row_key(Purpose::dropout, 3, 1, 2));
}

TEST(RandomStreams, FingerprintsAddUpOverRanks) {
  const std::vector<uint64_t> keys{1, 2, 3, 4};
  EXPECT_EQ(stream_fingerprint(keys),
            stream_fingerprint({keys.data(), 1}) + stream_fingerprint({keys.data() + 1, 3}));
}

TEST(FillUniform, IsUniform) {
  std::vector<float> values(1 << 16);
  fill_uniform(0x123456789ABCDEFULL, values);
  std::vector<int> counts(16, 0);
  for (const float value : values) {
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
    ++counts[static_cast<std::size_t>(value * 16)];
  }
  double chi2 = 0;
  for (const int count : counts) {
    chi2 += std::pow(count - 4096.0, 2) / 4096.0;
  }
  EXPECT_LT(chi2, 37.7) << "0.1 % point of chi-square with 15 degrees of freedom";
}

TEST(FillDropout, DropsTheRightShareAndKeepsTheMean) {
  std::vector<float> factors(1 << 16);
  fill_dropout(99, 0.1F, factors);
  double sum = 0;
  int dropped = 0;
  for (const float factor : factors) {
    sum += factor;
    dropped += factor == 0.0F ? 1 : 0;
  }
  EXPECT_NEAR(dropped / 65536.0, 0.1, 0.005);
  EXPECT_NEAR(sum / 65536.0, 1.0, 0.006);
}

TEST(LearningRate, RulesAndSchedules) {
  RunConfig config;
  config.layout = {8, 3};
  config.lr = 1e-3;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0), 1e-3);
  config.lr_rule = LrRule::linear;
  EXPECT_DOUBLE_EQ(learning_rate(config, 5), 8e-3);
  config.lr_rule = LrRule::sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(config, 5), std::sqrt(8.0) * 1e-3);
  config.lr_rule = LrRule::none;
  config.schedule = Schedule::warmup;
  config.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0), 0.25e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 9), 1e-3);
  config.schedule = Schedule::cosine;
  config.steps = 104;
  EXPECT_DOUBLE_EQ(learning_rate(config, 4), 1e-3);
  EXPECT_NEAR(learning_rate(config, 54), 0.5e-3, 1e-12);
  EXPECT_NEAR(learning_rate(config, 103), 0.0, 1e-6);
}

TEST(LearningRate, AdamSqrtScalesEverythingThatAdamHas) {
  RunConfig config;
  config.layout = {8, 3};
  config.lr_rule = LrRule::adam_sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(config, 5), std::sqrt(8.0) * 1e-3);
  EXPECT_NEAR(adam_numbers(config).beta1, 1 - 8 * 0.1, 1e-12);
  EXPECT_NEAR(adam_numbers(config).beta2, 1 - 8 * 0.001, 1e-12);
  EXPECT_NEAR(adam_numbers(config).eps, 1e-8 / std::sqrt(8.0), 1e-20);
  EXPECT_TRUE(fits_adam_sqrt(config));
  config.schedule = Schedule::warmup;
  config.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1), 0.5 * std::sqrt(8.0) * 1e-3);
  config.layout = {10, 3};
  EXPECT_FALSE(fits_adam_sqrt(config)) << "10 (1 - 0.9) is 1, whatever its rounding";
  EXPECT_GE(adam_numbers(config).beta1, 0);
  for (const LrRule rule : {LrRule::none, LrRule::linear, LrRule::sqrt}) {
    config.lr_rule = rule;
    EXPECT_EQ(adam_numbers(config).beta1, 0.9);
    EXPECT_EQ(adam_numbers(config).beta2, 0.999);
    EXPECT_EQ(adam_numbers(config).eps, 1e-8);
    EXPECT_TRUE(fits_adam_sqrt(config));
  }
  config.layout = {1, 24};
  config.lr_rule = LrRule::adam_sqrt;
  EXPECT_EQ(adam_numbers(config).beta1, 0.9) << "one rank scales nothing, to the bit";
  EXPECT_EQ(learning_rate(config, 9), 1e-3);
}

/// Parameters after three updates by gradients that change.
at::Tensor after_updates(const RunConfig& config, double rate) {
  ParameterList parameters;
  parameters.add("a", at::linspace(-1, 1, 7));
  Optimizer optimizer(config, parameters);
  for (int step = 1; step <= 3; ++step) {
    parameters.tensors[0].mutable_grad() = at::linspace(1, -2, 7) * step;
    optimizer.step(rate);
  }
  return parameters.tensors[0].detach();
}

TEST(Optimizer, ByAdamSqrtIsAdamWithThoseNumbers) {
  RunConfig config, plain;
  config.layout = {8, 3};
  config.lr_rule = LrRule::adam_sqrt;
  plain.beta1 = adam_numbers(config).beta1;
  plain.beta2 = adam_numbers(config).beta2;
  plain.eps = adam_numbers(config).eps;
  EXPECT_TRUE(at::equal(after_updates(config, 1e-3), after_updates(plain, 1e-3)));
  EXPECT_FALSE(at::equal(after_updates(config, 1e-3), after_updates(RunConfig{}, 1e-3)));
}

TEST(ClipGradients, ScalesToTheNormOnlyWhenItIsLarger) {
  ParameterList parameters;
  parameters.add("a", at::zeros({3}));
  parameters.add("b", at::zeros({2}));
  parameters.tensors[0].mutable_grad() = at::full({3}, 2.0);
  parameters.tensors[1].mutable_grad() = at::full({2}, 2.0);
  const at::Tensor norm = total_gradient_norm(parameters.tensors);
  EXPECT_NEAR(norm.item<double>(), std::sqrt(20.0), 1e-6);
  clip_gradients(parameters.tensors, norm, 10.0);
  EXPECT_EQ(parameters.tensors[0].grad()[0].item<float>(), 2.0F);
  clip_gradients(parameters.tensors, norm, 1.0);
  EXPECT_NEAR(total_gradient_norm(parameters.tensors).item<double>(), 1.0, 1e-5);
}

// A number that is not finite is named alike on all ranks, and nobody takes an update from it.

void on_ranks(int world, const std::function<void(Comm&)>& body) {
  EmulatedWorld emulated(world, 20);
  support::on_threads(world, [&](int rank) { body(*emulated.comm(rank)); });
}

constexpr int kRanks = 8;

constexpr std::size_t kTensors = 20;

const double kKinds[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity()};

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(GradientGuard, NamesRankTensorElementAndKindInAllOf480CasesOnAllRanks) {
  std::vector<int> named(kRanks, 0);
  on_ranks(kRanks, [&](Comm& comm) {
    const int rank = comm.rank();
    for (int culprit = 0; culprit < kRanks; ++culprit) {
      for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
        for (const double kind : kKinds) {
          const auto element = static_cast<int64_t>((tensor * 7 + static_cast<std::size_t>(culprit)) % (3 + tensor));
          GradientGuard guard;
          guard.begin();
          for (std::size_t t = 0; t < kTensors; ++t) {
            at::Tensor gradient = at::ones({static_cast<int64_t>(3 + t)});
            if (rank == culprit && t == tensor) gradient[element] = kind;
            guard.look(t, gradient);
          }
          const auto found = guard.agree(comm);
          const bool right = found && found->rank == culprit && found->tensor == tensor && found->index == element &&
                             same(found->value, kind) && found->ranks == 1;
          named[static_cast<std::size_t>(rank)] += right ? 1 : 0;
        }
      }
    }
  });
  EXPECT_THAT(named, testing::Each(kRanks * static_cast<int>(kTensors) * 3));
}

TEST(GradientGuard, IsSilentOnNumbersThatAreLarge) {
  const std::unique_ptr<Comm> comm = make_solo_comm();
  GradientGuard guard;
  guard.begin();
  guard.look(0, at::full({4}, 3e38F));  // their sum overflows
  EXPECT_FALSE(guard.agree(*comm));
}

/// One weight of three numbers; the loss is its sum times a factor.
class FactorTask : public Task {
 public:
  FactorTask() { weight_ = parameters_.add("w", at::full({3}, 2.0F)); }
  ParameterList& parameters() override { return parameters_; }
  StepOutput forward(const StepInput&) override {
    StepOutput output;
    output.row_losses_B = (weight_ * factor).sum().reshape({1});
    output.loss = output.row_losses_B.sum();
    return output;
  }
  std::map<std::string, double> evaluate(Evaluation, const Heartbeat&) override { return {}; }
  at::Tensor factor = at::ones({3});

 private:
  ParameterList parameters_;
  at::Tensor weight_;
};

class GuardedSteps : public testing::Test {
 protected:
  /// The weight after a step with this factor at its second element.
  at::Tensor after(float factor, NanGuard policy) {
    RunConfig config;
    config.layout = {1, 1};
    config.watch.nan_guard = policy;
    TraceWriter trace("", {"", 0, 1, "", TraceLevel::off, "real"});
    FactorTask task;
    const RankContext context = context_of(config, trace, task);
    TracedStep step(context);
    Update update(context);
    task.factor[1] = factor;
    TracedStep::Options options;
    options.ids = {0};
    const TracedStep::Outcome outcome = step.run(7, options);
    update.apply(7, outcome, 0.1, Keep::by_level);
    return task.parameters().tensors[0].detach().clone();
  }
};

TEST_F(GuardedSteps, LeaveEveryParameterAsItWas) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(after(nan, NanGuard::skip).equal(at::full({3}, 2.0F)));
  EXPECT_FALSE(after(nan, NanGuard::off).isfinite().all().item<bool>()) << "the guard is what protects them";
  EXPECT_FALSE(after(1, NanGuard::skip).equal(at::full({3}, 2.0F))) << "a good step is taken";
}

TEST_F(GuardedSteps, EndTheRunWithTheNameOfTheNumber) {
  EXPECT_EQ(support::thrown_by([&] { after(std::numeric_limits<float>::infinity(), NanGuard::stop); }),
            "nan_guard: rank 0: the gradient of w is infinity at element 1 (step 7)");
}

struct Numbered : PreparedRows {
  explicit Numbered(int64_t step_) : step(step_) {}
  int64_t step;
};

PartitionedRows rows_of(int64_t step) {
  return {{step * 10, step * 10 + 1}, std::make_shared<const Numbered>(step)};
}

TEST(Prefetcher, GivesStepsInOrderWithWhatWasMadeReadyOfThem) {
  Prefetcher prefetcher({3, 50, 30}, rows_of);
  for (int64_t step = 0; step < 50; ++step) {
    const PartitionedRows rows = prefetcher.next();
    EXPECT_EQ(rows.ids, (std::vector<int64_t>{step * 10, step * 10 + 1}));
    EXPECT_EQ(dynamic_cast<const Numbered&>(*rows.prepared).step, step);
  }
  EXPECT_THROW(prefetcher.next(), std::runtime_error) << "the run has 50 steps";
}

TEST(Prefetcher, RunsNoFurtherAheadThanItMay) {
  std::atomic<int64_t> partitioned{0};
  Prefetcher prefetcher({2, 100, 30}, [&](int64_t step) {
    ++partitioned;
    return rows_of(step);
  });
  for (int64_t step = 0; step < 20; ++step) {
    prefetcher.next();
    EXPECT_LE(partitioned, step + 1 + 2 + 1) << "two ready, and one in the making";
  }
}

TEST(Prefetcher, HandsOverWhatWasThrownAtTheStepThatItWasThrownFor) {
  Prefetcher prefetcher({4, 10, 30}, [](int64_t step) {
    if (step == 3) throw std::runtime_error("series 7 is torn");
    return rows_of(step);
  });
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(prefetcher.next().ids.front(), step * 10);
  EXPECT_EQ(support::thrown_by([&] { prefetcher.next(); }), "series 7 is torn");
}

TEST(Prefetcher, NamesTheStepThatIsNotReadyInTime) {
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  Prefetcher prefetcher({1, 10, 0.01}, [opened](int64_t step) {
    if (step == 1) opened.wait();
    return rows_of(step);
  });
  prefetcher.next();
  EXPECT_THAT(support::thrown_by([&] { prefetcher.next(); }), testing::HasSubstr("rows of step 1 were not ready"));
  gate.set_value();
}

TEST(Prefetcher, EndsBeforeItsTimeAndDropsWhatIsReady) {
  std::weak_ptr<const PreparedRows> kept;
  {
    Prefetcher prefetcher({5, 1000, 30}, rows_of);
    kept = prefetcher.next().prepared;
  }
  EXPECT_TRUE(kept.expired());
}

TEST(StepMeter, LeavesTheFirstTenthOut) {
  CommunicationMeter meter;
  StepMeter steps(&meter);
  RankResult result;
  double now = 100;
  for (int step = 0; step < 20; ++step) {
    steps.begin(now);
    const double seconds = step < 2 ? 5.0 : 1.0 + 0.01 * step;
    meter.seconds += 0.25 * seconds;
    meter.received_bytes += step < 2 ? 1e6 : 300;
    now += seconds;
    steps.end(now, result);
    now += 3;  // an evaluation
  }
  steps.fill(result);
  EXPECT_NEAR(result.step_seconds, 1.105, 1e-9);
  EXPECT_NEAR(result.communication_share, 0.25, 1e-9);
  EXPECT_NEAR(result.received_bytes, 300, 1e-9);
  EXPECT_NEAR(result.train_seconds, 10 + 18 + 0.01 * 189, 1e-9);
  EXPECT_NEAR(result.communication_seconds, 0.25 * result.train_seconds, 1e-9);
}

TEST(StepMeter, KnowsNoShareOfNothing) {
  StepMeter steps(nullptr);
  RankResult result;
  steps.fill(result);
  EXPECT_EQ(result.step_seconds, 0);
  steps.begin(1);
  steps.end(3, result);
  steps.fill(result);
  EXPECT_EQ(result.step_seconds, 2) << "one step is all there is";
  EXPECT_EQ(result.communication_share, 0);
}

// Which rows of a parameter a rank owns, and that all ranks' rows make the whole again.

ParameterList some_parameters() {
  ParameterList parameters;
  parameters.add("a.weight", at::arange(14, at::kFloat).reshape({7, 2}));
  parameters.add("a.bias", at::arange(4, at::kFloat));
  parameters.add("b.small", at::arange(2, at::kFloat));
  parameters.add("b.scalar", at::full({}, 5.0F));
  return parameters;
}

TEST(Shards, CutRowsAsTorchChunkDoesAndKeepSmallTensorsWhole) {
  const ParameterList parameters = some_parameters();
  const std::vector<int64_t> firsts{0, 3, 6}, rows{3, 3, 1}, bias_rows{2, 2, 0};
  for (int rank = 0; rank < 3; ++rank) {
    const Shards shards(parameters, rank, 3);
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_TRUE(shards.is_sharded(0));
    EXPECT_EQ(shards.placement(0).whole, (std::vector<int64_t>{7, 2}));
    EXPECT_EQ(shards.placement(0).offset, (std::vector<int64_t>{firsts[at], 0}));
    EXPECT_EQ(shards.own(0, parameters.tensors[0]).size(0), rows[at]);
    EXPECT_EQ(shards.own(1, parameters.tensors[1]).size(0), bias_rows[at]) << "the last rank may have none";
    EXPECT_FALSE(shards.is_sharded(2)) << "two rows are too few for three ranks";
    EXPECT_FALSE(shards.is_sharded(3));
    EXPECT_EQ(shards.own(2, parameters.tensors[2]).size(0), 2);
  }
  EXPECT_FALSE(Shards(parameters, 0, 1).is_sharded(0)) << "one rank has everything";
}

TEST(Shards, WhatAllRanksOwnIsTheWholeAgain) {
  on_ranks(3, [](Comm& comm) {
    const ParameterList parameters = some_parameters();
    const Shards shards(parameters, comm.rank(), comm.world_size());
    std::vector<at::Tensor> parts;
    for (std::size_t i = 0; i < shards.size(); ++i) parts.push_back(shards.own(i, parameters.tensors[i]).detach().clone());
    const std::vector<at::Tensor> wholes = shards.gathered(comm, parts, "test");
    for (std::size_t i = 0; i < wholes.size(); ++i) EXPECT_TRUE(at::equal(wholes[i], parameters.tensors[i].detach()));
  });
}

TEST(Shards, DropWhatOthersOwn) {
  const ParameterList parameters = some_parameters();
  const Shards shards(parameters, 1, 3);
  const at::Tensor gradient = at::ones({7, 2});
  shards.drop_others(0, gradient);
  EXPECT_EQ(gradient.sum().item<float>(), 6);
  EXPECT_EQ(shards.own(0, gradient).sum().item<float>(), 6);
  const at::Tensor small = at::ones({2});
  shards.drop_others(2, small);
  EXPECT_EQ(small.sum().item<float>(), 2);
}

TEST(Shards, TheirNormIsThatOfTheWholeGradient) {
  on_ranks(3, [](Comm& comm) {
    const ParameterList parameters = some_parameters();
    const Shards shards(parameters, comm.rank(), comm.world_size());
    std::vector<at::Tensor> parts;
    double squares = 0;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      parts.push_back(shards.own(i, parameters.tensors[i]).detach());
      squares += parameters.tensors[i].detach().to(at::kDouble).square().sum().item<double>();
    }
    const SquaredNorms norms = shards.squared_norms(comm, parts);
    EXPECT_EQ(norms.all_shards + norms.replicated, squares);
    EXPECT_EQ(norms.replicated, 1.0 + 25.0);
    EXPECT_LT(norms.own_shards, norms.all_shards);
  });
}

// What a snapshot of another run holds, and what it lacks.

std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.nbytes());
  std::memcpy(bytes.data(), tensor.const_data_ptr(), bytes.size());
  return bytes;
}

class BufferedTask : public Task {
 public:
  BufferedTask() { parameters_.add("w", at::full({3}, 2.0F)); }
  ParameterList& parameters() override { return parameters_; }
  StepOutput forward(const StepInput&) override { return {}; }
  std::vector<NamedBuffer> buffers() override { return {{"buffer/old", old}, {"buffer/own", own}}; }
  std::map<std::string, double> evaluate(Evaluation, const Heartbeat&) override { return {}; }
  at::Tensor old = at::full({2}, 1.0F), own = at::full({2}, 5.0F);

 private:
  ParameterList parameters_;
};

TEST(UpdateLoad, ABufferThatTheOtherRunDoesNotKeepIsAsAtTheBeginning) {
  RunConfig config;
  TraceWriter trace("", {"", 0, 1, "", TraceLevel::off, "real"});
  BufferedTask task;
  const RankContext context = context_of(config, trace, task);
  Update update(context);
  SnapshotBytes snapshot{{"w", bytes_of(at::full({3}, 7.0F))}, {"buffer/old", bytes_of(at::full({2}, 9.0F))}};
  for (int step = 0; step < 2; ++step) {
    update.load(snapshot);
    EXPECT_TRUE(task.parameters().tensors[0].detach().equal(at::full({3}, 7.0F)));
    EXPECT_TRUE(task.old.equal(at::full({2}, 9.0F)));
    EXPECT_TRUE(task.own.equal(at::full({2}, 5.0F))) << "whatever the step before made of it";
    task.own.fill_(6);
    task.old.fill_(6);
  }
  snapshot.erase("w");
  EXPECT_THROW(update.load(snapshot), std::runtime_error) << "without a parameter nothing can be computed";
}

}  // namespace
}  // namespace lockstep
