// `compare --rule mlperf` and `report --format mllog`, as a user calls them.

#include "harness/cli/compare_mlperf.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/cli/commands.h"
#include "harness/verdict/stats/mlperf/mllog.h"
#include "scenarios/energy/config.h"
#include "tests/support/fake_files.h"
#include "tests/support/out_fixture.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Ten seeds that reach 0.4 at these evaluations, counted from 1; 0: never.
std::vector<OutSeed> reaching_at(const std::vector<int>& evaluations, int of) {
  std::vector<OutSeed> seeds;
  for (const int reached : evaluations) {
    OutSeed seed{static_cast<int64_t>(seeds.size()), {}};
    for (int i = 1; i <= of; ++i) seed.accuracy.push_back(reached > 0 && i >= reached ? 0.5 : 0.1);
    seeds.push_back(seed);
  }
  return seeds;
}

const std::vector<int> kReference = {6, 7, 6, 8, 7, 6, 7, 7, 6, 7};

class CompareMlperf : public testing::Test {
 protected:
  static constexpr int kEvaluations = 20;
  OutCell reference() const {
    OutCell cell{"1x24 global", out_config(1, 24), reaching_at(kReference, kEvaluations), true};
    cell.config.steps = 25 * kEvaluations;
    return cell;
  }
  void write(const std::string& name, const std::vector<int>& cell_reaches) {
    OutCell cell{"2x12 global", out_config(2, 12), reaching_at(cell_reaches, kEvaluations), false};
    cell.config.steps = 25 * kEvaluations;
    write_out(folder_ / name, {cell}, reference());
  }
  CompareCommandOptions options(const std::string& a, const std::string& b) const {
    CompareCommandOptions o;
    o.run_a = folder_ / a;
    o.run_b = folder_ / b;
    o.rule = "mlperf";
    return o;
  }
  static std::pair<int, std::string> call(const CompareCommandOptions& o) {
    std::ostringstream out, err;
    const int code = compare_command(o, Console{out, err});
    return {code, out.str()};
  }
  static std::string refusal(const CompareCommandOptions& o) {
    try {
      call(o);
    } catch (const ConfigError& error) {
      std::string all;
      for (const ConfigProblem& problem : error.problems()) all += problem.text() + "\n";
      return all;
    }
    return "";
  }
  std::string report(const std::string& out) {
    ReportOptions o;
    o.dir = folder_ / out;
    o.formats = {"mllog"};
    std::ostringstream text, err;
    EXPECT_EQ(report_command(o, Console{text, err}), 0);
    return text.str();
  }
  const TemporaryFolder folder_;
};

TEST_F(CompareMlperf, PassesASlowerCellThatTheTwoSidedTestDoesNot) {
  // Every seed takes twice as long, and ends no lower.
  std::vector<int> slow = kReference;
  for (int& evaluation : slow) evaluation *= 2;
  write("a", slow);
  const auto [code, out] = call(options("a:1x24 global", "a:2x12 global"));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(out, AllOf(HasSubstr("RCP found, RCP test PASSED: 2x12 global"), HasSubstr("100.0 % slower"),
                         HasSubstr("one-sided")));
  // The same runs as logs, with a margin in samples: 600 samples lie between two evaluations.
  report("a");
  CompareCommandOptions logs = options("a/mllog/1x24-global", "a/mllog/2x12-global");
  logs.margin = 1200;
  logs.json = true;
  const auto json = nlohmann::json::parse(call(logs).second).at("comparisons").at(0);
  EXPECT_EQ(json.at("verdict"), "PASSED");
  EXPECT_EQ(json.at("two_sided").at("verdict"), "divergent");
  EXPECT_NEAR(json.at("two_sided").at("to_converge").at("mean").get<double>(), 67 * 60, 1e-9);
}

TEST_F(CompareMlperf, RefusesACellThatIsFasterThanMaxSpeedup) {
  write("a", {3, 3, 4, 3, 3, 3, 4, 3, 3, 3});
  const auto [code, out] = call(options("a:1x24 global", "a:2x12 global"));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(out, AllOf(HasSubstr("RCP found, RCP test FAILED"), HasSubstr("Max Speedup is")));
}

TEST_F(CompareMlperf, RefusesACellOfWhichTwoRunsNeverGetThere) {
  write("a", {6, 7, 6, 0, 7, 6, 0, 7, 6, 7});
  const auto [code, out] = call(options("a:1x24 global", "a:2x12 global"));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(out, AllOf(HasSubstr("Insufficient convergence, RCP test FAILED"), HasSubstr("2 of 10 runs")));
}

TEST_F(CompareMlperf, PassesACellThatIsTheSame) {
  write("a", kReference);
  const auto [code, out] = call(options("a:1x24 global", "a:2x12 global"));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(out, AllOf(HasSubstr("RCP test PASSED"), HasSubstr("as fast as the reference"),
                         HasSubstr("two-sided   equivalent")));
}

// Seeds of an earlier call would count as runs of this one.
TEST_F(CompareMlperf, WritesNoLogsBesideOldOnesThatStay) {
  write("a", kReference);
  support::FakeFiles files;
  files.fail(0, EACCES);
  try {
    write_mllog(folder_ / "a", {}, files);
    FAIL() << "nothing was thrown";
  } catch (const MachineError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot remove what an earlier call left: Permission denied"));
  }
  EXPECT_EQ(files.operations.size(), 1U);
}

TEST_F(CompareMlperf, WritesLogsThatItReadsBack) {
  write("a", {6, 7, 6, 0, 7, 6, 9, 7, 6, 7});
  EXPECT_THAT(report("a"), AllOf(HasSubstr("a/mllog/2x12-global/result_3.txt"),
                                 HasSubstr("a/mllog/1x24-global/rcps_lockstep_energy.json")));
  // No reference point is made of runs that did not converge.
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/mllog/2x12-global/rcps_lockstep_energy.json"));
  for (const Arm& arm : read_all_arms(folder_ / "a")) {
    const std::string place =
        folder_ / (arm.name == "2x12 global" ? "a/mllog/2x12-global" : "a/mllog/1x24-global");
    const std::vector<RunGroup> groups = read_mlperf_files(place);
    ASSERT_EQ(groups.size(), 1U);
    EXPECT_EQ(groups.front().batch, 24);
    EXPECT_EQ(groups.front().benchmark, "lockstep_energy");
    EXPECT_EQ(groups.front().samples, samples_to_target(arm, timed_metric(arm, {})));
  }
  const auto points = read_mlperf_files(folder_ / "a/mllog/1x24-global/rcps_lockstep_energy.json");
  EXPECT_EQ(points.front().samples, read_mlperf_files(folder_ / "a/mllog/1x24-global").front().samples);
  EXPECT_EQ(points.front().epochs, read_mlperf_files(folder_ / "a/mllog/1x24-global").front().epochs);
  // Whatever form they come in, the verdict is one.
  const auto verdict = [&](const std::string& a, const std::string& b) {
    CompareCommandOptions o = options(a, b);
    o.json = true;
    const auto json = nlohmann::json::parse(call(o).second).at("comparisons").at(0);
    return json.at("verdict").dump() + json.at("mean").dump() + json.at("point").at("least_mean").dump();
  };
  const std::string cells = verdict("a:1x24 global", "a:2x12 global");
  EXPECT_EQ(verdict("a/mllog/1x24-global", "a/mllog/2x12-global"), cells);
  EXPECT_EQ(verdict("a/mllog/1x24-global/rcps_lockstep_energy.json", "a:2x12 global"), cells);
  EXPECT_EQ(verdict("a:1x24 global", "a/mllog/2x12-global"), cells);
}

TEST_F(CompareMlperf, NeedsATarget) {
  OutCell cell{"2x12 global", out_config(2, 12), reaching_at(kReference, 4), false};
  write_out(folder_ / "a", {cell}, OutCell{"1x24 global", out_config(1, 24), cell.seeds, true},
            {"accuracy_24", 0.03, 0.05, 0});
  CompareCommandOptions o = options("a:1x24 global", "a:2x12 global");
  EXPECT_THAT(refusal(o), HasSubstr("--target"));
}

TEST_F(CompareMlperf, NamesLinesThatAreCutAndBatchesThatDiffer) {
  write("a", kReference);
  report("a");
  const std::string log = folder_ / "a/mllog/2x12-global/result_2.txt";
  const std::string whole = read_text(log);
  write_text(log, whole.substr(0, whole.size() - 20));
  EXPECT_THAT(refusal(options("a/mllog/1x24-global", "a/mllog/2x12-global")),
              AllOf(HasSubstr("result_2.txt:"), HasSubstr("the line is cut")));
  std::string other = whole;
  const std::string batch = "\"global_batch_size\",\"value\":24";
  ASSERT_NE(other.find(batch), std::string::npos);
  other.replace(other.find(batch), batch.size(), "\"global_batch_size\",\"value\":48");
  write_text(log, other);
  EXPECT_THAT(refusal(options("a/mllog/1x24-global", "a/mllog/2x12-global")),
              HasSubstr("several batch sizes"));
}

TEST_F(CompareMlperf, RefusesAnotherBenchmarkAndAnotherQuestion) {
  write("a", kReference);
  write_text(folder_ / "rcps_resnet.json",
             R"({"r": {"Benchmark": "resnet", "BS": 24, "Epochs to converge": [3, 4, 5, 4]}})");
  EXPECT_THAT(refusal(options("rcps_resnet.json", "a:2x12 global")), HasSubstr("cannot be compared"));
  EXPECT_THAT(refusal(options("a:1x24 global", "rcps_resnet.json")), HasSubstr("RUN_B must be runs"));
  OutCell cell{"2x12 global", out_config(2, 12), reaching_at(kReference, kEvaluations), false};
  cell.config.steps = 25 * kEvaluations;
  energy(cell.config).data.stride = 4;
  write_out(folder_ / "b", {cell}, reference());
  EXPECT_THAT(refusal(options("a:1x24 global", "b:2x12 global")), HasSubstr("data.stride is 4 against 2"));
}

std::string log_of(const std::string& benchmark, int batch, int64_t samples) {
  const auto line = [](const std::string& key, const std::string& value, const std::string& metadata) {
    return R"(:::MLLOG {"key": ")" + key + R"(", "value": )" + value + R"(, "metadata": )" + metadata + "}\n";
  };
  const auto evaluated = [&](const std::string& metric, const std::string& value) {
    return line("eval_accuracy", value,
                R"({"metric": ")" + metric + R"(", "samples_count": )" + std::to_string(samples) +
                    R"(, "epoch_num": )" + std::to_string(samples) + "}");
  };
  return line("submission_benchmark", "\"" + benchmark + "\"", "{}") +
         line("global_batch_size", std::to_string(batch), "{}") + evaluated("FID", "80") + evaluated("CLIP", "0.2") +
         line("run_stop", "null", R"({"status": "success"})");
}

/// Writes `runs` logs that all converge after that many samples.
void write_logs(const std::string& folder, const std::string& benchmark, int batch, int runs, int64_t samples) {
  std::filesystem::create_directories(folder);
  for (int i = 0; i < runs; ++i)
    write_text(folder + "/result_" + std::to_string(i) + ".txt", log_of(benchmark, batch, samples));
}

// Points of rules 3.1.0 call stable_diffusion sd and count steps, at 512 rows each; logs count samples. Held
// against each other as they are, any submission is half a thousand times slower than the reference, and passes.
TEST_F(CompareMlperf, TakesPointsOfSdForThoseOfStableDiffusion) {
  write_text(folder_ / "rcps_stable_diffusion.json",
             R"({"sd_ref_512": {"Benchmark": "sd", "BS": 512, "Epochs to converge": )"
             "[5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 6000]}}");
  write_logs(folder_ / "fast", "stable_diffusion", 512, 10, 1000 * 512);
  const auto [code, out] = call(options("rcps_stable_diffusion.json", "fast"));
  EXPECT_EQ(code, 1) << out;
  EXPECT_THAT(out, AllOf(HasSubstr("RCP found, RCP test FAILED"), HasSubstr("512000 against 2.56e+06 samples"),
                         HasSubstr("calls the benchmark stable_diffusion by the name sd and counts steps")));
  write_logs(folder_ / "same", "sd", 512, 10, 5000 * 512);
  EXPECT_EQ(call(options("rcps_stable_diffusion.json", "same")).first, 0) << "a log may say sd too";
}

TEST_F(CompareMlperf, FailsASubmissionOfTooFewRuns) {
  write_text(folder_ / "rcps_dlrmv4.json", R"({"r": {"Benchmark": "dlrmv4", "BS": 64, "Epochs to converge": )"
                                           "[900, 1000, 1100, 1000, 900, 1000]}}");
  write_logs(folder_ / "whole", "dlrmv4", 64, 10, 1000);
  EXPECT_EQ(call(options("rcps_dlrmv4.json", "whole")).first, 0);
  for (const int runs : {1, 5, 9}) {
    const std::string folder = "few" + std::to_string(runs);
    write_logs(folder_ / folder, "dlrmv4", 64, runs, 1000);
    const auto [code, out] = call(options("rcps_dlrmv4.json", folder));
    EXPECT_EQ(code, 1) << out;
    EXPECT_THAT(out, AllOf(HasSubstr("Incorrect number of files, package check FAILED: "),
                           HasSubstr("A submission of dlrmv4 has 10 runs, ")));
  }
}

TEST_F(CompareMlperf, SaysWhichPointOfARepeatedBatchCountsAndWhatItDoesNotKnow) {
  const auto record = [](const std::string& name, const std::string& runs) {
    return "\"" + name + R"(": {"Benchmark": "resnext", "BS": 64, "Epochs to converge": [)" + runs + "]}";
  };
  write_text(folder_ / "rcps_twice.json",
             "{" + record("z", "1900, 2000, 2100, 2000") + ", " + record("a", "900, 1000, 1100, 1000") + "}");
  write_logs(folder_ / "runs", "resnext", 64, 4, 1000);
  const auto [code, out] = call(options("rcps_twice.json", "runs"));
  EXPECT_EQ(code, 1) << out;
  EXPECT_THAT(out, AllOf(HasSubstr("as in MLPerf's checker the first of the file, z, counts"),
                         HasSubstr("reference has 2 points at batch 64"),
                         HasSubstr("MLPerf's checker knows no benchmark resnext (did you mean resnet?)")));
}

TEST_F(CompareMlperf, IsUndecidedForSingleRuns) {
  write("a", kReference);
  const auto [code, out] = call(options("a/runs/1x24-global-s0", "a/runs/2x12-global-s0"));
  EXPECT_EQ(code, 5);
  EXPECT_THAT(out, AllOf(HasSubstr("RCP test undecided"), HasSubstr("at least 3")));
}

}  // namespace
}  // namespace lockstep
