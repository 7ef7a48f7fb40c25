#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/data/series.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"

// The energy trainer as programs without LibTorch know it.

namespace lockstep {

const TrainerSpec& energy_spec();

// The energy trainer's own settings.

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

/// Of a run of this trainer.
const EnergyConfig& energy(const RunConfig& config);
EnergyConfig& energy(RunConfig& config);

/// The part of a run's config that its pairs are made from.
struct PairConfig : DataConfig, WindowConfig {
  PairConfig() = default;
  PairConfig(const DataConfig& data, const WindowConfig& windows) : DataConfig(data), WindowConfig(windows) {}
};
PairConfig pair_config(const RunConfig& config);

// From series to standardised pairs of context and action chunk.

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

// Which candidates the loss takes where a config leaves the choice to a rule.

/// The candidates that the config's ranks take: its own, or what its rule makes of the layout.
///
/// `adaptive_as_written`, as people were told it: with one process or a local batch of 8 or more the rows of
/// the batch, gathered from all ranks if there are several and the local batch is 6 or more; else explicit
/// negatives. The 6 never decides anything, because only local batches of 8 or more get there: 6 and 7 go to
/// explicit negatives, and the objective depends on the layout.
///
/// `adaptive`, repaired: rows of all ranks if the global batch has 8 or more, else explicit negatives; every
/// layout of one global batch has the same objective.
///
/// A run with oracle_world = V stands for V ranks, so the rule sees their layout.
Negatives resolved_negatives(const RunConfig& config);

/// Has a row any candidate but its own? Else the loss is 0 and nothing is learnt.
bool has_negatives(const RunConfig& config);

/// Are candidates made for each row, from predictions of an action head, which then exists?
bool makes_negatives(const RunConfig& config);

// How many pairs of a row and a candidate the head takes at once.

/// Numbers that a head's pairs may keep for the backward pass; where they would be more, so many of a part. The same in each
/// precision, so that a twin takes its rows as its run does.
inline constexpr int64_t kKeptWhole = int64_t{1} << 23, kKeptAtOnce = int64_t{1} << 19;

/// Numbers that one pair keeps: what its candidate finds in the context, beside the candidate and times it, and its hidden layer.
constexpr int64_t numbers_of_pair(int64_t width, int64_t hidden, int64_t context_steps) {
  return 5 * width + 4 * hidden + 3 * context_steps;
}

/// Of a head's rows, how many are computed as one piece: all of them, as far as what their pairs keep is small.
constexpr int64_t rows_at_once(int64_t rows, int64_t candidates, int64_t of_pair) {
  const int64_t of_row = std::max<int64_t>(candidates * of_pair, 1);
  return rows * of_row <= kKeptWhole ? rows : std::max<int64_t>(kKeptAtOnce / of_row, 1);
}

}  // namespace lockstep
