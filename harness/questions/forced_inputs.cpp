#include "harness/questions/forced_inputs.h"

#include <filesystem>
#include <stdexcept>

#include "harness/plan/question.h"

namespace lockstep {

ForcedInputs forced_inputs(const PlannedArms& arms, const PlannedRun& forced_cell, const SeedPair& first,
                           const std::function<std::string(const PlannedRun&)>& dir_of) {
  const Matrix& matrix = arms.plan().matrix;
  const std::string& kept = matrix.replay;
  ForcedInputs inputs;
  inputs.reference_free = kept.empty() ? dir_of(*first.reference) : std::filesystem::path(kept).parent_path().string();
  if (asked_by(matrix).trains && kept.empty()) inputs.cell_free = dir_of(*first.cell);
  inputs.forced_cell = dir_of(forced_cell);
  inputs.band = matrix.band;
  inputs.reference_config = &first.reference->config;
  inputs.cell_config = &first.cell->config;
  for (const PlannedRun& run : arms.plan().runs) {
    if (!run.config.forced.has_states_of(forced_cell.config.forced)) continue;
    if (run.config.layout != first.reference->config.layout) continue;
    if (run.role == RunRole::forced_repeat) inputs.forced_repeats.push_back(dir_of(run));
    if (run.role != RunRole::forced_reference) continue;
    inputs.forced_reference = dir_of(run);
    const PlannedRun *reference_twin = arms.twin_of(run), *cell_twin = arms.twin_of(forced_cell);
    if (!reference_twin || !cell_twin) continue;
    inputs.reference_twin = dir_of(*reference_twin);
    inputs.cell_twin = dir_of(*cell_twin);
  }
  if (inputs.forced_reference.empty()) {
    const ForcedConfig& forced = forced_cell.config.forced;
    throw std::runtime_error("the plan has no forced run of the reference at the snapshots of " +
                             (forced.from.empty() ? forced.kept_step : forced.from));
  }
  return inputs;
}

}  // namespace lockstep
