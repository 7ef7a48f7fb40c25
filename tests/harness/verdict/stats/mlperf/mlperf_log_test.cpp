#include "harness/verdict/stats/mlperf/mlperf_log.h"

#include <gmock/gmock.h>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string line(const std::string& key, const std::string& value, const std::string& metadata = "{}") {
  return R"(:::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": ")" + key +
         R"(", "value": )" + value + R"(, "metadata": )" + metadata + "}\n";
}

std::string good_log() {
  return "some trainer's own words\n" + line("submission_benchmark", "\"resnet\"") +
         line("global_batch_size", "4096") + line("seed", "17") + line("run_start", "null") +
         "0: worker: " + line("eval_accuracy", "0.6", R"({"epoch_num": 31.00049})") +
         line("eval_accuracy", "0.76", R"({"epoch_num": 35.00051})") +
         line("run_stop", "null", R"({"status": "success"})");
}

std::string problems_of(const std::string& text) {
  try {
    parse_mllog(text, "logs/result_0.txt");
  } catch (const ConfigError& error) {
    std::string all;
    for (const ConfigProblem& problem : error.problems()) all += problem.text() + "\n";
    return all;
  }
  return "";
}

TEST(Mllog, IsReadAsTheirReaderDoes) {
  const MllogRun run = parse_mllog(good_log(), "r");
  EXPECT_EQ(run.benchmark, "resnet");
  EXPECT_EQ(run.batch, 4096);
  EXPECT_EQ(run.seed, 17);
  ASSERT_EQ(run.evaluations.size(), 2U);
  EXPECT_TRUE(run.success);
  EXPECT_DOUBLE_EQ(convergence_of(run, false), 35.001);  // They round epochs to three decimals.
}

TEST(Mllog, OfARunThatDidNotEndOrWasAbortedIsOfNoConvergence) {
  const std::string whole = good_log();
  const MllogRun cut = parse_mllog(whole.substr(0, whole.rfind(":::MLLOG")), "r");
  EXPECT_FALSE(cut.stopped);
  EXPECT_EQ(convergence_of(cut, false), kNeverConverged);
  std::string aborted = whole;
  aborted.replace(aborted.find("success"), 7, "aborted");
  EXPECT_EQ(convergence_of(parse_mllog(aborted, "r"), false), kNeverConverged);
}

TEST(Mllog, NamesTheLineThatIsCut) {
  const std::string whole = good_log();
  EXPECT_THAT(problems_of(whole.substr(0, whole.size() - 12)),
              HasSubstr("logs/result_0.txt:8:1: the line is cut"));
}

TEST(Mllog, NamesLinesThatAreNotTheirs) {
  EXPECT_THAT(problems_of(good_log() + ":::MLLOG 7\n"),
              HasSubstr("result_0.txt:9:1: what follows :::MLLOG is not"));
  EXPECT_THAT(problems_of(good_log() + ":::MLLOG {\"key\": \"x\", \"value\": 1}\n"),
              HasSubstr("result_0.txt:9:1: the event has no \"metadata\""));
  EXPECT_THAT(problems_of("step 1 loss 3.2\n"), HasSubstr("result_0.txt: there is no :::MLLOG line"));
}

TEST(Mllog, NamesEveryMissingKey) {
  const std::string problems =
      problems_of(line("run_start", "null") + line("run_stop", "null") + line("eval_accuracy", "0.5") +
                  line("run_stop", "null", R"({"status": "success"})"));
  EXPECT_THAT(problems, HasSubstr("submission_benchmark is missing"));
  EXPECT_THAT(problems, HasSubstr("global_batch_size is missing"));
  EXPECT_THAT(problems, HasSubstr("result_0.txt:2:1: run_stop has no status"));
  EXPECT_THAT(problems, HasSubstr("result_0.txt:3:1: eval_accuracy has neither epoch_num nor samples_count"));
  EXPECT_THAT(problems, HasSubstr("eval_accuracy is missing"));
}

TEST(Mllog, NamesTheEvaluationThatDoesNotCountTheUnit) {
  try {
    convergence_of(parse_mllog(good_log(), "r.txt"), true);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.problems().front().text(), HasSubstr("r.txt:7:1: the evaluation's metadata has no samples_count"));
  }
}

TEST(Mllog, MayBeLatin1) {
  EXPECT_EQ(problems_of(good_log() + line("submission_org", "\"M\xfcnchen\"")), "");
}

TEST(Mllog, OfTwoMetricsConvergesWhereBothAreMet) {
  const auto evaluation = [](int samples, const std::string& metric, const std::string& value) {
    return line("eval_accuracy", value,
                R"({"metric": ")" + metric + R"(", "samples_count": )" + std::to_string(samples) + "}");
  };
  const std::string text =
      line("submission_benchmark", "\"stable_diffusion\"") + line("global_batch_size", "512") +
      evaluation(100, "FID", "95") + evaluation(200, "FID", "89") + evaluation(300, "FID", "80") +
      evaluation(100, "CLIP", "0.2") + evaluation(200, "CLIP", "0.1") + evaluation(300, "CLIP", "0.16") +
      line("run_stop", "null", R"({"status": "success"})");
  EXPECT_EQ(convergence_of(parse_mllog(text, "r"), true), 300);
}

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

TEST(Mllog, ThatIsWrittenIsReadBack) {
  const MllogRun run = parse_mllog(mllog_text(source()), "r");
  EXPECT_EQ(run.benchmark, "lockstep_energy");
  EXPECT_EQ(run.batch, 24);
  EXPECT_EQ(run.seed, 3);
  EXPECT_EQ(run.evaluations.size(), 2U);  // It ends where the target is reached.
  EXPECT_TRUE(counts_samples(run));
  EXPECT_EQ(convergence_of(run, true), 50 * 24);
  EXPECT_EQ(convergence_of(run, false), 1.0);
}

TEST(Mllog, SaysOfARunThatNeverGotThereThatItDidNot) {
  MllogSource low = source();
  low.target = 0.9;
  const MllogRun aborted = parse_mllog(mllog_text(low), "r");
  EXPECT_TRUE(aborted.stopped);
  EXPECT_EQ(aborted.evaluations.size(), 4U);
  EXPECT_EQ(convergence_of(aborted, true), kNeverConverged);
  low.finished = false;
  low.evaluations.clear();
  EXPECT_FALSE(parse_mllog(mllog_text(low), "r").stopped);
}

TEST(Mllog, TakesALossDownToItsTarget) {
  MllogSource loss = source();
  loss.higher_is_better = false;
  loss.target = 0.1;
  EXPECT_EQ(convergence_of(parse_mllog(mllog_text(loss), "r"), true), 25 * 24);
}

TEST(ReferencePoints, AreWrittenAndReadBack) {
  ReferenceRecord record;
  record.name = "lockstep_energy_ref_24";
  record.benchmark = "lockstep_energy";
  record.batch = 24;
  record.epochs = {1.5, 2};
  record.samples = {1800, 2400};
  record.hyperparameters = {{"optimizer", "\"adam\""}, {"opt_base_learning_rate", "0.001"}};
  const std::vector<ReferenceRecord> back =
      parse_reference_points(reference_points_json({record}), "rcps.json");
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].name, record.name);
  EXPECT_EQ(back[0].batch, 24);
  EXPECT_EQ(back[0].epochs, record.epochs);
  EXPECT_EQ(back[0].samples, record.samples);
  EXPECT_THAT(back[0].hyperparameters, testing::UnorderedElementsAreArray(record.hyperparameters));
}

// Of two points at one batch the first counts, so that the file's order must not be lost.
TEST(ReferencePoints, KeepTheOrderOfTheirFile) {
  const std::vector<ReferenceRecord> records = parse_reference_points(
      R"({"z_24": {"Benchmark": "x", "BS": 24, "Epochs to converge": [6]},)"
      R"( "a_24": {"Benchmark": "x", "BS": 24, "Epochs to converge": [3]}})",
      "rcps.json");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].name, "z_24");
  EXPECT_EQ(records[1].name, "a_24");
}

TEST(ReferencePoints, AreRefusedWithWhatIsMissing) {
  const auto refused = [](const std::string& text) -> std::string {
    try {
      parse_reference_points(text, "rcps.json");
    } catch (const ConfigError& error) {
      return error.problems().front().text();
    }
    return "";
  };
  EXPECT_THAT(refused("{\n\"a\": {\"Benchmark\": "), HasSubstr("rcps.json:2:20: not JSON, or cut"));
  EXPECT_THAT(refused(R"({"a": {"BS": 3, "Epochs to converge": [1]}})"),
              HasSubstr("\"Benchmark\" is missing"));
  EXPECT_THAT(refused(R"({"a": {"Benchmark": "x", "Epochs to converge": [1]}})"),
              HasSubstr("\"BS\" is missing"));
  EXPECT_THAT(refused(R"({"a": {"Benchmark": "x", "BS": 3}})"), HasSubstr("\"Epochs to converge\""));
  EXPECT_THAT(refused("{}"), HasSubstr("no reference points"));
  EXPECT_THAT(refused(R"({"a": {"Benchmark": "x", "BS": 0, "Epochs to converge": [1]}})"),
              HasSubstr("batch size"));
  EXPECT_THAT(refused(R"({"a": {"Benchmark": "x", "BS": 1e300, "Epochs to converge": [1]}})"),
              HasSubstr("batch size"));
  EXPECT_THAT(refused(R"({"a": {"Benchmark": "x", "BS": 3, "Epochs to converge": [1, 0]}})"),
              HasSubstr("holds 0"));
}

}  // namespace
}  // namespace lockstep
