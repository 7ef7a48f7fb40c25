#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/data/series.h"
#include "harness/verdict/config/trainer_spec.h"
#include "scenarios/energy/config.h"

// From series to standardised pairs of context and action chunk.

namespace lockstep {

/// Context and action chunk of one pair.
struct Windows {
  int context_steps = 0, action_steps = 0, channels = 0;
  /// [pairs][context_steps][channels], standardised by the training part; front-padded with 0.
  std::vector<float> contexts;
  std::vector<uint8_t> context_mask;  ///< [pairs][context_steps], 1 = a real step
  std::vector<float> actions;         ///< [pairs][action_steps][channels]
  std::size_t size() const { return actions.size() / (static_cast<std::size_t>(action_steps) * channels); }
};

/// Which part of the data windows belong to; a part of the key of each context's length.
enum class WindowPart { train, holdout, test };

/// In [min_context, context_steps], by a hash of the part and the pair's index.
int keyed_context_length(const PairConfig& config, WindowPart part, int64_t pair);

// How many pairs of a context and an action chunk the data give, and how many a run needs.

/// Number of pairs that a series of `steps` steps gives.
int64_t pairs_of(int64_t steps, const PairConfig& config);

/// The pairs of BasicMotions, which has 40 series of 100 steps in each part, or of generated series. Nothing
/// for source ts_files, whose series are known only when they are read, and where no pair fits into a series.
std::optional<SampleCounts> counted_pairs(const PairConfig& config);

/// "more come with a smaller data.context_steps (16), …": which keys give more pairs, with their values.
/// `part`: "training", "test", "held-out".
std::string how_to_get_pairs(const PairConfig& config, std::string_view part);

// Pairs cut from their series one by one, whenever they are asked for.

/// The pairs of the chosen series in order: starts 0, stride, 2 * stride, … while a context and an action
/// chunk fit. Cutting a pair twice gives the same bits, and several threads may cut at once, since cutting
/// changes no state.
class PairCutter {
 public:
  PairCutter(std::shared_ptr<const SeriesSet> set, std::span<const int> chosen, ChannelScale scale,
             const PairConfig& config, WindowPart part);

  /// Makes the pairs of each block (config.block neighbours) alike: value = sqrt(rho) * the block's + sqrt(1
  /// - rho) * its own, where the block's is a pair of `shared`, which has the same shape and contexts of full
  /// length. Steps that are masked stay 0.
  void correlate_with(std::shared_ptr<const PairCutter> shared);

  int64_t size() const { return firsts_.back(); }
  /// Row r is pair pairs[r]: the last keyed_context_length(config, part, pair) steps of its context,
  /// standardised; the steps before have mask 0, value 0.
  Windows cut(std::span<const int64_t> pairs) const;
  Windows cut_all() const;

 private:
  void cut_row(int64_t pair, std::size_t row, Windows& windows) const;
  void correlate(std::span<const int64_t> pairs, Windows& windows) const;

  std::shared_ptr<const SeriesSet> set_;
  std::vector<int> chosen_;
  std::vector<int64_t> firsts_;  ///< pairs before each chosen series, and in all
  ChannelScale scale_;
  PairConfig config_;
  WindowPart part_;
  std::shared_ptr<const PairCutter> shared_;
};

// Pairs of a run without LibTorch: what the trainer turns into tensors.

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
