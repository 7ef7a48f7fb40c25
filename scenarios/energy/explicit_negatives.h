#pragma once
// Explicit negatives: actions near a row's own that are not it.
//
// B = rows, n = candidates of each, A = H * C values of an action chunk, H = its time steps.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/core/streams.h"
#include "harness/trainers/core/task.h"
#include "scenarios/energy/config.h"

namespace lockstep {

/// Layers of an action head of `layers` whose predictions are negatives: the config's, or 0, n/3, n/2 and n -
/// 2, each once and in that order. As written there are always four: with few layers they repeat, and -1 is
/// the last, as in Python.
std::vector<int64_t> negative_layers(const LayerNegativesConfig& config, int64_t layers);

/// The rows that candidates are made for.
struct NegativesInput {
  const RandomStreams& streams;
  int64_t step = 0;
  std::span<const int64_t> ids;  ///< [B]
  int64_t first_row = 0;         ///< where the first of them stands among this rank's rows
  int64_t action_steps = 1;      ///< H
};

/// Each row's first `count` of: the chosen layers' predictions; its own action with noise of standard
/// deviation 0.1, 0.2 and 0.4 (in standardised units); its own action with its time steps shuffled; its own
/// action with noise of 0.3, 0.4, … until there are enough.
///
/// Predictions are detached and draws keyed by sample, so that neither the layout nor the loss changes what
/// they are. As written they are not detached, one permutation serves the whole batch, and noise comes from a
/// stream keyed by the row's place, equal on all ranks.
class ExplicitNegatives {
 public:
  ExplicitNegatives(const RunConfig& config, const NegativesInput& input);
  /// own_BA [B, A], predictions: of every layer, [B, A] each -> [B, n, A]
  at::Tensor candidates(const at::Tensor& own_BA, const std::vector<at::Tensor>& predictions);
  /// "negative_noise" and "negative_shuffle", as far as `candidates` drew from them.
  const std::vector<StreamUse>& streams() const { return uses_; }

 private:
  std::vector<uint64_t> keys(Purpose purpose, bool one_for_all) const;
  at::Tensor shuffled(const at::Tensor& own_BA);

  const LayerNegativesConfig& config_;
  int64_t layers_;
  RandomStreams as_written_;
  const NegativesInput input_;
  std::vector<StreamUse> uses_;
};

}  // namespace lockstep
