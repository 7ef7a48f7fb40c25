#include "harness/verdict/evidence/planned_arms.h"

#include <algorithm>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {

PlannedArms::PlannedArms(const Plan& plan) : plan_(plan) {
  for (const Cell& cell : plan.matrix.cells) cell_hashes_.emplace(cell.name, config_hash(as_it_runs(cell.config)));
}

std::vector<SeedPair> PlannedArms::pair_seeds(const Cell& cell) const {
  // A plan holds each distinct run once: a seed of a cell that equals its reference's is found by its hash.
  auto by_hash = [&](RunConfig config, int64_t seed) -> const PlannedRun* {
    config.seed = seed;
    const std::string hash = config_hash(as_it_runs(std::move(config)));
    const auto found = std::ranges::find_if(plan_.runs, [&](const PlannedRun& run) {
      return run.hash == hash && (run.role == RunRole::cell || run.role == RunRole::reference);
    });
    return found == plan_.runs.end() ? nullptr : &*found;
  };
  std::vector<SeedPair> pairs;
  for (int64_t seed : seeds_of(plan_.matrix, cell)) {
    SeedPair pair{seed, find_run(plan_, cell.name, RunRole::cell, seed),
                  find_run(plan_, cell.reference_name, RunRole::reference, seed)};
    // Of cells that do not train, gradients at the reference's weights are all that there is.
    if (!asked_by(plan_.matrix).trains || !plan_.matrix.replay.empty()) {
      pair.cell = single_run(cell, RunRole::forced_cell);
    } else if (!pair.cell) {
      pair.cell = by_hash(cell.config, seed);
    }
    if (!plan_.matrix.replay.empty()) {
      pair.reference = find_run(plan_, cell.reference_name, RunRole::forced_reference, seed);
    } else if (!pair.reference) {
      pair.reference = by_hash(cell.reference, seed);
    }
    pairs.push_back(pair);
  }
  return pairs;
}

const PlannedRun* PlannedArms::single_run(const Cell& cell, RunRole role) const {
  if (const PlannedRun* run = find_run(plan_, cell.name, role, cell.config.seed)) return run;
  const bool carried = role == RunRole::certify || role == RunRole::certify_forced;
  // A forced run is at one reference's snapshots, and a real prefix has one transport.
  const auto serves = [&](const Cell& other) {
    return cell_hashes_.at(other.name) == cell_hashes_.at(cell.name) &&
           (role != RunRole::forced_cell || same_config(as_it_runs(other.reference), as_it_runs(cell.reference))) &&
           (!carried || other.config.transport == cell.config.transport);
  };
  for (const Cell& other : plan_.matrix.cells) {
    if (other.name == cell.name || !serves(other)) continue;
    if (const PlannedRun* run = find_run(plan_, other.name, role, cell.config.seed)) return run;
  }
  return nullptr;
}

std::vector<const PlannedRun*> PlannedArms::forced_runs(const Cell& cell) const {
  std::vector<const PlannedRun*> runs;
  const PlannedRun* forced_cell = single_run(cell, RunRole::forced_cell);
  if (!forced_cell) return runs;
  const auto add = [&](const PlannedRun* run) {
    if (run && std::ranges::find(runs, run) == runs.end()) runs.push_back(run);
  };
  add(forced_cell);
  add(twin_of(*forced_cell));
  for (const PlannedRun& run : plan_.runs) {
    if (run.role != RunRole::forced_reference || !run.config.forced.has_states_of(forced_cell->config.forced)) continue;
    if (run.config.layout != cell.reference.layout) continue;
    add(&run);
    add(twin_of(run));
  }
  return runs;
}

const PlannedRun* PlannedArms::twin_of(const PlannedRun& forced) const {
  if (plan_.matrix.band.exact > 0) return nullptr;
  if (forced.config.precision == Precision::float64) return &forced;
  return run_of(twin_config(forced.config));
}

const PlannedRun* PlannedArms::run_of(const RunConfig& config) const {
  const auto found = std::ranges::find(plan_.runs, config_hash(as_it_runs(config)), &PlannedRun::hash);
  return found == plan_.runs.end() ? nullptr : &*found;
}

}  // namespace lockstep
