#pragma once
// Pairs cut from their series one by one, whenever they are asked for.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "harness/lib/data/series.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/windows.h"

namespace lockstep {

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

/// Pairs of the chosen series in order: starts 0, stride, 2 * stride, … while a context and an action chunk
/// fit. Pair i keeps the last keyed_context_length(config, part, i) steps of its context; the steps before
/// have mask 0, value 0.
Windows make_windows(const SeriesSet& set, std::span<const int> chosen, const ChannelScale& scale,
                     const PairConfig& config, WindowPart part);

}  // namespace lockstep
