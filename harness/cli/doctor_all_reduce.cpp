// Doctor's last check: two real ranks, from the same launcher that runs matrices.

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/cli/doctor.h"
#include "harness/run/identity.h"
#include "harness/run/launch.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/trace_error.h"

namespace lockstep {
namespace {

using State = Check::State;

constexpr const char* kName = "all-reduce";

class ScratchFolder {
 public:
  ScratchFolder() {
    path_ = (std::filesystem::temp_directory_path() / "lockstep-doctor-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw MachineError(path_ + ": " + std::strerror(errno));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Plan two_real_ranks(const std::string& out_dir, const BuildIdentity& identity) {
  Plan plan = make_plan(parse_matrix(all_reduce_matrix(), "doctor", {}), out_dir, identity);
  std::erase_if(plan.runs, [](const PlannedRun& run) { return run.role != RunRole::cell; });
  LOCKSTEP_CHECK(plan.runs.size() == 1, "doctor's matrix has one cell with one seed");
  plan.runs.front().needs.clear();
  return plan;
}

/// Hashes of what the reductions gave a rank, by step, phase and name.
std::map<std::string, uint64_t> reduced_values(const std::string& path) {
  std::map<std::string, uint64_t> values;
  for (const StepRecords& step : read_trace(path).steps) {
    for (const Record& record : step.records) {
      if (record.phase != Phase::reduced_gradients && record.phase != Phase::parameters) continue;
      values[fmt::format("step {}, {}, {}", step.step, name_of(record.phase), record.name)] =
          record.stats.hash;
    }
  }
  return values;
}

std::string failure_text(const RankFailure& failure) {
  std::string text = std::string(to_word(failure.kind)) + ": " + failure.message;
  if (failure.rank >= 0) text = fmt::format("rank {} {}", failure.rank, text);
  if (!failure.last_lines.empty()) text += "; its last line: " + failure.last_lines.back();
  return text;
}

Check run_two_ranks(const std::string& rank_program) {
  const ScratchFolder scratch;
  const BuildIdentity identity = current_identity(rank_program, "doctor");
  const Plan plan = two_real_ranks(scratch.path(), identity);
  const double started = monotonic_s();
  LaunchOptions options;
  options.rank_program = rank_program;
  options.out_dir = scratch.path();
  options.jobs = 2;
  options.command_started = started;
  const LaunchReport report = launch(plan, options, identity);
  if (!report.failures.empty()) return {State::failed, kName, failure_text(report.failures.front())};
  const std::string wrong = disagreement_of_ranks(run_folder(scratch.path(), plan.runs.front().id));
  if (!wrong.empty()) return {State::failed, kName, wrong};
  return {State::ok, kName,
          fmt::format("2 real ranks on Gloo agree bit for bit over {} steps; {:.1f} s including start-up",
                      plan.matrix.cells.front().config.steps, monotonic_s() - started)};
}

}  // namespace

const char* all_reduce_matrix() {
  return R"(# Do two real ranks come out of an all-reduce with the same numbers?
name: doctor
trainer: energy
data: {source: synthetic}
steps: 2
seeds: 0
question: mechanism
ranks: real
certify_steps: 0
forced_steps: []
eval_every: 0
timeout_s: 20
reference: {layout: 1x4}
axes: {layout: [2x2]}
)";
}

std::string disagreement_of_ranks(const std::string& run_dir) {
  const auto of_rank_0 = reduced_values(run_dir + "/rank-0.trace");
  const auto of_rank_1 = reduced_values(run_dir + "/rank-1.trace");
  if (of_rank_0.empty()) return "the ranks reduced no value";
  for (const auto& [where, hash] : of_rank_0) {
    const auto found = of_rank_1.find(where);
    if (found == of_rank_1.end()) return where + ": missing on rank 1";
    if (found->second != hash) return where + ": ranks 0 and 1 have different values";
  }
  return of_rank_1.size() == of_rank_0.size() ? "" : "rank 1 has values that are missing on rank 0";
}

Check all_reduce_check(const std::string& rank_program) {
  try {
    return run_two_ranks(rank_program);
  } catch (const MachineError& error) {
    return {State::failed, kName, error.what()};
  } catch (const TraceError& error) {
    return {State::failed, kName, error.what()};
  }
}

}  // namespace lockstep
