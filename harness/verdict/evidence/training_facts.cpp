#include "harness/verdict/evidence/training_facts.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "harness/verdict/config/field.h"

namespace lockstep {
namespace {

std::optional<OptimizerKind> kind_of(std::string_view name) {
  if (name == "sgd") return OptimizerKind::sgd;
  if (name == "adam") return OptimizerKind::adam;
  if (name == "adamw") return OptimizerKind::adamw;
  return std::nullopt;
}

TrainingFacts of_declared(const Declared& declared, int world_size) {
  TrainingFacts facts;
  const auto kind = declared.optimizer ? kind_of(declared.optimizer->name) : std::nullopt;
  if (kind) {
    const DeclaredOptimizer& it = *declared.optimizer;
    facts.update =
        UpdateFacts{*kind, it.momentum, it.weight_decay, {it.beta1, it.beta2, it.eps}, declared.parameters};
  }
  facts.clip_norm = declared.clip_norm;
  facts.accumulation = declared.accumulation;
  facts.global_batch = declared.global_batch;
  const int64_t ranks = declared.replicas.empty() ? world_size : static_cast<int64_t>(declared.replicas[0].size());
  if (declared.global_batch > 0 && declared.global_batch % ranks == 0) {
    facts.rows_per_rank = declared.global_batch / ranks;
  }
  facts.declared_rate = declared.base_rate;
  if (declared.base_rate > 0) facts.other_rates = {declared.base_rate};
  facts.other_rates.push_back(1.0);
  // Half the distance of 1 from the next number.
  if (declared.precision == "bfloat16") facts.working_epsilon = 0x1p-8;
  if (declared.precision == "float16") facts.working_epsilon = 0x1p-11;
  return facts;
}

}  // namespace

double UpdateFacts::decay_of(std::string_view parameter) const {
  const DeclaredParameters* entry = entry_of(parameters, parameter);
  return entry ? entry->weight_decay.value_or(weight_decay) : weight_decay;
}

double UpdateFacts::rate_factor_of(std::string_view parameter) const {
  const DeclaredParameters* entry = entry_of(parameters, parameter);
  return entry ? entry->rate_factor : 1;
}

bool UpdateFacts::decays() const {
  return weight_decay > 0 || std::ranges::any_of(parameters, [](const DeclaredParameters& each) {
           return each.weight_decay.value_or(0) > 0;
         });
}

TrainingFacts training_facts(const RunConfig& config) {
  TrainingFacts facts;
  facts.update = UpdateFacts{config.optimizer, config.momentum, config.weight_decay, adam_numbers(config), {}};
  facts.clip_norm = config.clip_norm;
  facts.accumulation = config.accumulation;
  facts.rows_per_rank = config.layout.rows_per_rank;
  facts.global_batch = config.layout.global_batch();
  facts.other_rates = {config.lr, 1.0, config.lr * config.lr_scale};
  // Half the distance of 1 from the next number: eight significant bits.
  if (config.precision == Precision::bfloat16) facts.working_epsilon = 0x1p-8;
  return facts;
}

TrainingFacts training_facts(const RunConfig* config, const RunReader& run) {
  if (config) return training_facts(*config);
  const Declared* declared = run.header().declared.get();
  return declared ? of_declared(*declared, run.world_size()) : TrainingFacts{};
}

std::vector<ConfigDifference> declared_differences(const Declared* reference, const Declared* cell) {
  std::vector<ConfigDifference> differences;
  if (!reference || !cell) return differences;
  const auto add = [&](const char* key, const auto& a, const auto& b) {
    if (a != b) differences.push_back({key, fmt::format("{}", a), fmt::format("{}", b)});
  };
  if (reference->optimizer && cell->optimizer) {
    const DeclaredOptimizer &a = *reference->optimizer, &b = *cell->optimizer;
    add("optimizer", a.name, b.name);
    add("momentum", a.momentum, b.momentum);
    add("weight_decay", a.weight_decay, b.weight_decay);
    add("beta1", a.beta1, b.beta1);
    add("beta2", a.beta2, b.beta2);
    add("eps", a.eps, b.eps);
  }
  // 0 and an empty word: not declared.
  if (reference->clip_norm > 0 && cell->clip_norm > 0) add("clip_norm", reference->clip_norm, cell->clip_norm);
  if (reference->base_rate > 0 && cell->base_rate > 0) add("base_rate", reference->base_rate, cell->base_rate);
  if (reference->global_batch > 0 && cell->global_batch > 0) add("global_batch", reference->global_batch, cell->global_batch);
  if (!reference->precision.empty() && !cell->precision.empty()) add("precision", reference->precision, cell->precision);
  return differences;
}

TrainingFacts facts_to_meet(const TrainingFacts& reference, const TrainingFacts& cell, const ConfigPair& configs) {
  TrainingFacts facts = cell;
  if (configs.both_known()) {
    constexpr std::array<std::string_view, 7> kOfTheOptimizer{"optimizer", "momentum",     "beta1",    "beta2",
                                                              "eps",       "weight_decay", "clip_norm"};
    RunConfig meant = *configs.cell;
    for (const std::string_view key : kOfTheOptimizer) {
      if (std::ranges::find(configs.declared, key) != configs.declared.end()) continue;
      const RunField& field = *find_core_field(key);
      store(field.of(meant), load(field.of(*configs.reference)));
    }
    const TrainingFacts of_meant = training_facts(meant);
    facts.update = of_meant.update;
    facts.clip_norm = of_meant.clip_norm;
    return facts;
  }
  if (reference.update && cell.update) facts.update = reference.update;
  if (reference.clip_norm > 0 && cell.clip_norm > 0) facts.clip_norm = reference.clip_norm;
  return facts;
}

}  // namespace lockstep
