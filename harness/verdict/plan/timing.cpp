#include "harness/verdict/plan/timing.h"

#include <fmt/format.h>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/resumed.h"

namespace lockstep {

RunConfig timing_config(const Matrix& matrix, const Layout& layout) {
  RunConfig config = matrix.cells.empty() ? RunConfig{} : matrix.cells.front().reference;
  config.layout = layout;
  config.backend = layout.world_size > 1 ? Backend::gloo : Backend::emulated;
  config.steps = matrix.timing.steps;
  config.stop_after = 0;
  config.schedule = Schedule::constant;
  config.warmup_steps = 0;
  config.rows = RowPartition::equal;
  config.oracle_world = 0;
  config.perturb = Perturbation::none;
  config.trace = TraceLevel::off;
  config.snapshot_steps.clear();
  config.eval_every = EvaluationPeriod::never();
  config.checkpoint = CheckpointConfig{};
  begin_by_itself(config);
  config.forced = ForcedConfig{};
  config.mutant = config.second_mutant = MutantConfig{};
  return as_it_runs(std::move(config));
}

std::string timing_name(const Layout& layout) {
  return fmt::format("timing {}x{}", layout.world_size, layout.rows_per_rank);
}

std::vector<PlannedRun> timing_runs(const Matrix& matrix) {
  std::vector<PlannedRun> runs;
  for (int repeat = 0; repeat < matrix.timing.repeats; ++repeat) {
    for (const Layout& layout : matrix.timing.layouts) {
      PlannedRun run;
      run.role = RunRole::timing;
      run.cell = timing_name(layout);
      run.config = timing_config(matrix, layout);
      run.hash = config_hash(run.config);
      run.id = fmt::format("timing-{}x{}-{}-{}", layout.world_size, layout.rows_per_rank, repeat,
                           run.hash.substr(0, 8));
      run.exclusive = true;
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

}  // namespace lockstep
