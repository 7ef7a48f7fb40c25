#pragma once
// Runs one RunConfig with real LibTorch in forked processes, without the launcher: for tests of what ranks
// do.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/answer/questions/question_judge.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/run_config.h"
#include "harness/run/watch.h"
#include "tests/support/temp_folder.h"

namespace lockstep {

/// A short synthetic run: 3 ranks of 2 rows, padding, dropout and noise on.
RunConfig mini_config();

/// Forks the ranks of the run in `dir` (one process for emulated ones), whose files are there.
std::vector<pid_t> start_ranks(const std::string& dir, const RunConfig& config);

/// Writes run.json and the heartbeat file of a run into `dir`. `planted`: a failure of one of its ranks.
HeartbeatFile write_run(const std::string& dir, const RunConfig& config,
                        const nlohmann::json& planted = nlohmann::json::object());

/// Writes the files of the run root/id, forks the ranks (one process for emulated ones), waits for
/// them. Returns the run's folder. The caller must not have run a tensor operation. Expects (gtest) that
/// every rank finishes.
std::string mini_run(const std::string& root, const std::string& id, const RunConfig& config);

/// The same, returning the exit code of each process, or its signal with a minus, instead of expecting 0.
std::vector<int> mini_run_statuses(const std::string& root, const std::string& id, const RunConfig& config,
                                   const nlohmann::json& planted = nlohmann::json::object());

inline RankResult result_of(const std::string& run, int rank = 0) {
  return read_rank_result(run + "/rank-" + std::to_string(rank) + ".result.json");
}

/// Short runs in a folder of a test's own, and what is compared of them.
class MiniRuns {
 protected:
  /// The folder of a run that finishes.
  std::string run(const std::string& id, const RunConfig& config) const { return mini_run(folder_.path(), id, config); }

  static void expect_same_bits(const std::string& a, const std::string& b) {
    const Mechanism found = compare_runs({a, b, {}, {}});
    EXPECT_EQ(found.verdict, VerdictKind::identical) << found.sentence;
    EXPECT_GT(found.compared_steps, 0);
  }

  /// Emulated ranks and real ones have the same bits; the folder of the real ones' run.
  std::string run_emulated_and_real(const std::string& id, RunConfig config) const {
    const std::string emulated = run("emulated_" + id, config);
    config.backend = Backend::gloo;
    const std::string real = run("real_" + id, config);
    expect_same_bits(emulated, real);
    return real;
  }

  /// A cell forced against its reference at steps 0 and 2.
  Comparison forced(RunConfig reference, RunConfig cell) {
    reference.snapshot_steps = {0, 2};
    ForcedInputs inputs;
    inputs.run_a = run("reference", reference);
    inputs.run_b = run("cell", cell);
    reference.snapshot_steps = {};
    reference.forced = cell.forced = {"reference", {0, 2}, 0, {}};
    inputs.forced_reference = run("forced_reference", reference);
    inputs.forced_cell = run("forced_cell", cell);
    RunConfig twin = reference, cell_twin = cell;
    twin.forced.twin = cell_twin.forced.twin = true;
    inputs.reference_twin = run("reference_twin", twin);
    inputs.cell_twin = run("cell_twin", cell_twin);
    reference_ = std::move(reference);
    cell_ = std::move(cell);
    inputs.reference_config = &reference_;
    inputs.cell_config = &cell_;
    return compare_forced(inputs);
  }

  TempFolder folder_;
  RunConfig reference_, cell_;  ///< as they were forced last
};

class OfMiniRuns : public MiniRuns, public testing::Test {};

}  // namespace lockstep
