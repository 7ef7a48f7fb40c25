#pragma once
// Where a run's series come from: BasicMotions, other `.ts` files, or the generator.

#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/lib/data/series.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

// Fixed by the archive's files: so many series of so many steps in each part.
inline constexpr int kBasicMotionsSeries = 40;
inline constexpr int kBasicMotionsSteps = 100;

/// Training and test series as they were read, with labels if their files have classes.
struct SourceSeries {
  SeriesSet train, test;
  std::string train_file, test_file;  ///< empty: generated
  std::string hash;                   ///< hex, of the very bytes that were read, or of the generator's parameters
};

/// Reads or generates. Throws ConfigError: a file that is missing or corrupt, parts of different dimensions.
SourceSeries load_series(const DataConfig& config);

/// SourceSeries::hash of generated series, without generating them.
std::string hash_of_generator(const DataConfig& config);

/// Settings with which the source synthetic cannot generate series.
std::vector<ConfigProblem> source_problems(const DataConfig& config);

/// "BasicMotions".
const char* title_of(DataSource source);

}  // namespace lockstep
