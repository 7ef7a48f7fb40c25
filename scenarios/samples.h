#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/data/series.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"

// What trainers share whose samples are cut from series, and whose rows one process may hold for several ranks.

namespace lockstep {

struct SampleCut {
  std::string samples;        ///< "pairs"
  int64_t sample_steps = 1;   ///< time steps that a sample holds
  int holdout_series = 0;
  std::string unfit;          ///< "data.min_steps 8 does not fit": why a series may give none
  std::function<int64_t(int64_t steps)> samples_of;  ///< that a series of so many steps gives
};

/// Series, and which of them belong to which part.
struct SeriesParts {
  SourceSeries source;
  SeriesSplit split;
  std::vector<int> tested;  ///< all of the test series
  SampleCounts counts;
  /// "BasicMotions: 36 training series, 1404 pairs; 4 held out, …"
  std::string described(DataSource from, const SampleCut& cut) const;
};
/// Throws ConfigError if a part gives no sample, or more than can be held.
SeriesParts parts_of(SourceSeries source, const SampleCut& cut);

/// The same counts and hash of generated series, without generating them. Throws as parts_of does.
DataFacts facts_of_generator(const DataConfig& config, const SampleCut& cut);

/// How many series of how many steps each part has; nothing of source ts_files: those are known when they are read.
struct SeriesSize {
  int64_t series = 0, steps = 0;
};
std::optional<SeriesSize> size_of_parts(const DataConfig& config);
/// The counts as far as they follow from the config alone; nothing too where no sample fits into a series.
std::optional<SampleCounts> counted_samples(const DataConfig& config, const SampleCut& cut);
/// "more come with a smaller data.stride (4) …, or from files with more or longer series". `part`: "training", "test",
/// "held-out".
std::string how_to_cut_more(const DataConfig& config, const SampleCut& cut, const std::string& smaller,
                            std::string_view part);
/// What is wrong where counted_samples says nothing of a known size: a sample that does not fit is not looked at.
KeyProblem none_left(const SeriesSize& size, const SampleCut& cut);

/// All series of the set.
std::vector<int> all_of(const SeriesSet& set);

/// Where a row of the whole batch is taken among the `oracle_world` ranks that one process stands for.
struct PartitionedPlace {
  int rank = 0;
  int64_t micro_step = 0;
};
std::vector<PartitionedPlace> partitioned_places(const RunConfig& config, int64_t rows);

}  // namespace lockstep
