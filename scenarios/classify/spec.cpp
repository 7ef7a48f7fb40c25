#include "scenarios/classify/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/data/series.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "scenarios/samples.h"

// The classifier's table: one line a key. A test counts the struct's members, so that none is forgotten here.

namespace lockstep {
namespace {

using namespace ranges;

// The member's own spelling is its key.
#define CLASSIFY(member, ...)                                                                    \
  {                                                                                              \
    {#member, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return ref_to(classify(c).member); } \
  }
const RunField kFields[] = {
    CLASSIFY(data.min_steps, kLength, "time steps", "fewest valid time steps of a row, keyed by its sample"),
    CLASSIFY(data.max_steps, kLength, "time steps",
             "most valid time steps of a row; shorter rows are padded at the end to this many"),
    CLASSIFY(data.stride, kLength, "time steps", "distance between neighbouring rows of a series"),
    CLASSIFY(data.holdout_series, Range{0, 1e6}, "series", "training series kept back and measured at the end"),
    CLASSIFY(model.width, up_to(8192), "", "features of a time step"),
    CLASSIFY(model.hidden, up_to(8192), "", "of the hidden layer"),
    CLASSIFY(denominator.over, kAny, "", "what is counted to divide the sum of losses, or a constant"),
    CLASSIFY(denominator.scope, kAny, "",
             "where it is counted: over all ranks and micro-steps; this rank's step; each micro-step"),
    CLASSIFY(denominator.constant, Range{0, 1e12}, "", "the divisor of denominator.over constant"),
    CLASSIFY(auxiliary.weight, kNotNegative, "",
             "weight of a second loss, the squared error of each time step's values as a head of its own reconstructs them from "
             "the hidden layer, divided as the cross-entropy is; 0: no second loss"),
    CLASSIFY(norm, kAny, "", "features are normalised by the statistics of this rank's rows, or of all ranks' rows"),
    CLASSIFY(label_smoothing, kFraction, "", "share of each target that is spread over all classes"),
    CLASSIFY(dropout, kFraction, "",
             "dropout probability in the hidden layer, for all time steps of a row at once"),
    CLASSIFY(activation_checkpointing, kAny, "",
             "the hidden layer keeps only its inputs and is computed again in the backward pass, with the same dropout: the "
             "same bits with less memory"),
};
#undef CLASSIFY

std::span<const RunField> fields() { return kFields; }

}  // namespace

LOCKSTEP_WORDS_BOTH_WAYS(NormKind, sync_batch, "none", "batch", "sync_batch")
LOCKSTEP_WORDS_BOTH_WAYS(DenominatorOver, constant, "valid_steps", "rows", "constant")
LOCKSTEP_WORDS_BOTH_WAYS(DenominatorScope, micro, "global", "local", "micro")

const ClassifyConfig& classify(const RunConfig& config) { return own_settings<ClassifyConfig>(config, "classify"); }
ClassifyConfig& classify(RunConfig& config) { return own_settings<ClassifyConfig>(config, "classify"); }

namespace {

constexpr uint64_t kStepsKey = 0x7374657073;   // "steps"
constexpr uint64_t kStartKey = 0x7374617274;   // "start"
constexpr int kBasicMotionsClasses = 4, kSyntheticClasses = 4;

/// Crops that a series of `steps` time steps gives.
int64_t crops_of(int64_t steps, const CropConfig& crops) {
  return steps < crops.min_steps ? 0 : std::max<int64_t>(steps - crops.max_steps, 0) / crops.stride + 1;
}

/// Crops as samples of series.
SampleCut crop_cut(const CropConfig& crops) {
  return {"rows", crops.max_steps, crops.holdout_series, fmt::format("data.min_steps {} does not fit", crops.min_steps),
          [crops](int64_t steps) { return crops_of(steps, crops); }};
}

std::vector<std::string> require_classes(const SourceSeries& series) {
  const auto refuse = [](const std::string& file, const std::string& message) {
    throw ConfigError({ConfigProblem{file, 0, 0, message, ""}});
  };
  for (const SeriesSet* set : {&series.train, &series.test}) {
    if (set->labels.size() == set->series.size()) continue;
    refuse(set == &series.train ? series.train_file : series.test_file,
           "its series have no classes: the trainer classify needs @classLabel true and a class behind each series");
  }
  const std::set<std::string> known(series.train.labels.begin(), series.train.labels.end());
  if (known.size() < 2) refuse(series.train_file, "all its series have one class: there is nothing to classify");
  for (const std::string& label : series.test.labels) {
    if (known.contains(label)) continue;
    refuse(series.test_file,
           fmt::format("has the class {}, which no series of {} has", in_quotes(label), series.train_file));
  }
  return {known.begin(), known.end()};
}

/// The classes of the training file, too.
SeriesParts load_parts(const RunConfig& config, std::vector<std::string>& classes) {
  const CropConfig& crops = classify(config).data;
  if (crops.min_steps > crops.max_steps)
    throw ConfigError(fmt::format("data.min_steps {} is longer than data.max_steps {}", crops.min_steps, crops.max_steps));
  SourceSeries series = load_series(config.data);
  classes = require_classes(series);
  return parts_of(std::move(series), crop_cut(crops));
}

/// Cuts crops of one part, one after the other.
class Cutter {
 public:
  Cutter(const RunConfig& config, const ChannelScale& scale, const std::vector<std::string>& classes)
      : config_(config), own_(classify(config).data), scale_(scale), classes_(classes) {}

  Crops cut(const SeriesSet& set, std::span<const int> chosen, CropPart part) const {
    Crops crops;
    crops.steps = own_.max_steps;
    crops.channels = set.channels;
    for (const int index : chosen) {
      const auto at = static_cast<std::size_t>(index);
      const auto label = std::lower_bound(classes_.begin(), classes_.end(), set.labels[at]);
      const int64_t count = crops_of(set.steps_of(at), own_);
      for (int64_t place = 0; place < count; ++place) {
        crops.labels.push_back(label - classes_.begin());
        crops.series.push_back(index);
        add_values(set.series[at], place, part, crops);
      }
    }
    return crops;
  }

 private:
  void add_values(const std::vector<float>& series, int64_t place, CropPart part, Crops& crops) const {
    const auto channels = static_cast<std::size_t>(crops.channels);
    const auto all_steps = static_cast<int64_t>(series.size() / channels);
    const int64_t crop = crops.size() - 1;
    const int64_t steps = std::min<int64_t>(keyed_crop_steps(config_, part, crop), all_steps);
    const auto shift =
        static_cast<int64_t>(keyed(kStartKey, part, crop) % static_cast<uint64_t>(own_.stride));
    const int64_t start = std::min(place * own_.stride + shift, all_steps - steps);
    crops.valid_steps.push_back(steps);
    const auto first = static_cast<std::size_t>(start) * channels;
    for (std::size_t i = 0; i < static_cast<std::size_t>(steps) * channels; ++i) {
      const std::size_t channel = i % channels;
      crops.values.push_back(
          static_cast<float>((series[first + i] - scale_.mean[channel]) / scale_.sd[channel]));
    }
    crops.values.resize(static_cast<std::size_t>(crops.size()) * static_cast<std::size_t>(crops.steps) * channels,
                        0.0F);
  }

  const RunConfig& config_;
  const CropConfig& own_;
  const ChannelScale& scale_;
  const std::vector<std::string>& classes_;
};

}  // namespace

int keyed_crop_steps(const RunConfig& config, CropPart part, int64_t crop) {
  const CropConfig& own = classify(config).data;
  const auto choices = static_cast<uint64_t>(own.max_steps - own.min_steps + 1);
  return own.min_steps + static_cast<int>(keyed(kStepsKey, part, crop) % choices);
}

CropDataset load_crops(const RunConfig& config) {
  CropDataset dataset;
  const SeriesParts parts = load_parts(config, dataset.classes);
  const ChannelScale scale = channel_scale(parts.source.train, parts.split.kept);
  const Cutter cutter(config, scale, dataset.classes);
  dataset.hash = parts.source.hash;
  dataset.train = cutter.cut(parts.source.train, parts.split.kept, CropPart::train);
  dataset.holdout = cutter.cut(parts.source.train, parts.split.held_out, CropPart::holdout);
  dataset.test = cutter.cut(parts.source.test, parts.tested, CropPart::test);
  const SampleCut cut = crop_cut(classify(config).data);
  dataset.description =
      fmt::format("{}, {} classes", parts.described(config.data.source, cut), dataset.classes.size());
  return dataset;
}

DataFacts inspect_crops(const RunConfig& config) {
  if (config.data.source != DataSource::synthetic) {
    std::vector<std::string> classes;
    const SeriesParts parts = load_parts(config, classes);
    return {parts.counts, parts.source.hash};
  }
  return facts_of_generator(config.data, crop_cut(classify(config).data));
}

std::optional<SampleCounts> counted_crops(const RunConfig& config) {
  const CropConfig& crops = classify(config).data;
  return crops.min_steps > crops.max_steps ? std::nullopt : counted_samples(config.data, crop_cut(crops));
}

int64_t classes_of(const RunConfig& config) {
  if (config.data.source == DataSource::basic_motions) return kBasicMotionsClasses;
  return config.data.source == DataSource::synthetic ? std::min(kSyntheticClasses, config.data.series) : 2;
}

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
  return how_to_cut_more(config.data, crop_cut(crops),
                         fmt::format("data.stride ({}) or data.max_steps ({})", crops.stride, crops.max_steps), part);
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

using Found = std::vector<KeyProblem>;

void check_crops(const RunConfig& config, Found& found) {
  const CropConfig& crops = classify(config).data;
  if (crops.min_steps > crops.max_steps) {
    found.emplace_back("data.min_steps", fmt::format("data.min_steps {} is more than data.max_steps {}", crops.min_steps,
                                                     crops.max_steps));
    return;
  }
  const std::optional<SeriesSize> size = size_of_parts(config.data);
  if (!size) return;  // What the files hold is known when they are read.
  if (crops.min_steps > size->steps) {
    found.emplace_back("data.min_steps",
                       fmt::format("rows of {} time steps do not fit into series of {}", crops.min_steps, size->steps));
  } else if (!counted_crops(config)) {
    found.push_back(none_left(*size, crop_cut(crops)));
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

std::vector<KeyProblem> problems(const RunConfig& config, const CheckedFor&) {
  Found found;
  check_crops(config, found);
  check_blocks(config, found);
  check_denominator(config, found);
  check_norm(config, found);
  check_draws(config, found);
  return found;
}

}  // namespace

const TrainerSpec& classify_spec() {
  static const TrainerSpec kSpec{
      .name = "classify",
      .help = "classifies every time step of rows of unequal length, trained with cross-entropy",
      .naming_key = "denominator.scope",
      .fields = &fields,
      .section = &section,
      .problems = &problems,
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

}  // namespace lockstep
