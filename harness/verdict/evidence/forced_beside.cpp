#include "harness/verdict/evidence/forced_beside.h"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/verdict/config/canonical.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The folder that holds a run's folder, without links and dots.
fs::path home_of(const std::string& run_dir) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(run_dir, error);
  return (whole.has_filename() ? whole : whole.parent_path()).parent_path();
}

/// A run's settings without those that a plan changes for its forced run.
RunConfig without_forcing(RunConfig config) {
  config.forced = {};
  config.snapshot_steps.clear();
  config.eval_every = 0;
  return config;
}

/// Nothing where the folder is none of a finished run, or its run.json is damaged.
std::optional<RunConfig> finished_config(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir / "done", error)) return std::nullopt;
  try {
    const auto record = read_run_record(dir.string());
    return record ? std::optional(record->config) : std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

struct ForcedRun {
  std::string dir;
  RunConfig config;
};

std::vector<ForcedRun> forced_runs_in(const fs::path& home) {
  std::vector<ForcedRun> runs;
  std::error_code error;
  for (fs::directory_iterator at(home, error), end; !error && at != end; at.increment(error)) {
    std::optional<RunConfig> config = finished_config(at->path());
    if (config && config->forced.on()) runs.push_back({at->path().string(), std::move(*config)});
  }
  return runs;
}

/// Those that load the snapshots of the run of that id, of both configs. Nothing where one lacks.
std::optional<ForcedBeside> at_snapshots_of(const std::string& id, const std::vector<ForcedRun>& runs,
                                            RunConfig reference, RunConfig cell) {
  ForcedBeside found;
  for (const ForcedRun& run : runs) {
    if (run.config.forced.from != id) continue;
    reference.seed = cell.seed = found.seed = run.config.seed;
    const RunConfig plain = without_forcing(run.config);
    const bool of_reference = same_config(plain, reference), of_cell = same_config(plain, cell);
    if (run.config.forced.twin) {
      if (of_reference) found.reference_twin = run.dir;
      if (of_cell) found.cell_twin = run.dir;
      continue;
    }
    if (of_reference) found.reference = run.dir;
    if (of_cell) found.cell = run.dir;
  }
  if (found.reference.empty() || found.cell.empty()) return std::nullopt;
  if (reference.precision == Precision::float64) found.reference_twin = found.reference;
  if (cell.precision == Precision::float64) found.cell_twin = found.cell;
  return found;
}

}  // namespace

std::optional<ForcedBeside> forced_runs_beside(const std::string& reference_dir, const RunRecord& reference,
                                               const std::string& cell_dir, const RunRecord& cell) {
  const fs::path home = home_of(reference_dir);
  if (home != home_of(cell_dir) || reference.config.forced.on() || cell.config.forced.on()) return std::nullopt;
  const std::vector<ForcedRun> runs = forced_runs_in(home);
  std::set<std::string> others;
  for (const ForcedRun& run : runs) others.insert(run.config.forced.from);
  const RunConfig of_reference = without_forcing(reference.config), of_cell = without_forcing(cell.config);
  if (auto own = at_snapshots_of(reference.id, runs, of_reference, of_cell)) return own;
  for (const std::string& id : others) {
    if (auto other = at_snapshots_of(id, runs, of_reference, of_cell)) return other;
  }
  return std::nullopt;
}

}  // namespace lockstep
