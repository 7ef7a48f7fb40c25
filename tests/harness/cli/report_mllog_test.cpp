// `report --format mllog`, as a user calls it.

#include <gmock/gmock.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/cli/commands.h"
#include "harness/verdict/stats/mllog.h"
#include "tests/support/fake_files.h"
#include "tests/support/out_fixture.h"
#include "tests/support/temp_folder.h"

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

class ReportMllog : public testing::Test {
 protected:
  static constexpr int kEvaluations = 20;
  void write(const std::string& name, const std::vector<int>& cell_reaches) {
    OutCell reference{"1x24 global", out_config(1, 24), reaching_at(kReference, kEvaluations), true};
    OutCell cell{"2x12 global", out_config(2, 12), reaching_at(cell_reaches, kEvaluations), false};
    reference.config.steps = cell.config.steps = 25 * kEvaluations;
    write_out(folder_ / name, {cell}, reference);
  }
  std::string report(const std::string& out) {
    ReportOptions o;
    o.dir = folder_ / out;
    o.formats = {"mllog"};
    std::ostringstream text, err;
    EXPECT_EQ(report_command(o, Console{text, err}), 0);
    return text.str();
  }
  const TempFolder folder_;
};

// Seeds of an earlier call would count as runs of this one.
TEST_F(ReportMllog, WritesNoLogsBesideOldOnesThatStay) {
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

/// Samples at which a log says that its run converged; kNeverConverged: it did not.
double converged_at(const std::string& log) {
  const std::string last = log.substr(log.rfind(":::MLLOG ") + 9);
  const auto end = nlohmann::json::parse(last);
  EXPECT_EQ(end.at("key"), "run_stop");
  const auto& metadata = end.at("metadata");
  return metadata.at("status") == "success" ? metadata.at("samples_count").get<double>() : kNeverConverged;
}

TEST_F(ReportMllog, WritesWhatEachRunTookToTheTarget) {
  write("a", {6, 7, 6, 0, 7, 6, 9, 7, 6, 7});
  EXPECT_THAT(report("a"), AllOf(HasSubstr("a/mllog/2x12-global/result_3.txt"),
                                 HasSubstr("a/mllog/1x24-global/rcps_lockstep_energy.json")));
  // No reference point is made of runs that did not converge.
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/mllog/2x12-global/rcps_lockstep_energy.json"));
  for (const Arm& arm : read_all_arms(folder_ / "a")) {
    const std::string place = folder_ / (arm.name == "2x12 global" ? "a/mllog/2x12-global" : "a/mllog/1x24-global");
    std::vector<double> logged;
    for (const auto& [seed, run] : arm.runs) {
      logged.push_back(converged_at(read_text(place + "/result_" + std::to_string(seed) + ".txt")));
    }
    EXPECT_EQ(logged, samples_to_target(arm, timed_metric(arm, {}))) << arm.name;
    if (arm.name != "1x24 global") continue;
    const auto points = nlohmann::json::parse(read_text(place + "/rcps_lockstep_energy.json"));
    EXPECT_EQ(points.at("lockstep_energy_ref_24").at("samples to converge").get<std::vector<double>>(), logged);
  }
}

TEST_F(ReportMllog, NeedsATarget) {
  OutCell cell{"2x12 global", out_config(2, 12), reaching_at(kReference, 4), false};
  write_out(folder_ / "a", {cell}, OutCell{"1x24 global", out_config(1, 24), cell.seeds, true},
            {"accuracy_24", 0.03, 0.05, 0});
  try {
    write_mllog(folder_ / "a", {});
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--target"));
  }
}

}  // namespace
}  // namespace lockstep
