#pragma once
// The benchmarks of MLPerf Training and HPC: the names that their files give them, and what their rules ask of
// each.

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// What their rules say of a benchmark.
struct MlperfRules {
  std::string benchmark;
  int runs = 0;           ///< of a submission; a reference should have twice as many
  bool required = false;  ///< a submission with another number of runs is refused
  bool more_runs = false; ///< one with more is not: HPC's weak scaling
  int rejected = 1;       ///< from each end, by olympic scoring; and the most runs that may fail to converge
  double slack = 0;       ///< how much sooner than the least mean is still allowed: one interval of evaluation
  double alpha = 0.05;    ///< of the one-sided test
  bool prune = true;      ///< points that converge slower than the line between their neighbours are left out
  bool samples = false;   ///< runs are counted in samples_count, not in epoch_num
};

/// The rules of a benchmark that MLPerf knows, by any of its names: as in their tables for rules 5.0.0 and
/// later, and for benchmarks that ended before as in those of the last rules that had them.
std::optional<MlperfRules> mlperf_rules(std::string_view benchmark);

/// The name in their rules of a benchmark that their files also call otherwise: "stable_diffusion" of "sd".
/// Any other name is returned as it is.
std::string canonical_benchmark(std::string_view name);

/// Do reference points under this name hold steps where the rules count samples? Those of "sd" do: they are of
/// rules 3.1.0, which counted iterations; the same runs stand in those of 4.0.0 as steps times batch.
bool points_count_steps(std::string_view name);

/// What to tell of a name that their checker does not know: the nearest that it does, and what is assumed
/// instead. Empty for a known name, and for our own ("lockstep_<trainer>").
std::string unknown_benchmark_words(std::string_view name);

}  // namespace lockstep
