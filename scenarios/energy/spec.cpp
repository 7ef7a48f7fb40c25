#include "scenarios/energy/spec.h"

#include <fmt/format.h>

#include "scenarios/energy/adaptive.h"
#include "scenarios/energy/checks.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/dataset.h"
#include "scenarios/energy/judging.h"
#include "scenarios/energy/pairs.h"

namespace lockstep {
namespace {

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
  return how_to_get_pairs(pair_config(config), part);
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


/// The settings of a cell's plain reference that replace the cell's own: candidates by name, and no tiles.
/// Where a row's candidates depend on nothing but the batch, every dealing of its rows means the same, and
/// one process holds them all.
void make_oracle(const RunConfig& cell, RunConfig& oracle) {
  EnergyConfig& own = energy(oracle);
  own.negatives = resolved_negatives(cell);
  own.tile_columns = EnergyConfig{}.tile_columns;
  if (own.negatives == Negatives::local || cell.accumulation != 1 || own.layer.as_written) return;
  oracle.oracle_world = 1;
  oracle.rows = RowDeal::equal;
}

std::string objective(const RunConfig& config) {
  const EnergyConfig& own = energy(config);
  return fmt::format("{} {}", own.loss, words_of(own.negatives)[static_cast<std::size_t>(own.negatives)]);
}

bool learns_nothing(const RunConfig& config) { return !has_negatives(config); }

/// The candidates that a rule chooses for a layout, in the words of claims.
std::string rule_gives(std::string_view rule, const Layout& layout) {
  if (rule != "adaptive" && rule != "adaptive_as_written") return "";
  RunConfig config(energy_spec());
  energy(config).negatives = rule == "adaptive" ? Negatives::adaptive : Negatives::adaptive_as_written;
  config.layout = layout;
  const Negatives taken = resolved_negatives(config);
  return taken == Negatives::local ? "local" : taken == Negatives::global ? "global" : "layer";
}

}  // namespace

const TrainerSpec& energy_spec() {
  static const TrainerSpec kSpec{
      .name = "energy",
      .help = "energy model of (context, action chunk) pairs, trained with in-batch swap InfoNCE",
      .naming_key = "negatives",
      .fields = &energy_fields,
      .section = &section,
      .problems = &energy_problems,
      .inspect_data = &inspect_data,
      .counted_samples = &counted_samples,
      .how_to_get_samples = &how_to_get_samples,
      .samples_word = "pairs",
      .parameters = &parameters,
      .usual_parameter = "energy_head.hidden.weight",
      .metrics = &metrics,
      .shown_metric = "accuracy_24",
      .make_oracle = &make_oracle,
      .objective = &objective,
      .learns_nothing = &learns_nothing,
      .rule_gives = &rule_gives,
      .other_objective = &energy_other_objective,
      .noise_scale_caveat = &energy_noise_scale_caveat,
      .rows_may_not_count = &energy_rows_may_not_count,
      .scores = energy_scores(),
  };
  return kSpec;
}

}  // namespace lockstep
