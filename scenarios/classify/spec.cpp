#include "scenarios/classify/spec.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/lib/data/series.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/crops.h"

namespace lockstep {
namespace {

using When = MetricSpec::When;

std::string where_features_are_normalised(const RunConfig& config) {
  return classify(config).norm != NormKind::none
             ? ""
             : "is measured where features are normalised, by norm batch or sync_batch";
}

/// What guessing one of so many classes gives.
double guessed_share(double classes) { return 1 / classes; }
double guessed_nats(double classes) { return std::log(classes); }

constexpr MetricSpec kMetrics[] = {
    {.name = "loss", .help = "the step's loss", .higher_is_better = false,
     .shown = true, .train_words = "training loss"},
    {.name = "gradient_norm", .help = "of the whole gradient, before it is clipped"},
    {.name = "learning_rate", .help = "after rule, scale and schedule"},
    {.name = "valid_steps", .help = "time steps that count, of the rank's rows of the step"},
    {.name = "loss_weight", .help = "what the sum of the rank's losses is multiplied by"},
    {.name = "norm_mean", .help = "length of the means that features were normalised by",
     .unmeasured = &where_features_are_normalised},
    {.name = "accuracy", .help = "share of test series whose class has the largest sum of log-probabilities",
     .when = When::evaluation, .higher_is_better = true, .chance_by = &guessed_share, .chance_metric = "classes",
     .shown = true, .has_area = true, .test_samples = 1},
    {.name = "step_accuracy", .help = "share of the test series' valid time steps whose class is the likeliest",
     .when = When::evaluation, .higher_is_better = true, .chance_by = &guessed_share, .chance_metric = "classes",
     .shown = true, .has_area = true, .test_samples = 1},
    {.name = "cross_entropy", .help = "mean over the test series' valid time steps, in nats, without smoothing",
     .when = When::evaluation, .higher_is_better = false, .chance_by = &guessed_nats, .chance_metric = "classes",
     .shown = true, .has_area = true, .test_samples = 1},
    {.name = "classes", .help = "of the data; chance follows from their number", .when = When::end},
    {.name = "holdout_step_accuracy", .help = "step_accuracy of the held-out series", .when = When::end,
     .higher_is_better = true, .chance_by = &guessed_share, .chance_metric = "classes", .holdout_samples = 1},
    {.name = "holdout_cross_entropy", .help = "cross_entropy of the held-out series", .when = When::end,
     .higher_is_better = false, .chance_by = &guessed_nats, .chance_metric = "classes", .holdout_samples = 1},
};

std::span<const MetricSpec> metrics() { return kMetrics; }

std::any section() { return ClassifyConfig{}; }

std::string how_to_get_samples(const RunConfig& config, std::string_view part) {
  const CropConfig& crops = classify(config).data;
  std::string text = fmt::format("more come with a smaller data.stride ({}) or data.max_steps ({})", crops.stride,
                                 crops.max_steps);
  if (part == "training") text += fmt::format(", with a smaller data.holdout_series ({})", crops.holdout_series);
  if (part == "held-out") text += fmt::format(", with a larger data.holdout_series ({})", crops.holdout_series);
  return text + (config.data.source == DataSource::synthetic
                     ? fmt::format(", or with more data.series ({}) of more data.series_steps ({})",
                                   config.data.series, config.data.series_steps)
                     : ", or from files with more or longer series");
}

std::vector<ModelParameter> parameters(const RunConfig& config, int64_t channels) {
  const ClassifyConfig& own = classify(config);
  const int64_t d = own.model.width, w = own.model.hidden, k = classes_of(config);
  std::vector<ModelParameter> parameters{{"encoder.weight", {d, channels * own.model.kWindow}}};
  if (own.norm == NormKind::none) {
    parameters.push_back({"encoder.bias", {d}});
  } else {
    parameters.push_back({"norm.weight", {d}});
    parameters.push_back({"norm.bias", {d}});
  }
  parameters.push_back({"mixer.weight", {w, 2 * d}});
  parameters.push_back({"mixer.bias", {w}});
  parameters.push_back({"classes.weight", {k, w}});
  parameters.push_back({"classes.bias", {k}});
  if (own.auxiliary.weight > 0) {
    parameters.push_back({"decoder.weight", {channels, w}});
    parameters.push_back({"decoder.bias", {channels}});
  }
  return parameters;
}

RunCosts costs(const RunConfig& config) {
  const ClassifyConfig& own = classify(config);
  const double d = own.model.width, w = own.model.hidden, k = static_cast<double>(classes_of(config));
  const double number = computed_precision(config) == Precision::float64 ? 8 : 4;
  const double steps = static_cast<double>(config.layout.rows_per_rank) * own.data.max_steps;
  const double window = static_cast<double>(config.data.channels) * ClassifierConfig::kWindow;
  const double decoded = own.auxiliary.weight > 0 ? config.data.channels : 0;
  const double of_step_flops = 2 * (window * d + 2 * d * w + w * k);
  RunCosts costs;
  constexpr double kPasses = 3, kWithGradients = 2.5;
  const double again = own.activation_checkpointing ? 2 * 2 * d * w : 0;
  costs.step_flops = steps * (kPasses * (of_step_flops + 2 * w * decoded) + again);
  costs.computing_bytes = kWithGradients * number * steps * (window + 5 * d + 4 * w + 3 * k);
  if (const auto counted = counted_crops(config)) {
    costs.data_bytes = 4.0 * static_cast<double>(counted->train + counted->holdout + counted->test) * own.data.max_steps * config.data.channels;
    costs.curve_flops = static_cast<double>(counted->test) * own.data.max_steps * of_step_flops;
    costs.evaluation_flops = static_cast<double>(counted->test + counted->holdout) * own.data.max_steps * of_step_flops;
  }
  return costs;
}

/// With a global denominator, and without statistics of a part of the rows, every partitioning of the rows means the
/// same: one process holds them all.
void make_oracle(const RunConfig& cell, RunConfig& oracle) {
  const ClassifyConfig& own = classify(cell);
  const bool partitioned_alike = own.norm == NormKind::none || (own.norm == NormKind::sync_batch && cell.accumulation == 1);
  if (own.denominator.scope != DenominatorScope::global || !partitioned_alike) return;
  oracle.oracle_world = 1;
  oracle.rows = RowPartition::equal;
  oracle.accumulation = 1;
}

std::string objective(const RunConfig& config) {
  const ClassifyConfig& own = classify(config);
  std::string text =
      fmt::format("cross_entropy {} {}", word_of(own.denominator.over), word_of(own.denominator.scope));
  if (own.auxiliary.weight > 0) text += fmt::format(", reconstruction times {}", own.auxiliary.weight);
  if (own.norm != NormKind::none) text += fmt::format(", {}", word_of(own.norm));
  return text;
}

const char* words_of_scope(DenominatorScope scope) {
  switch (scope) {
    case DenominatorScope::local:
      return "each rank's step";
    case DenominatorScope::micro:
      return "each micro-step";
    case DenominatorScope::global:
      break;
  }
  return "all ranks' step";
}

/// What a run's loss is divided by: "the valid_steps of each micro-step".
std::string divisor_of(const Denominator& denominator) {
  return fmt::format("the {} of {}", word_of(denominator.over), words_of_scope(denominator.scope));
}

std::string other_objective(const RunConfig& config, const RunConfig& reference) {
  const ClassifyConfig &own = classify(config), &others = classify(reference);
  const std::string divisor = divisor_of(own.denominator), wanted = divisor_of(others.denominator);
  if (divisor != wanted) return fmt::format("its loss is divided by {} instead of {}", divisor, wanted);
  if (own.norm != NormKind::batch || config.layout.rows_per_rank == reference.layout.rows_per_rank) return "";
  return fmt::format("features are normalised by the statistics of {} rows instead of {}", config.layout.rows_per_rank,
                     reference.layout.rows_per_rank);
}

std::string noise_scale_caveat(const RunConfig& config) {
  if (classify(config).norm == NormKind::none) return "";
  return "The theory does not apply: features are normalised by statistics of the batch, so rows are not independent.";
}

}  // namespace

const TrainerSpec& classify_spec() {
  static const TrainerSpec kSpec{
      .name = "classify",
      .help = "classifies every time step of rows of unequal length, trained with cross-entropy",
      .naming_key = "denominator.scope",
      .fields = &classify_fields,
      .section = &section,
      .problems = &classify_problems,
      .inspect_data = &inspect_crops,
      .counted_samples = &counted_crops,
      .how_to_get_samples = &how_to_get_samples,
      .samples_word = "rows",
      .parameters = &parameters,
      .costs = &costs,
      .usual_parameter = "mixer.weight",
      .metrics = &metrics,
      .shown_metric = "step_accuracy",
      .make_oracle = &make_oracle,
      .objective = &objective,
      .other_objective = &other_objective,
      .noise_scale_caveat = &noise_scale_caveat,
  };
  return kSpec;
}

namespace {

using Found = std::vector<KeyProblem>;

void check_crops(const RunConfig& config, Found& found) {
  const CropConfig& crops = classify(config).data;
  if (crops.min_steps > crops.max_steps) {
    found.emplace_back("data.min_steps", fmt::format("data.min_steps {} is more than data.max_steps {}", crops.min_steps,
                                                     crops.max_steps));
    return;
  }
  if (config.data.source == DataSource::ts_files) return;  // What the files hold is known when they are read.
  const bool synthetic = config.data.source == DataSource::synthetic;
  if (const int64_t length = synthetic ? config.data.series_steps : kBasicMotionsSteps; crops.min_steps > length) {
    found.emplace_back("data.min_steps",
                       fmt::format("rows of {} time steps do not fit into series of {}", crops.min_steps, length));
  } else if (!counted_crops(config)) {
    found.emplace_back("data.holdout_series",
                       fmt::format("{} of {} series held back leave none to train on", crops.holdout_series,
                                   synthetic ? config.data.series : kBasicMotionsSeries));
  }
}

void check_blocks(const RunConfig& config, Found& found) {
  if (config.data.correlation > 0) {
    found.emplace_back("data.correlation",
                       "data.correlation mixes the contents of rows, and a mixture has no class: the trainer classify needs 0");
  }
}

void check_denominator(const RunConfig& config, Found& found) {
  const Denominator& denominator = classify(config).denominator;
  const bool constant = denominator.over == DenominatorOver::constant;
  if (constant && denominator.constant <= 0) {
    found.emplace_back("denominator.constant", "denominator.over constant needs a denominator.constant above 0");
  } else if (!constant && denominator.constant > 0) {
    found.emplace_back("denominator.constant",
                       fmt::format("denominator.constant has no effect with denominator.over {}: it is for "
                                   "constant",
                                   word_of(denominator.over)));
  }
}

void check_norm(const RunConfig& config, Found& found) {
  if (config.arithmetic == Arithmetic::exact && classify(config).norm != NormKind::none) {
    found.emplace_back("norm", fmt::format("norm {} takes statistics over rows, which are then no sum over single rows: "
                                           "arithmetic exact needs norm none",
                                           word_of(classify(config).norm)));
    return;
  }
  if (classify(config).norm != NormKind::batch) return;
  const int ranks = config.oracle_world > 0 ? config.oracle_world : config.layout.world_size;
  const int64_t rows = config.layout.global_batch() / ranks / config.accumulation;
  if (rows < 2) {
    found.emplace_back("norm",
                       "norm batch with one row a rank and micro-step normalises each row by itself: take 2 or more rows, "
                       "or norm sync_batch");
  }
}

void check_draws(const RunConfig& config, Found& found) {
  if (config.perturb == Perturbation::random_draws && classify(config).dropout <= 0) {
    found.emplace_back("perturb", "perturb random_draws: without dropout nothing is drawn");
  }
}

}  // namespace

std::vector<KeyProblem> classify_problems(const RunConfig& config, const CheckedFor&) {
  Found found;
  check_crops(config, found);
  check_blocks(config, found);
  check_denominator(config, found);
  check_norm(config, found);
  check_draws(config, found);
  return found;
}

}  // namespace lockstep
