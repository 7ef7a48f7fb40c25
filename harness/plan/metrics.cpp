#include "harness/plan/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/config/catalogue.h"
#include "harness/plan/adaptive.h"

namespace lockstep {
namespace {

using When = MeasuredEntry::When;

constexpr int kFitted = 24;  // pairs that a temperature is fitted on

constexpr MeasuredEntry kEntries[] = {
    {"loss", "the step's loss", When::step},
    {"gradient_norm", "of the whole gradient, before it is clipped", When::step},
    {"learning_rate", "after rule, scale and schedule", When::step},
    {"loss_over_log_n", "loss over the logarithm of the number of candidates", When::step},
    {"energy_positive", "mean energy of the rows' own action chunks", When::step},
    {"energy_negative", "mean energy of the other candidates", When::step},
    {"energies_computed", "pairs that the head has seen", When::step},
    {"temperature", "learned", When::step},
    {"contrastive_loss", "without the error of the predictions", When::step, 0, 0, true},
    {"negatives_in_batch", "of each row", When::step, 0, 0, true},
    {"negatives_explicit", "of each row", When::step, 0, 0, true},
    {"chance_nats", "the loss of a guess", When::step, 0, 0, true},
    {"prediction_error", "of the action head's last layer", When::step, 0, 0, true},
    {"accuracy_24", "share of rows whose own action is the best of 24", When::evaluation, 24, 0, false, true},
    {"cross_entropy_24", "among 24 candidates, at the learned temperature", When::evaluation, 24, 0, false,
     true},
    {"accuracy_24_permuted_context", "accuracy_24 with another row's context", When::evaluation, 24, 0, true},
    {"fitted_temperature", "fitted on held-out pairs", When::end, 0, kFitted},
    {"accuracy_3", "share of rows whose own action is the best of 3", When::end, 3},
    {"cross_entropy_3", "among 3 candidates, at the learned temperature", When::end, 3},
    {"cross_entropy_3_fitted", "among 3 candidates, at the fitted temperature", When::end, 3, kFitted},
    {"cross_entropy_24_fitted", "among 24 candidates, at the fitted temperature", When::end, 24, kFitted},
    {"accuracy_256", "share of rows whose own action is the best of 256", When::end, 256},
    {"cross_entropy_256", "among 256 candidates, at the learned temperature", When::end, 256},
    {"cross_entropy_256_fitted", "among 256 candidates, at the fitted temperature", When::end, 256, kFitted},
};

// Of the training loss, made by the judge; of the process, said by its ranks.
constexpr std::string_view kOfLoss[] = {"train_loss", "train_loss_over_log_n"};
constexpr std::string_view kOfProcess[] = {"seconds", "activation_bytes", "resident_growth"};
constexpr std::string_view kArea = "auc_", kMean = "train_", kFirst = "first_";

bool has_pairs(const MeasuredEntry& entry, const PairCounts& pairs) {
  return pairs.test >= entry.test_pairs && pairs.holdout >= entry.holdout_pairs;
}

std::vector<std::string> names_of(const RunConfig& config, const PairCounts& pairs, bool curves) {
  std::vector<std::string> names;
  for (const MeasuredEntry& entry : kEntries) {
    const bool wanted = curves || entry.when != When::step;
    if (wanted && has_pairs(entry, pairs) && (!entry.made_negatives || makes_negatives(config))) {
      names.emplace_back(entry.name);
    }
  }
  return names;
}

/// The entry that a metric is taken from, and with what before its name.
struct Source {
  const MeasuredEntry* entry = nullptr;
  std::string_view prefix;
};

Source source_of(std::string_view metric) {
  const auto find = [](std::string_view name) {
    const auto at = std::find_if(std::begin(kEntries), std::end(kEntries),
                                 [name](const MeasuredEntry& entry) { return entry.name == name; });
    return at == std::end(kEntries) ? nullptr : &*at;
  };
  if (const MeasuredEntry* whole = find(metric)) return {whole, ""};
  for (const std::string_view prefix : {kArea, kMean, kFirst}) {
    if (metric.starts_with(prefix)) return {find(metric.substr(prefix.size())), prefix};
  }
  return {};
}

/// Points of a curve of evaluations.
int64_t evaluations_of(const RunConfig& config) {
  return config.eval_every > 0 ? (config.steps - 1) / config.eval_every + 1 : 1;
}

}  // namespace

std::span<const MeasuredEntry> measured_entries() { return kEntries; }

std::span<const CatalogueEntry> catalogue_metrics() {
  static const std::vector<std::string> names = outcome_metrics();
  static const std::vector<CatalogueEntry> entries = [] {
    std::vector<CatalogueEntry> out;
    for (const std::string& name : names) {
      const Source source = source_of(name);
      const std::string_view help = source.prefix == kArea ? "area under its curve over the length"
                                    : name == kOfLoss[0]   ? "mean of the loss over the last 50 steps"
                                    : name == kOfLoss[1]   ? "mean of loss_over_log_n over the last 50 steps"
                                                           : source.entry->help;
      out.push_back({name, help});
    }
    return out;
  }();
  return entries;
}

std::vector<std::string> metrics_written(const RunConfig& config, const PairCounts& pairs) {
  return names_of(config, pairs, false);
}

std::vector<std::string> curves_written(const RunConfig& config, const PairCounts& pairs) {
  return names_of(config, pairs, true);
}

std::vector<std::string> outcome_metrics() {
  std::vector<std::string> names;
  for (const MeasuredEntry& entry : kEntries) {
    if (entry.when != When::step) names.emplace_back(entry.name);
  }
  for (const MeasuredEntry& entry : kEntries) {
    if (entry.has_area) names.push_back(fmt::format("{}{}", kArea, entry.name));
  }
  names.insert(names.end(), std::begin(kOfLoss), std::end(kOfLoss));
  return names;
}

std::vector<std::string> claim_metrics() {
  std::vector<std::string> names = outcome_metrics();
  names.insert(names.end(), std::begin(kOfProcess), std::end(kOfProcess));
  for (const std::string_view prefix : {kMean, kFirst}) {
    for (const MeasuredEntry& entry : kEntries) {
      std::string name = fmt::format("{}{}", prefix, entry.name);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
  }
  return names;
}

std::vector<std::string> parts_of_metric(std::string_view metric) {
  constexpr std::string_view kMinus = " - ";
  const std::size_t minus = metric.find(kMinus);
  if (minus == std::string_view::npos) return {std::string(metric)};
  return {std::string(metric.substr(0, minus)), std::string(metric.substr(minus + kMinus.size()))};
}

std::string unmeasured(std::string_view metric, const RunConfig& config,
                       const std::optional<PairCounts>& pairs) {
  const Source source = source_of(metric);
  if (source.entry == nullptr) return "";
  const MeasuredEntry& entry = *source.entry;
  if (entry.made_negatives && !makes_negatives(config)) {
    return fmt::format("{} is measured where negatives are made, by negatives layer or mixed", metric);
  }
  if (source.prefix == kArea && evaluations_of(config) < 2) {
    return fmt::format(
        "{} is the area under a curve of two evaluations or more, and there is one: eval_every is {}, "
        "steps {}",
        metric, config.eval_every, config.steps);
  }
  if (!pairs || has_pairs(entry, *pairs)) return "";
  const bool test = pairs->test < entry.test_pairs;
  return fmt::format("{} needs {} {} pairs, and there are {}; {}", metric,
                     test ? entry.test_pairs : entry.holdout_pairs, test ? "test" : "held-out",
                     test ? pairs->test : pairs->holdout,
                     how_to_get_pairs(config.data, test ? "test" : "held-out"));
}

}  // namespace lockstep
