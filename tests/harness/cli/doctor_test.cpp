#include "harness/cli/doctor.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Checks, AreALineEach) {
  const std::vector<Check> checks = {{Check::State::ok, "cores", "2"}, {Check::State::note, "data", "none"}};
  EXPECT_EQ(checks_text(checks, false), "ok      cores  2\nnote    data   none\nfit to run\n");
  EXPECT_TRUE(fit_to_run(checks));
  EXPECT_THAT(checks_text(checks, true), HasSubstr("\x1b[32mok"));
  const auto json = nlohmann::json::parse(checks_json(checks));
  EXPECT_EQ(json.at("fit_to_run"), true);
  EXPECT_EQ(json.at("checks").at(1).at("state"), "note");
}

TEST(Checks, SayWhenTheMachineIsNotFit) {
  const std::vector<Check> checks = {{Check::State::ok, "cores", "2"},
                                     {Check::State::failed, "memory", "0.1 GiB"}};
  EXPECT_FALSE(fit_to_run(checks));
  EXPECT_EQ(checks_text(checks, false),
            "ok      cores   2\nnot ok  memory  0.1 GiB\nnot fit to run: see above\n");
}

TEST(MachineChecks, FindSomethingToSayAboutEach) {
  const std::vector<Check> checks = machine_checks(".");
  EXPECT_GE(checks.size(), 7U);
  for (const Check& check : checks) EXPECT_FALSE(check.text.empty()) << check.name;
}

TEST(AllReduceMatrix, IsTwoRealRanks) {
  const Matrix matrix = parse_matrix(all_reduce_matrix(), "doctor", {});
  ASSERT_EQ(matrix.cells.size(), 1U);
  EXPECT_EQ(matrix.cells[0].config.layout, (Layout{2, 2}));
  EXPECT_EQ(matrix.cells[0].config.backend, Backend::gloo);
  EXPECT_EQ(matrix.cells[0].config.data.source, DataSource::synthetic);
}

TEST(AllReduceCheck, SaysWhyNothingCanBeStarted) {
  const Check check = all_reduce_check("/nowhere/lockstep-rank");
  EXPECT_EQ(check.state, Check::State::failed);
  EXPECT_THAT(check.text, HasSubstr("/nowhere/lockstep-rank"));
}

/// Two traces of two steps; rank 1 holds `last` as the last reduced gradient.
void write_traces(const std::string& folder, float last, bool with_gradients = true) {
  for (int rank = 0; rank < 2; ++rank) {
    TraceWriter writer(folder + "/rank-" + std::to_string(rank) + ".trace",
                       {"h", rank, 2, "energy", TraceLevel::hash, "real"});
    for (int64_t step = 0; step < 2; ++step) {
      writer.begin_step(step);
      writer.scalar(Phase::control, "lr", 0.5, Sharing::replicated);
      const std::vector<int64_t> shape = {3};
      const std::vector<float> values = {1, 2, rank == 1 && step == 1 ? last : 3.0F};
      const TensorView view{values.data(), DType::float32, shape, {}};
      if (with_gradients) writer.tensor(Phase::reduced_gradients, "w", view, Sharing::replicated);
      writer.end_step();
    }
    writer.finish();
  }
}

TEST(RanksOfTheAllReduce, AgreeWhereTheyHoldTheSameNumbers) {
  const TempFolder folder;
  write_traces(folder.path(), 3.0F);
  EXPECT_EQ(disagreement_of_ranks(folder.path()), "");
}

TEST(RanksOfTheAllReduce, DisagreeAtTheFirstOtherBit) {
  const TempFolder folder;
  write_traces(folder.path(), 3.0000002F);
  EXPECT_EQ(disagreement_of_ranks(folder.path()),
            "step 1, reduced gradients, w: ranks 0 and 1 have different values");
}

TEST(RanksOfTheAllReduce, HaveFailedIfTheyReducedNothing) {
  const TempFolder folder;
  write_traces(folder.path(), 3.0F, false);
  EXPECT_EQ(disagreement_of_ranks(folder.path()), "the ranks reduced no value");
}

}  // namespace
}  // namespace lockstep
