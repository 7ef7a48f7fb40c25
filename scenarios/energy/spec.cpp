#include "scenarios/energy/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/data/series.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"
#include "scenarios/samples.h"

// The energy trainer's table: one line a key. A test counts the struct's members, so that none is forgotten here.

namespace lockstep {
namespace {

using namespace ranges;

std::vector<std::string_view> loss_names() {
  std::vector<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue_losses()) names.push_back(entry.name);
  return names;
}

// The member's own spelling is its key.
#define ENERGY(member, ...)                                                                  \
  {                                                                                          \
    {#member, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return ref_to(energy(c).member); } \
  }
const RunField kFields[] = {
    ENERGY(data.context_steps, kLength, "time steps", "length of the context"),
    ENERGY(data.action_steps, kLength, "time steps", "length of the action chunk that follows the context"),
    ENERGY(data.stride, kLength, "time steps", "every stride-th start in a series gives a pair"),
    ENERGY(data.holdout_series, up_to(1e6), "series",
        "training series held out, spread evenly over the set, to fit the evaluation temperature"),
    ENERGY(data.min_context, kLength, "time steps",
        "contexts keep a length from this to `data.context_steps`, drawn by the pair's index; the front is "
        "masked"),
    ENERGY(data.cache, kAny, "",
        "pairs are cut from their series and standardised once; `false`: again for the rows of each step, with "
        "the same bits"),
    ENERGY(loss, kAny, "", "form of the loss; `lockstep list losses` describes them", Words::any, Setter::user, &loss_names),
    ENERGY(negatives, kAny, "",
        "candidates of the loss: `local`, the rank's own rows; `global`, all ranks' rows; `layer`, explicit ones "
        "of each row; `mixed`, global and explicit; `adaptive` and `adaptive_as_written`, chosen by layout"),
    ENERGY(layer.count, up_to(4096), "negatives", "explicit negatives of each row"),
    ENERGY(layer.layers, Range{0, 255}, "",
        "layers of the action head whose predictions are explicit negatives; []: layers 0, n/3, n/2, n − 2; "
        "default `[]`"),
    ENERGY(layer.as_written, kAny, "",
           "explicit negatives as the published advice has them, mistakes included"),
    ENERGY(model.width, up_to(8192), "", "size of the encodings"),
    ENERGY(model.hidden, up_to(8192), "", "size of the hidden layers"),
    ENERGY(model.action_layers, up_to(256), "layers",
        "layers of the action head, which exists only where explicit negatives need it"),
    ENERGY(tile_columns, from(1), "candidates",
        "energies of this many candidates are held at once; with more candidates the loss takes two passes and "
        "gives the same gradient"),
    ENERGY(mask_duplicates, kAny, "", "candidates with the row's own sample id are not negatives"),
    ENERGY(invalid_rows, kFraction, "", "share of the rows, keyed by sample, that do not count in the loss"),
    ENERGY(activation_checkpointing, kAny, "",
        "context encoder, action encoder and head each keep only their inputs and compute again in the backward "
        "pass: the same bits with less memory (`activation_bytes` of a rank's result)"),
    ENERGY(running_stats, kAny, "",
        "keep a running mean of energies: a sum over ranks and a broadcast by rank 0 at each step"),
    ENERGY(temperature, kScale, "", "initial value of the learned temperature"),
    ENERGY(dropout, kFraction, "", "dropout probability in the energy head"),
    ENERGY(context_noise, kNotNegative, "standard deviations", "noise on the context's standardised channels"),
};
#undef ENERGY

std::span<const RunField> fields() { return kFields; }

}  // namespace

LOCKSTEP_WORDS(Negatives, adaptive_as_written, "local", "global", "layer", "mixed", "adaptive", "adaptive_as_written")

const EnergyConfig& energy(const RunConfig& config) { return own_settings<EnergyConfig>(config, "energy"); }
EnergyConfig& energy(RunConfig& config) { return own_settings<EnergyConfig>(config, "energy"); }

PairConfig pair_config(const RunConfig& config) { return {config.data, energy(config).data}; }

int keyed_context_length(const PairConfig& config, WindowPart part, int64_t pair) {
  constexpr uint64_t kContextLengthKey = 0x636f6e74657874;  // "context"
  const auto choices = static_cast<uint64_t>(config.context_steps - config.min_context + 1);
  return config.min_context + static_cast<int>(keyed(kContextLengthKey, part, pair) % choices);
}

int64_t pairs_of(int64_t steps, const PairConfig& config) {
  const int64_t spare = steps - config.context_steps - config.action_steps;
  return spare < 0 ? 0 : spare / config.stride + 1;
}

/// Pairs as samples of series.
static SampleCut pair_cut(const PairConfig& config) {
  return {"pairs", int64_t{config.context_steps} + config.action_steps, config.holdout_series,
          fmt::format("data.context_steps {} and data.action_steps {} do not fit", config.context_steps,
                      config.action_steps),
          [config](int64_t steps) { return pairs_of(steps, config); }};
}

std::optional<SampleCounts> counted_pairs(const PairConfig& config) {
  return counted_samples(config, pair_cut(config));
}

PairCutter::PairCutter(std::shared_ptr<const SeriesSet> set, std::span<const int> chosen, ChannelScale scale,
                       const PairConfig& config, WindowPart part)
    : set_(std::move(set)),
      chosen_(chosen.begin(), chosen.end()),
      scale_(std::move(scale)),
      config_(config),
      part_(part) {
  firsts_.push_back(0);
  for (const int index : chosen_) {
    firsts_.push_back(firsts_.back() + pairs_of(set_->steps_of(static_cast<std::size_t>(index)), config_));
  }
}

void PairCutter::correlate_with(std::shared_ptr<const PairCutter> shared) { shared_ = std::move(shared); }

Windows PairCutter::cut_all() const {
  std::vector<int64_t> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return cut(all);
}

Windows PairCutter::cut(std::span<const int64_t> pairs) const {
  const auto context_steps = static_cast<std::size_t>(config_.context_steps);
  const auto action_steps = static_cast<std::size_t>(config_.action_steps);
  const auto channels = static_cast<std::size_t>(set_->channels);
  Windows windows;
  windows.context_steps = config_.context_steps;
  windows.action_steps = config_.action_steps;
  windows.channels = set_->channels;
  windows.contexts.assign(pairs.size() * context_steps * channels, 0.0f);
  windows.context_mask.assign(pairs.size() * context_steps, 0);
  windows.actions.resize(pairs.size() * action_steps * channels);
  for (std::size_t row = 0; row < pairs.size(); ++row) cut_row(pairs[row], row, windows);
  if (shared_) correlate(pairs, windows);
  return windows;
}

void PairCutter::cut_row(int64_t pair, std::size_t row, Windows& windows) const {
  LOCKSTEP_CHECK(pair >= 0 && pair < size(), "there is no such pair");
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), pair);
  const auto place = static_cast<std::size_t>(after - firsts_.begin()) - 1;
  const std::vector<float>& series = set_->series[static_cast<std::size_t>(chosen_[place])];
  const auto context_steps = static_cast<std::size_t>(config_.context_steps);
  const auto action_steps = static_cast<std::size_t>(config_.action_steps);
  const auto channels = static_cast<std::size_t>(set_->channels);
  const std::size_t start = static_cast<std::size_t>((pair - firsts_[place]) * config_.stride) * channels;
  const auto standardise = [&](std::size_t first, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t channel = i % channels;  // `first` is the begin of a time step
      out[i] = static_cast<float>((series[start + first + i] - scale_.mean[channel]) / scale_.sd[channel]);
    }
  };
  const auto kept = static_cast<std::size_t>(keyed_context_length(config_, part_, pair));
  const std::size_t cut = context_steps - kept;
  standardise(cut * channels, kept * channels, &windows.contexts[(row * context_steps + cut) * channels]);
  std::fill_n(&windows.context_mask[row * context_steps + cut], kept, uint8_t{1});
  standardise(context_steps * channels, action_steps * channels,
              &windows.actions[row * action_steps * channels]);
}

void PairCutter::correlate(std::span<const int64_t> pairs, Windows& windows) const {
  constexpr uint64_t kBlockKey = 0x626c6f636b;  // "block"
  const auto of_block = static_cast<float>(std::sqrt(config_.correlation));
  const auto of_pair = static_cast<float>(std::sqrt(1.0 - config_.correlation));
  std::vector<int64_t> sources;
  for (const int64_t pair : pairs) {
    const uint64_t block = static_cast<uint64_t>(pair) / static_cast<uint64_t>(config_.block);
    sources.push_back(static_cast<int64_t>(keyed(kBlockKey, block) % static_cast<uint64_t>(shared_->size())));
  }
  const Windows shared = shared_->cut(sources);
  const auto channels = static_cast<std::size_t>(windows.channels);
  for (std::size_t i = 0; i < windows.contexts.size(); ++i) {
    if (windows.context_mask[i / channels] == 0) continue;
    windows.contexts[i] = of_block * shared.contexts[i] + of_pair * windows.contexts[i];
  }
  for (std::size_t i = 0; i < windows.actions.size(); ++i) {
    windows.actions[i] = of_block * shared.actions[i] + of_pair * windows.actions[i];
  }
}

namespace {

/// Cuts the pairs of a part. Where blocks are correlated, what a block shares comes from other series (those
/// of `shared_part`), from which no pair is made otherwise.
std::shared_ptr<PairCutter> cutter_of(const std::shared_ptr<const SeriesSet>& set,
                                      std::span<const int> chosen, const ChannelScale& scale,
                                      const PairConfig& config, WindowPart part, int shared_part) {
  auto cutter = std::make_shared<PairCutter>(set, chosen, scale, config, part);
  if (config.source == DataSource::synthetic && config.correlation > 0) {
    PairConfig whole = config;
    whole.min_context = config.context_steps;
    const auto series = std::make_shared<const SeriesSet>(synthetic_series(config, shared_part));
    const std::vector<int> all = all_of(*series);
    cutter->correlate_with(
        std::make_shared<PairCutter>(series, all, channel_scale(*series, all), whole, WindowPart::train));
  }
  return cutter;
}

}  // namespace

DataFacts inspect_pairs(const PairConfig& config) {
  if (config.source == DataSource::synthetic) return facts_of_generator(config, pair_cut(config));
  const SeriesParts parts = parts_of(load_series(config), pair_cut(config));
  return {parts.counts, parts.source.hash};
}

Dataset load_dataset(const PairConfig& config) {
  if (config.min_context > config.context_steps)
    throw ConfigError(fmt::format("data.min_context {} is longer than data.context_steps {}", config.min_context,
                                  config.context_steps));
  SeriesParts parts = parts_of(load_series(config), pair_cut(config));
  const ChannelScale scale = channel_scale(parts.source.train, parts.split.kept);
  Dataset dataset;
  dataset.hash = parts.source.hash;
  dataset.description = fmt::format("{}, context {}, action {}", parts.described(config.source, pair_cut(config)),
                                    config.context_steps, config.action_steps);
  const auto train_set = std::make_shared<const SeriesSet>(std::move(parts.source.train));
  const auto test_set = std::make_shared<const SeriesSet>(std::move(parts.source.test));
  const auto training = cutter_of(train_set, parts.split.kept, scale, config, WindowPart::train, 2);
  dataset.training_pairs = training;
  dataset.train = config.cache ? training->cut_all() : training->cut({});
  dataset.holdout =
      cutter_of(train_set, parts.split.held_out, scale, config, WindowPart::holdout, 3)->cut_all();
  dataset.test = cutter_of(test_set, parts.tested, scale, config, WindowPart::test, 4)->cut_all();
  return dataset;
}

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

namespace {

// What the judge asks beside causes: scores, and how far the theory of batch sizes holds.

/// Candidates of a row that come with the batch.
int64_t rows_as_candidates(const RunConfig& config) {
  const Negatives negatives = resolved_negatives(config);
  if (negatives == Negatives::layer) return 0;
  const int rows = negatives == Negatives::local ? config.layout.rows_per_rank : config.layout.global_batch();
  return rows / std::max<int64_t>(1, config.accumulation);
}

/// losses/hard.cpp.
int64_t taken_candidates(const RunConfig& config, int64_t candidates) {
  return energy(config).loss == "hard" ? std::max<int64_t>(1, candidates / 4) : 0;
}

/// Energies of a row over candidates, of which one is its own and the others are negatives.
ScoreSpec energy_scores() {
  return {.record = "energies", .column = "negative", .own_columns = 1, .buffers_are_means = true, .taken = &taken_candidates};
}

/// How the objective differs from the reference's: candidates that are rows of the batch change in number
/// with the batch, or with the rank's share of it. Empty if it does not.
std::string energy_other_objective(const RunConfig& config, const RunConfig& reference) {
  const int64_t own = rows_as_candidates(config), expected = rows_as_candidates(reference);
  if (own == expected && resolved_negatives(config) == resolved_negatives(reference)) return "";
  return fmt::format("a row has {} rows among its candidates where the reference has {}", own, expected);
}

/// Why the theory of the gradient noise scale does not hold for the run's candidates, or how far it does;
/// empty where each row's loss is its own.
std::string energy_noise_scale_caveat(const RunConfig& config) {
  const Negatives negatives = resolved_negatives(config);
  if (negatives == Negatives::global || negatives == Negatives::mixed) {
    return fmt::format(
        "The theory does not apply: rows are scored against the rows of all ranks, so a rank's gradient of "
        "its {} "
        "rows is not an estimate of the gradient of the objective with {} rows, and ranks are not independent.",
        config.layout.rows_per_rank, config.layout.global_batch());
  }
  if (negatives == Negatives::local) {
    const int64_t rows = config.layout.rows_per_rank / std::max<int64_t>(1, config.accumulation);
    return fmt::format(
        "Holds only for more or fewer {} of {} rows: these rows are each other's negatives, so a different "
        "number of them is a different objective.",
        config.accumulation > 1 ? "micro-steps" : "ranks", rows);
  }
  return energy(config).layer.as_written
             ? "Holds roughly: one shuffle serves all rows of a rank, and predictions are not detached."
             : "";
}

bool energy_rows_may_not_count(const RunConfig& config) { return energy(config).invalid_rows > 0; }

// Settings that cannot be trained, or that would change nothing.

using Found = std::vector<KeyProblem>;

void check_windows(const RunConfig& config, Found& found) {
  const PairConfig data = pair_config(config);
  if (data.min_context > data.context_steps) {
    found.emplace_back("data.min_context", fmt::format("data.min_context {} is longer than data.context_steps {}",
                                                       data.min_context, data.context_steps));
  }
  const std::optional<SeriesSize> size = size_of_parts(data);
  if (!size) return;  // What the files hold is known when they are read.
  if (int64_t{data.context_steps} + data.action_steps > size->steps) {
    found.emplace_back("data.context_steps",
                       fmt::format("a context of {} and an action chunk of {} steps do not fit into series of {}",
                                   data.context_steps, data.action_steps, size->steps));
  } else if (!counted_pairs(data)) {
    found.push_back(none_left(*size, pair_cut(data)));
  }
}

void check_loss(const RunConfig& config, const CheckedFor& what, Found& found) {
  if (what.allow_no_negatives) return;  // Then it is the point.
  const Layout layout = meant_layout(config);
  const bool local = resolved_negatives(config) == Negatives::local;
  if (layout.global_batch() < 2) {
    found.emplace_back("layout", "a batch of one row has no negatives: its loss is 0");
  } else if (local && layout.rows_per_rank < 2) {
    found.emplace_back("negatives",
                       "local negatives need at least 2 rows a rank: with one the loss is 0; set allow_no_negatives: true "
                       "if that is intended");
  }
}

void check_micro_steps(const RunConfig& config, Found& found) {
  const int64_t rows = meant_layout(config).rows_per_rank;
  if (config.accumulation == 1 || config.rows != RowPartition::equal || rows % config.accumulation != 0) return;
  if (rows / config.accumulation < 2 && resolved_negatives(config) == Negatives::local) {
    found.emplace_back("accumulation", "local negatives need at least 2 rows in a micro-step: with one the loss is 0");
  }
}

void check_explicit(const RunConfig& config, Found& found) {
  const EnergyConfig& own = energy(config);
  const LayerNegativesConfig& layer = own.layer;
  const int64_t layers = own.model.action_layers;
  const auto outside =
      std::find_if(layer.layers.begin(), layer.layers.end(), [&](int64_t each) { return each >= layers; });
  if (outside != layer.layers.end()) {
    found.emplace_back("layer.layers", fmt::format("layer.layers names layer {}; an action head of {} layers "
                                                   "has layers 0 to {}",
                                                   *outside, layers, layers - 1));
  }
  if (!makes_negatives(config)) return;
  if (own.loss != "infonce") {
    found.emplace_back("loss", fmt::format("loss {} uses only the rows of a batch: explicit negatives need infonce",
                                           own.loss));
  }
  if (static_cast<int64_t>(layer.layers.size()) > layer.count) {
    found.emplace_back("layer.count", fmt::format("{} layers are to predict negatives, but layer.count {} keeps fewer",
                                                  layer.layers.size(), layer.count));
  }
  if (layer.layers.empty() && layers < 2) {
    found.emplace_back("model.action_layers", "an action head of one layer has no layer n - 2: name layer.layers");
  }
}

void check_draws(const RunConfig& config, Found& found) {
  const EnergyConfig& own = energy(config);
  const bool made = makes_negatives(config);
  if (config.perturb == Perturbation::row_order && made && own.layer.as_written) {
    found.emplace_back("perturb",
                       "perturb row_order changes nothing but the order if draws are keyed by sample: those of "
                       "layer.as_written are keyed by a row's place");
  } else if (config.perturb == Perturbation::random_draws && own.dropout <= 0 && own.context_noise <= 0 && !made) {
    found.emplace_back("perturb", "perturb random_draws: without dropout, noise or made negatives nothing is drawn");
  }
}

std::vector<KeyProblem> energy_problems(const RunConfig& config, const CheckedFor& what) {
  Found found;
  check_windows(config, found);
  check_loss(config, what, found);
  check_explicit(config, found);
  check_micro_steps(config, found);
  check_draws(config, found);
  return found;
}

using When = MetricSpec::When;

std::string where_negatives_are_made(const RunConfig& config) {
  return makes_negatives(config) ? "" : "is measured where negatives are made, by negatives layer or mixed";
}

constexpr int kFitted = 24;  // pairs that a temperature is fitted on

constexpr MetricSpec kMetrics[] = {
    {.name = "loss", .help = "the step's loss", .higher_is_better = false, .train_words = "training loss"},
    {.name = "gradient_norm", .help = "of the whole gradient, before it is clipped"},
    {.name = "learning_rate", .help = "after rule, scale and schedule"},
    {.name = "loss_over_log_n", .help = "loss over the logarithm of the number of candidates",
     .higher_is_better = false, .chance = 1.0, .shown = true, .train_words = "training loss / log N"},
    {.name = "energy_positive", .help = "mean energy of the rows' own action chunks"},
    {.name = "energy_negative", .help = "mean energy of the other candidates"},
    {.name = "energies_computed", .help = "pairs that the head has seen"},
    {.name = "temperature", .help = "learned"},
    {.name = "contrastive_loss", .help = "without the error of the predictions",
     .unmeasured = &where_negatives_are_made},
    {.name = "negatives_in_batch", .help = "of each row", .unmeasured = &where_negatives_are_made},
    {.name = "negatives_explicit", .help = "of each row", .unmeasured = &where_negatives_are_made},
    {.name = "chance_nats", .help = "the loss of a guess", .unmeasured = &where_negatives_are_made},
    {.name = "prediction_error", .help = "of the action head's last layer",
     .unmeasured = &where_negatives_are_made},
    {.name = "accuracy_24", .help = "share of rows whose own action is the best of 24",
     .when = When::evaluation, .family = "accuracy", .way = "24", .higher_is_better = true, .chance = 1.0 / 24, .shown = true,
     .has_area = true, .test_samples = 24},
    {.name = "cross_entropy_24", .help = "among 24 candidates, at the learned temperature",
     .when = When::evaluation, .family = "cross-entropy", .way = "24", .qualifier = "raw", .higher_is_better = false,
     .has_area = true, .test_samples = 24},
    {.name = "accuracy_24_permuted_context", .help = "accuracy_24 with another row's context",
     .when = When::evaluation, .higher_is_better = true, .test_samples = 24,
     .unmeasured = &where_negatives_are_made},
    {.name = "fitted_temperature", .help = "fitted on held-out pairs", .when = When::end,
     .holdout_samples = kFitted},
    {.name = "accuracy_3", .help = "share of rows whose own action is the best of 3", .when = When::end,
     .family = "accuracy", .way = "3", .higher_is_better = true, .chance = 1.0 / 3, .test_samples = 3},
    {.name = "cross_entropy_3", .help = "among 3 candidates, at the learned temperature",
     .when = When::end, .family = "cross-entropy", .way = "3", .qualifier = "raw", .higher_is_better = false,
     .test_samples = 3},
    {.name = "cross_entropy_3_fitted", .help = "among 3 candidates, at the fitted temperature",
     .when = When::end, .family = "cross-entropy", .way = "3", .qualifier = "temperature-fitted",
     .higher_is_better = false, .test_samples = 3, .holdout_samples = kFitted},
    {.name = "cross_entropy_24_fitted", .help = "among 24 candidates, at the fitted temperature",
     .when = When::end, .family = "cross-entropy", .way = "24", .qualifier = "temperature-fitted",
     .higher_is_better = false, .test_samples = 24, .holdout_samples = kFitted},
    {.name = "accuracy_256", .help = "share of rows whose own action is the best of 256",
     .when = When::end, .family = "accuracy", .way = "256", .higher_is_better = true, .chance = 1.0 / 256, .test_samples = 256},
    {.name = "cross_entropy_256", .help = "among 256 candidates, at the learned temperature",
     .when = When::end, .family = "cross-entropy", .way = "256", .qualifier = "raw", .higher_is_better = false,
     .test_samples = 256},
    {.name = "cross_entropy_256_fitted", .help = "among 256 candidates, at the fitted temperature",
     .when = When::end, .family = "cross-entropy", .way = "256", .qualifier = "temperature-fitted",
     .higher_is_better = false, .test_samples = 256, .holdout_samples = kFitted},
};

std::span<const MetricSpec> metrics() { return kMetrics; }

std::any section() { return EnergyConfig{}; }

DataFacts inspect_data(const RunConfig& config) { return inspect_pairs(pair_config(config)); }

std::optional<SampleCounts> counted_samples(const RunConfig& config) { return counted_pairs(pair_config(config)); }

std::string how_to_get_samples(const RunConfig& config, std::string_view part) {
  const PairConfig data = pair_config(config);
  return how_to_cut_more(data, pair_cut(data),
                         fmt::format("data.context_steps ({}), data.action_steps ({}) or data.stride ({})",
                                     data.context_steps, data.action_steps, data.stride),
                         part);
}

std::vector<ModelParameter> parameters(const RunConfig& config, int64_t c) {
  const int64_t d = energy(config).model.width, w = energy(config).model.hidden;
  const int64_t s = energy(config).data.context_steps, a = energy(config).data.action_steps * c;
  std::vector<ModelParameter> parameters{{"context_encoder.in.weight", {d, c}},
                                         {"context_encoder.in.bias", {d}},
                                         {"context_encoder.place", {s, d}, false, true},
                                         {"context_encoder.out.weight", {d, d}},
                                         {"context_encoder.out.bias", {d}},
                                         {"context_encoder.summary_in.weight", {w, s * c}, false, true},
                                         {"context_encoder.summary_in.bias", {w}},
                                         {"context_encoder.summary_out.weight", {d, w}},
                                         {"action_encoder.in.weight", {w, a}},
                                         {"action_encoder.in.bias", {w}},
                                         {"action_encoder.out.weight", {d, w}},
                                         {"action_encoder.out.bias", {d}},
                                         {"energy_head.query.weight", {d, d}},
                                         {"energy_head.key.weight", {d, d}},
                                         {"energy_head.hidden.weight", {w, 3 * d}},
                                         {"energy_head.hidden.bias", {w}},
                                         {"energy_head.energy.weight", {1, w}},
                                         {"energy_head.energy.bias", {1}, true},
                                         {"temperature.log_tau", {}}};
  if (!makes_negatives(config)) return parameters;
  for (int layer = 0; layer < energy(config).model.action_layers; ++layer) {
    parameters.push_back({fmt::format("action_head.layer{}.weight", layer), {d, d}});
    parameters.push_back({fmt::format("action_head.layer{}.bias", layer), {d}});
  }
  parameters.push_back({"action_head.readout.weight", {a, d}});
  parameters.push_back({"action_head.readout.bias", {a}});
  return parameters;
}

RunCosts costs(const RunConfig& config) {
  const EnergyConfig& own = energy(config);
  const int64_t d = own.model.width, w = own.model.hidden, steps = own.data.context_steps;
  const int64_t rows = config.layout.rows_per_rank / std::max<int64_t>(config.accumulation, 1);
  const int64_t candidates = rows_as_candidates(config) + (makes_negatives(config) ? own.layer.count : 0);
  const double number = computed_precision(config) == Precision::float64 ? 8 : 4;
  const auto chunk = static_cast<double>(own.data.action_steps * config.data.channels);
  const auto pairs = static_cast<double>(rows * candidates), all = static_cast<double>(candidates);
  const int64_t of_pair = numbers_of_pair(d, w, steps);
  const bool alone = config.arithmetic == Arithmetic::exact;
  const int64_t at_once = alone ? 1 : rows_at_once(rows, candidates, of_pair);
  // A pair's products forward, and two of the same size backward; once more forward where parts are computed again.
  const double of_pair_flops = 2.0 * static_cast<double>(3 * d * w + 2 * steps * d);
  RunCosts costs;
  costs.step_flops = static_cast<double>(config.accumulation) * pairs * of_pair_flops * (at_once < rows ? 4 : 3);
  if (const auto counted = counted_samples(config)) {
    const auto samples = static_cast<double>(counted->train + counted->holdout + counted->test);
    costs.data_bytes = samples * 4 * (chunk + static_cast<double>(steps * config.data.channels));
    constexpr double kCurve = 24, kCandidates = 3 + kCurve + 256, kFitted = 24;
    const auto test = static_cast<double>(counted->test), holdout = static_cast<double>(counted->holdout);
    costs.evaluation_flops = of_pair_flops * (kCandidates * test + kFitted * holdout);
    costs.curve_flops = of_pair_flops * kCurve * test;
  }
  // Gathered candidates and what encodes them, with its gradients; scores, their softmax and gradients. A part's activations stay till
  // its gradient is there, of the same size.
  constexpr double kGathered = 4, kEncoded = 3, kScores = 8, kWithGradients = 2.5;
  costs.held_bytes = number * (all * (kGathered * chunk + kEncoded * static_cast<double>(d + w)) + pairs * kScores);
  costs.computing_bytes = number * (kWithGradients * static_cast<double>(at_once * of_pair) * all + all * static_cast<double>(d + 2 * w));
  return costs;
}

/// The settings of a cell's plain reference that replace the cell's own: candidates by name, and no tiles.
/// Where a row's candidates depend on nothing but the batch, every partitioning of its rows means the same, and
/// one process holds them all.
void make_oracle(const RunConfig& cell, RunConfig& oracle) {
  EnergyConfig& own = energy(oracle);
  own.negatives = resolved_negatives(cell);
  own.tile_columns = EnergyConfig{}.tile_columns;
  if (own.negatives == Negatives::local || cell.accumulation != 1 || own.layer.as_written) return;
  oracle.oracle_world = 1;
  oracle.rows = RowPartition::equal;
}

std::string objective(const RunConfig& config) {
  const EnergyConfig& own = energy(config);
  const auto word = [](Negatives negatives) { return words_of(negatives)[static_cast<std::size_t>(negatives)]; };
  const Negatives chosen = resolved_negatives(config);
  return fmt::format("{} {}{}", own.loss, word(own.negatives),
                     chosen == own.negatives ? "" : fmt::format(" ({})", word(chosen)));
}

bool learns_nothing(const RunConfig& config) { return !has_negatives(config); }

}  // namespace

const TrainerSpec& energy_spec() {
  static const TrainerSpec kSpec{
      .name = "energy",
      .help = "energy model of (context, action chunk) pairs, trained with in-batch swap InfoNCE",
      .naming_key = "negatives",
      .fields = &fields,
      .section = &section,
      .problems = &energy_problems,
      .inspect_data = &inspect_data,
      .counted_samples = &counted_samples,
      .how_to_get_samples = &how_to_get_samples,
      .samples_word = "pairs",
      .parameters = &parameters,
      .costs = &costs,
      .usual_parameter = "energy_head.hidden.weight",
      .metrics = &metrics,
      .shown_metric = "accuracy_24",
      .make_oracle = &make_oracle,
      .objective = &objective,
      .learns_nothing = &learns_nothing,
      .other_objective = &energy_other_objective,
      .noise_scale_caveat = &energy_noise_scale_caveat,
      .rows_may_not_count = &energy_rows_may_not_count,
      .scores = energy_scores(),
  };
  return kSpec;
}

}  // namespace lockstep
