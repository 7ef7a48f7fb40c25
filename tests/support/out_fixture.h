#pragma once
// An output folder of a matrix that has run, without running one: results.json, and the runs' own files.

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/answer/results/words.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/plan.h"
#include "harness/run/run_folder.h"

namespace lockstep {

/// One seed: accuracy_24 by evaluation, the last of which is the end.
struct OutSeed {
  int64_t seed = 0;
  std::vector<double> accuracy;
};

struct OutCell {
  std::string name;
  RunConfig config;
  std::vector<OutSeed> seeds;
  bool is_reference = false;  ///< named as the reference of the cells, no cell itself
};

inline RunConfig out_config(int world_size, int rows) {
  RunConfig config;
  config.data.source = DataSource::synthetic;
  config.layout = {world_size, rows};
  config.steps = 100;
  config.eval_every = 25;
  return config;
}

/// Seeds 0, 1, ... whose last accuracies are these; on the way there 0.1, 0.2, 0.3.
inline std::vector<OutSeed> ending_at(const std::vector<double>& last) {
  std::vector<OutSeed> seeds;
  for (const double value : last)
    seeds.push_back({static_cast<int64_t>(seeds.size()), {0.1, 0.2, 0.3, value}});
  return seeds;
}

inline std::string run_id(const OutCell& cell, int64_t seed) {
  std::string id = cell.name + "-s" + std::to_string(seed);
  for (char& c : id) {
    if (c == ' ' || c == '=') c = '-';
  }
  return id;
}

inline void write_out_run(const std::string& out, const OutCell& cell, const OutSeed& seed) {
  PlannedRun run;
  run.id = run_id(cell, seed.seed);
  run.role = cell.is_reference ? RunRole::reference : RunRole::cell;
  run.cell = cell.name;
  run.config = cell.config;
  run.config.seed = seed.seed;
  run.hash = config_hash(run.config);
  const std::string dir = run_folder(out, run.id);
  prepare_run_folder(dir, run, {});
  for (int rank = 0; rank < run.config.layout.world_size; ++rank) {
    RankResult result;
    result.rank = rank;
    result.world_size = run.config.layout.world_size;
    result.status = "finished";
    result.steps_done = run.config.steps;
    result.train_seconds = 2;
    result.curves["loss"] = {{1}, {2.0}};
    if (rank == 0) {
      Series& curve = result.curves["accuracy_24"];
      for (std::size_t i = 0; i < seed.accuracy.size(); ++i) {
        curve.steps.push_back(run.config.eval_every.steps() * static_cast<int64_t>(i + 1));
        curve.values.push_back(seed.accuracy[i]);
      }
      result.metrics["accuracy_24"] = seed.accuracy.back();
    }
    write_rank_result(rank_result_path(dir, rank), result);
  }
}

/// `reference` is the reference of all cells, and may be one of them.
inline void write_out(const std::string& out, const std::vector<OutCell>& cells, const OutCell& reference,
                      const Primary& primary = {"accuracy_24", 0.03, 0.05, 0.4}) {
  Results results;
  results.name = "planted";
  results.question = "outcome";
  results.primary = primary;
  results.steps = reference.config.steps;
  for (const OutSeed& seed : reference.seeds) results.seeds.push_back(seed.seed);
  for (const OutCell& cell : cells) {
    CellResult result;
    result.scenario = cell.name;
    result.reference = reference.name;
    result.run = run_id(cell, cell.seeds.front().seed);
    result.reference_run = run_id(reference, reference.seeds.front().seed);
    result.outcome.emplace();
    for (const OutSeed& seed : cell.seeds) {
      result.outcome->seeds.push_back(seed.seed);
      result.outcome->differences.push_back(0);
    }
    results.cells.push_back(result);
    for (const OutSeed& seed : cell.seeds) write_out_run(out, cell, seed);
  }
  for (const OutSeed& seed : reference.seeds) write_out_run(out, reference, seed);
  std::filesystem::create_directories(out);
  std::ofstream(out + "/results.json", std::ios::binary) << results_to_json(results);
}

}  // namespace lockstep
