#include "scenarios/energy/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "scenarios/energy/adaptive.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/pairs.h"

namespace lockstep {
namespace {

using Found = std::vector<KeyProblem>;

void check_windows(const RunConfig& config, Found& found) {
  const PairConfig data = pair_config(config);
  if (data.min_context > data.context_steps) {
    found.emplace_back("data.min_context", fmt::format("data.min_context {} is longer than data.context_steps {}",
                                                       data.min_context, data.context_steps));
  }
  if (data.source == DataSource::ts_files) return;  // What the files hold is known when they are read.
  const bool synthetic = data.source == DataSource::synthetic;
  const int64_t window = static_cast<int64_t>(data.context_steps) + data.action_steps;
  if (const int64_t length = synthetic ? data.series_steps : kBasicMotionsSteps; window > length) {
    found.emplace_back("data.context_steps",
                       fmt::format("a context of {} and an action chunk of {} steps do not fit into series of {}",
                                   data.context_steps, data.action_steps, length));
  } else if (!counted_pairs(data)) {
    found.emplace_back("data.holdout_series",
                       fmt::format("{} of {} series held back leave none to train on", data.holdout_series,
                                   synthetic ? data.series : kBasicMotionsSeries));
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
                       "local negatives need at least 2 rows a rank: with one the loss is 0; say allow_no_negatives: true "
                       "if that is meant");
  }
}

void check_micro_steps(const RunConfig& config, Found& found) {
  const int64_t rows = meant_layout(config).rows_per_rank;
  if (config.accumulation == 1 || config.rows != RowDeal::equal || rows % config.accumulation != 0) return;
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
    found.emplace_back("loss", fmt::format("loss {} takes the rows of a batch alone: explicit negatives need infonce",
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

}  // namespace

std::vector<KeyProblem> energy_problems(const RunConfig& config, const CheckedFor& what) {
  Found found;
  check_windows(config, found);
  check_loss(config, what, found);
  check_explicit(config, found);
  check_micro_steps(config, found);
  check_draws(config, found);
  return found;
}

}  // namespace lockstep
