// What a step writes down of a task that nobody here knows.

#include "harness/trainers/core/step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "harness/trainers/comm/checked.h"
#include "harness/verdict/trace/reader.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// One weight; row i's loss is the weight times its sample id. Records a score a row, with and without columns,
/// and steers by a target.
class FakeTask : public Task {
 public:
  FakeTask() { weight_ = parameters_.add("fake.weight", at::full({1}, 2.0F)); }

  ParameterList& parameters() override { return parameters_; }
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

 private:
  ParameterList parameters_;
  at::Tensor weight_;
};

class Steps : public testing::Test {
 protected:
  /// The records of one step over sample ids 3, 1, 4, 5 in two micro-steps of two rows.
  std::vector<Record> records_of(TraceLevel level, const TracedStep::Options& options) {
    RunConfig config;
    config.accumulation = 2;
    config.layout = {1, 4};
    const std::string path = folder_.path() + "/trace";
    const std::unique_ptr<Comm> comm = make_solo_comm();
    FakeTask task;
    {
      TraceHeader header;
      header.level = level;
      TraceWriter trace(path, header);
      RankContext context;
      context.config = &config;
      context.comm = comm.get();
      context.trace = &trace;
      context.task = &task;
      context.heartbeat = [](int64_t, const std::string&) {};
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
  template <class Value>
  static std::vector<Value> values(const Record& record) {
    std::vector<Value> values(record.payload.size() / sizeof(Value));
    std::memcpy(values.data(), record.payload.data(), record.payload.size());
    return values;
  }
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
  EXPECT_EQ(values<float>(*scores), (std::vector<float>{3, -3, 1, -1}));
  ASSERT_NE(find(records, "choices"), nullptr);
  EXPECT_EQ(values<int64_t>(*find(records, "choices")), (std::vector<int64_t>{70, 71}));
  ASSERT_NE(find(records, "margins"), nullptr);
  EXPECT_EQ(find(records, "margins")->phase, Phase::loss);
  EXPECT_EQ(values<float>(*find(records, "margins")), (std::vector<float>{6, 2}));
  EXPECT_DOUBLE_EQ(gradient_, 0.5 * (3 + 1 + 4 + 5));
}

TEST_F(Steps, EveryMicroStepHasItsOwnRecords) {
  const std::vector<Record> records = records_of(TraceLevel::hash, whole());
  ASSERT_NE(find(records, "scores.1"), nullptr);
  EXPECT_EQ(find(records, "scores.1")->ids, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(values<float>(*find(records, "scores.1")), (std::vector<float>{4, -4, 5, -5}));
  ASSERT_NE(find(records, "choices.1"), nullptr);
  EXPECT_EQ(values<int64_t>(*find(records, "choices.1")), (std::vector<int64_t>{71, 71}));
}

TEST_F(Steps, RowsComputedInPartsAreOneRecord) {
  TracedStep::Options options = whole();
  const std::vector<Record> together = records_of(TraceLevel::hash, options);
  options.rows_a_part = 1;
  const std::vector<Record> parts = records_of(TraceLevel::hash, options);
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

}  // namespace
}  // namespace lockstep
