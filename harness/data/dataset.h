#pragma once
// Pairs of a run without LibTorch: what the trainer turns into tensors.

#include <memory>
#include <string>

#include "harness/config/run_config.h"
#include "harness/data/pair_cutter.h"
#include "harness/data/windows.h"
#include "harness/plan/pairs.h"

namespace lockstep {

/// What a planner asks of the data.
struct DataFacts {
  PairCounts pairs;
  std::string hash;  ///< Dataset::hash
};

/// Training, held-out (same recordings' part, other series) and test pairs of a run. Sample id = index of a
/// training pair.
struct Dataset {
  Windows train;  ///< empty, but with its shape, if data.cache is false
  Windows holdout, test;
  std::shared_ptr<const PairCutter> training_pairs;  ///< cuts any training pair anew, the same as in `train`
  std::string description;                           ///< "BasicMotions: 36 training series, 1404 pairs, …"
  std::string hash;  ///< hex, of the very bytes that were read, or of the generator's parameters
};

/// Throws ConfigError (missing or corrupt file, too few pairs).
Dataset load_dataset(const DataConfig& config);

/// The pairs that load_dataset would give and Dataset::hash, without cutting a pair; files are read for it.
/// Throws ConfigError as it does.
DataFacts inspect_data(const DataConfig& config);

}  // namespace lockstep
