#include "harness/verdict/config/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/verdict/config/catalogue.h"

namespace lockstep {
namespace {

constexpr std::string_view kArea = "auc_", kMean = "train_";

bool has_samples(const MetricSpec& metric, const SampleCounts& samples) {
  return samples.test >= metric.test_samples && samples.holdout >= metric.holdout_samples;
}

std::string why_unmeasured(const MetricSpec& metric, const RunConfig& config) {
  if (metric.when != MetricSpec::When::step && config.eval_every.is_never()) return "is measured by evaluations, and eval_every is never";
  return metric.unmeasured == nullptr ? "" : metric.unmeasured(config);
}

const MetricSpec* find_in(const TrainerSpec& trainer, std::string_view name) {
  const auto metrics = trainer.metrics();
  const auto at = std::ranges::find(metrics, name, &MetricSpec::name);
  return at == metrics.end() ? nullptr : &*at;
}

/// The metric that a name is made from, and the prefix in front of it.
struct Source {
  const MetricSpec* metric = nullptr;
  std::string_view prefix;
};

Source source_of(const TrainerSpec& trainer, std::string_view metric) {
  if (const MetricSpec* whole = find_in(trainer, metric)) return {whole, ""};
  for (const std::string_view prefix : {kArea, kMean}) {
    if (metric.starts_with(prefix)) return {find_in(trainer, metric.substr(prefix.size())), prefix};
  }
  return {};
}

std::string help_of(const TrainerSpec& trainer, std::string_view name) {
  const Source source = source_of(trainer, name);
  if (source.prefix == kArea) return "area under its curve over the length";
  if (source.prefix != kMean) return std::string(source.metric->help);
  return fmt::format("mean of {} over the last 50 steps",
                     source.metric->name == "loss" ? "the loss" : source.metric->name);
}

/// Entries of all trainers' metrics; names that trainers share once.
struct Catalogue {
  std::vector<std::string> texts;
  std::vector<CatalogueEntry> entries;

  Catalogue() {
    std::vector<std::pair<std::string, std::string>> all;
    for (const TrainerSpec* trainer : trainer_specs()) {
      for (const std::string& name : outcome_metrics(*trainer)) {
        const auto known = [&name](const auto& each) { return each.first == name; };
        if (std::ranges::none_of(all, known)) all.emplace_back(name, help_of(*trainer, name));
      }
    }
    texts.reserve(2 * all.size());
    for (auto& [name, help] : all) {
      texts.push_back(std::move(name));
      texts.push_back(std::move(help));
      entries.push_back({texts[texts.size() - 2], texts.back()});
    }
  }
};

}  // namespace

const MetricSpec* find_metric(std::string_view name) {
  for (const TrainerSpec* trainer : trainer_specs()) {
    if (const MetricSpec* metric = find_in(*trainer, name)) return metric;
  }
  return nullptr;
}

std::span<const CatalogueEntry> catalogue_metrics() {
  static const Catalogue catalogue;
  return catalogue.entries;
}

std::vector<std::string> outcome_metrics(const TrainerSpec& trainer) {
  std::vector<std::string> names;
  const auto metrics = trainer.metrics();
  for (const MetricSpec& metric : metrics) {
    if (metric.when != MetricSpec::When::step) names.emplace_back(metric.name);
  }
  for (const MetricSpec& metric : metrics) {
    if (metric.has_area) names.push_back(fmt::format("{}{}", kArea, metric.name));
  }
  for (const MetricSpec& metric : metrics) {
    if (!metric.train_words.empty()) names.push_back(fmt::format("{}{}", kMean, metric.name));
  }
  return names;
}

std::string unmeasured(std::string_view metric, const RunConfig& config,
                       const std::optional<SampleCounts>& samples) {
  const TrainerSpec& trainer = spec_of(config);
  const Source source = source_of(trainer, metric);
  if (source.metric == nullptr) return "";
  const MetricSpec& measured = *source.metric;
  if (const std::string why = why_unmeasured(measured, config); !why.empty()) {
    return fmt::format("{} {}", metric, why);
  }
  if (source.prefix == kArea && config.eval_every.evaluations(config.steps) < 2) {
    return fmt::format(
        "{} is the area under a curve of two evaluations or more, and there is one: eval_every is {}, "
        "steps {}",
        metric, config.eval_every.steps(), config.steps);
  }
  if (!samples || has_samples(measured, *samples)) return "";
  const bool test = samples->test < measured.test_samples;
  const std::string_view part = test ? "test" : "held-out";
  return fmt::format("{} needs {} {} {}, and there are {}; {}", metric,
                     test ? measured.test_samples : measured.holdout_samples, part, trainer.samples_word,
                     test ? samples->test : samples->holdout, trainer.how_to_get_samples(config, part));
}

std::string too_few_samples(const RunConfig& config, const SampleCounts& samples) {
  // Without drop_last a step takes what is left, and the first samples again.
  const int64_t needed = config.data.drop_last ? config.layout.global_batch() : config.data.block;
  if (samples.train >= needed) return "";
  const TrainerSpec& trainer = spec_of(config);
  return fmt::format("{} training {} are fewer than the {} rows of a step; {}", samples.train, trainer.samples_word,
                     needed, trainer.how_to_get_samples(config, "training"));
}

}  // namespace lockstep
