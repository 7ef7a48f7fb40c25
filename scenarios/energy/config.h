#pragma once
// The energy trainer's own settings.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// Candidates of the loss: rows of this rank | rows of all ranks | explicit ones made from layers'
/// predictions and noise | rows of all ranks and explicit ones | chosen by layout, by a rule that keeps the
/// objective | by the rule as people were told it.
enum class Negatives { local, global, layer, mixed, adaptive, adaptive_as_written };

/// How pairs of a context and the action chunk that follows it are cut from series.
struct WindowConfig {
  int context_steps = 16;  ///< S, time steps of the context
  int action_steps = 8;    ///< H, time steps of the action chunk that follows it
  int stride = 2;          ///< every stride-th start is a pair
  int holdout_series = 4;  ///< training series kept back to fit the evaluation temperature
  int min_context = 16;    ///< contexts are cut (padded at the front) to a keyed length in [min_context, S]
  bool cache = true;       ///< pairs are cut and standardised once; else anew at each step
};

struct ModelConfig {
  int width = 32;         ///< D, of encodings
  int hidden = 64;        ///< W, of hidden layers
  int action_layers = 6;  ///< of the action head, which exists where explicit negatives need its predictions
};

/// Explicit negatives of each row: predictions of layers of the action head, noise on the true action, one
/// temporal shuffle, and filler noise up to `count`.
struct LayerNegativesConfig {
  int count = 8;
  std::vector<int64_t> layers;  ///< empty: 0, n/3, n/2 and n - 2 of n layers
  bool as_written = false;      ///< undetached predictions, one shuffle for the batch, noise keyed by rank
};

struct EnergyConfig {
  WindowConfig data;
  std::string loss = "infonce";
  Negatives negatives = Negatives::global;
  LayerNegativesConfig layer;
  ModelConfig model;
  int64_t tile_columns = 1000000;  ///< candidates whose energies are held at once
  bool mask_duplicates = false;    ///< candidates with the row's own sample id are no negatives
  double invalid_rows = 0;         ///< fraction of rows, keyed by sample, that do not count in the loss
  bool activation_checkpointing = false;  ///< activations are computed again in the backward pass, not kept
  bool running_stats = false;  ///< keep a running mean of energies: summed over ranks, broadcast by rank 0
  double temperature = 0.5;    ///< initial value of the learned temperature
  double dropout = 0.1;        ///< in the energy head
  double context_noise = 0.05; ///< standard deviation, in units of the standardised channels
};

WordList words_of(Negatives);

/// Its keys.
std::span<const RunField> energy_fields();

/// Of a run of this trainer.
const EnergyConfig& energy(const RunConfig& config);
EnergyConfig& energy(RunConfig& config);

/// The part of a run's config that its pairs are made from.
struct PairConfig : DataConfig, WindowConfig {
  PairConfig() = default;
  PairConfig(const DataConfig& data, const WindowConfig& windows) : DataConfig(data), WindowConfig(windows) {}
};
PairConfig pair_config(const RunConfig& config);

}  // namespace lockstep
