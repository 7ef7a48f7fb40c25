#pragma once
// Pairs of a run without LibTorch: what the trainer turns into tensors.

#include <memory>
#include <string>

#include "harness/verdict/config/trainer_spec.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/pair_cutter.h"
#include "scenarios/energy/windows.h"

namespace lockstep {

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
Dataset load_dataset(const PairConfig& config);

/// The pairs that load_dataset would give and Dataset::hash, without cutting a pair; files are read for it.
/// Throws ConfigError as it does.
DataFacts inspect_pairs(const PairConfig& config);

}  // namespace lockstep
