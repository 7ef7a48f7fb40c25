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
  const Declared nothing;
  const Declared &a = reference ? *reference : nothing, &b = cell ? *cell : nothing;
  std::vector<ConfigDifference> differences;
  // `none`: what stands where a header does not declare the key.
  const auto add = [&](const char* key, const auto& x, const auto& y, const auto& none) {
    const auto text = [&](const auto& value) { return value == none ? std::string(kNotDeclared) : fmt::format("{}", value); };
    if (x != y) differences.push_back({key, text(x), text(y)});
  };
  constexpr double kNone = -1;
  const auto of_optimizer = [&](const char* key, auto DeclaredOptimizer::*member, auto none) {
    add(key, a.optimizer ? (*a.optimizer).*member : none, b.optimizer ? (*b.optimizer).*member : none, none);
  };
  of_optimizer("optimizer", &DeclaredOptimizer::name, std::string());
  if (a.optimizer && b.optimizer) {
    of_optimizer("momentum", &DeclaredOptimizer::momentum, kNone);
    of_optimizer("weight_decay", &DeclaredOptimizer::weight_decay, kNone);
    of_optimizer("beta1", &DeclaredOptimizer::beta1, kNone);
    of_optimizer("beta2", &DeclaredOptimizer::beta2, kNone);
    of_optimizer("eps", &DeclaredOptimizer::eps, kNone);
  }
  add("clip_norm", a.clip_norm, b.clip_norm, 0.0);
  add("accumulation", a.accumulation, b.accumulation, int64_t{-1});
  add("base_rate", a.base_rate, b.base_rate, 0.0);
  add("average_decay", a.average_decay, b.average_decay, 0.0);
  add("global_batch", a.global_batch, b.global_batch, int64_t{0});
  add("precision", a.precision, b.precision, std::string());
  const auto reduction = [](const Declared& declared) { return declared.gradient_reduction.empty() ? std::string("mean") : declared.gradient_reduction; };
  add("gradient_reduction", reduction(a), reduction(b), std::string());
  for (const char* key : {"rate_factor", "weight_decay"}) {
    const auto text = [&, key](const Declared& declared) {
      std::string all;
      for (const DeclaredParameters& each : declared.parameters) {
        const bool rate = std::string_view(key) == "rate_factor";
        if (rate ? each.rate_factor != 1 : each.weight_decay.has_value())
          all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", each.prefix, rate ? each.rate_factor : *each.weight_decay);
      }
      // Who declares the optimizer and no group of its own has one setting for all.
      return all.empty() && a.optimizer && b.optimizer ? std::string("the optimizer's") : all;
    };
    add(fmt::format("parameters.{}", key).c_str(), text(a), text(b), std::string());
  }
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
