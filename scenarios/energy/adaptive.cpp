#include "scenarios/energy/adaptive.h"

namespace lockstep {
namespace {

constexpr int kEnoughCandidates = 8;
constexpr int kEnoughToGather = 6;

Negatives as_written(const Layout& layout) {
  const bool one_process = layout.world_size == 1;
  if (!one_process && layout.rows_per_rank < kEnoughCandidates) return Negatives::layer;
  return !one_process && layout.rows_per_rank >= kEnoughToGather ? Negatives::global : Negatives::local;
}

}  // namespace

Negatives resolved_negatives(const RunConfig& config) {
  const Layout layout = meant_layout(config);
  switch (energy(config).negatives) {
    case Negatives::adaptive_as_written:
      return as_written(layout);
    case Negatives::adaptive:
      return layout.global_batch() >= kEnoughCandidates ? Negatives::global : Negatives::layer;
    default:
      return energy(config).negatives;
  }
}

bool has_negatives(const RunConfig& config) {
  const Layout layout = meant_layout(config);
  switch (resolved_negatives(config)) {
    case Negatives::local:
      return layout.rows_per_rank >= 2;
    case Negatives::global:
      return layout.global_batch() >= 2;
    default:
      return true;
  }
}

bool makes_negatives(const RunConfig& config) {
  const Negatives negatives = resolved_negatives(config);
  return negatives == Negatives::layer || negatives == Negatives::mixed;
}

}  // namespace lockstep
