#include "harness/verdict/plan/drift.h"

#include <algorithm>

#include "harness/verdict/config/canonical.h"

namespace lockstep {
namespace {

void add_snapshots(RunConfig& config) {
  std::vector<int64_t>& kept = config.snapshot_steps;
  const std::vector<int64_t> more = drift_steps(config.steps);
  kept.insert(kept.end(), more.begin(), more.end());
  std::ranges::sort(kept);
  kept.erase(std::ranges::unique(kept).begin(), kept.end());
}

}  // namespace

bool rounds_alone(const Cell& cell) {
  if (cell.config.arithmetic == cell.reference.arithmetic) return false;
  RunConfig config = cell.config;
  config.arithmetic = cell.reference.arithmetic;
  return same_config(config, cell.reference);
}

std::vector<int64_t> drift_steps(int64_t steps) {
  std::vector<int64_t> at;
  for (int64_t decade = 1; decade < steps; decade *= 10) {
    for (const int64_t step : {decade, 2 * decade, 5 * decade}) {
      if (step < steps) at.push_back(step);
    }
  }
  if (steps > 1 && at.back() != steps - 1) at.push_back(steps - 1);
  return at;
}

void keep_drift_snapshots(std::vector<Cell>& cells) {
  std::vector<RunConfig> references;
  for (Cell& cell : cells) {
    if (!rounds_alone(cell)) continue;
    references.push_back(cell.reference);
    add_snapshots(cell.config);
  }
  for (Cell& cell : cells) {
    const auto same = [&cell](const RunConfig& reference) { return same_config(reference, cell.reference); };
    if (std::ranges::any_of(references, same)) add_snapshots(cell.reference);
  }
}

}  // namespace lockstep
