#include "harness/verdict/causes/config_keys.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "harness/verdict/causes/rules.h"

namespace lockstep::causes {
namespace {

/// Phases as a set.
using Phases = uint32_t;
constexpr Phases set_of(std::initializer_list<Phase> phases) {
  Phases set = 0;
  for (const Phase phase : phases) set |= Phases{1} << static_cast<unsigned>(phase);
  return set;
}
constexpr bool holds(Phases set, Phase phase) { return (set >> static_cast<unsigned>(phase) & 1U) != 0; }

constexpr Phases kForward = set_of({Phase::scores, Phase::loss, Phase::local_gradients, Phase::collective,
                                    Phase::reduced_gradients, Phase::gradient_norm});
// Shapes of the model follow from those of the data.
constexpr Phases kOfData = kForward | set_of({Phase::samples, Phase::random, Phase::parameters, Phase::evaluation});
constexpr Phases kOfDraws = kForward | set_of({Phase::random});
constexpr Phases kOfRate = set_of({Phase::control, Phase::parameters, Phase::optimizer_state});
constexpr Phases kOfUpdate = set_of({Phase::parameters, Phase::optimizer_state, Phase::snapshot});
constexpr Phases kAll = ~Phases{0};

struct KeyPhases {
  std::string_view key;  ///< or the beginning of several, up to their dot
  Phases phases;         ///< in which it can first show
};
/// What is not listed, a trainer's own keys above all, may show anywhere.
constexpr auto kKeyPhases = std::to_array<KeyPhases>({
    {"data.", kOfData},
    {"layout", kOfData | kOfRate},
    {"steps", kOfRate | set_of({Phase::samples})},
    {"accumulation", kOfDraws},
    {"rank_seed", kOfDraws},
    {"precision", kForward | kOfUpdate},
    {"parameters.", kOfUpdate | kOfRate},
    {"optimizer", kOfUpdate},
    {"momentum", kOfUpdate},
    {"beta1", kOfUpdate},
    {"beta2", kOfUpdate},
    {"eps", kOfUpdate},
    {"weight_decay", kOfUpdate},
    {"clip_norm", kOfUpdate | set_of({Phase::applied_gradients, Phase::gradient_norm})},
    {"lr", kOfRate},
    {"lr_rule", kOfRate},
    {"lr_scale", kOfRate},
    {"schedule", kOfRate},
    {"warmup_steps", kOfRate},
    {"base_rate", kOfRate},
    {"global_batch", kOfData | kOfRate},
    {"watch.nan_guard", kOfUpdate},
    {"update", kOfUpdate | set_of({Phase::reduced_gradients, Phase::gradient_norm, Phase::applied_gradients})},
    {"average_decay", set_of({Phase::averaged_weights, Phase::snapshot})},
    {"auxiliary.weight", kForward | set_of({Phase::parameters})},
    {"activation_checkpointing", set_of({Phase::random, Phase::local_gradients, Phase::reduced_gradients})},
});

/// Nothing that acts on updates alone has acted before the first step.
bool fits(const std::string& key, const Difference& difference) {
  const auto is = [&](const KeyPhases& it) { return it.key.ends_with('.') ? key.starts_with(it.key) : key == it.key; };
  const auto found = std::ranges::find_if(kKeyPhases, is);
  const Phases phases = found == kKeyPhases.end() ? kAll : found->phases;
  return holds(phases, difference.phase) && (difference.divergence.step >= 0 || holds(phases, Phase::scores));
}

struct Consequence {
  std::string_view key, code;
};
/// Causes that say what a key does rather than that something else is wrong. Those of updates are closed forms that reproduce every
/// parameter.
constexpr auto kConsequences = std::to_array<Consequence>({
    {"lr_rule", "rate-scaled-linear"},
    {"lr_rule", "rate-scaled-sqrt"},
    {"parameters.weight_decay", "wrong-parameter-group"},
    {"parameters.weight_decay", "weight-decay-missing"},
    {"parameters.weight_decay", "parameter-not-updated"},
    {"parameters.rate_factor", "parameter-not-updated"},
    {"parameters.rate_factor", "wrong-parameter-group"},
    {"parameters.rate_factor", "rate-differs"},
    {"weight_decay", "weight-decay-missing"},
    {"weight_decay", "weight-decay-twice"},
    {"optimizer", "decay-coupled"},
    {"rank_seed", "same-stream-on-all-ranks"},
    {"rank_seed", "stream-keyed-by-rank"},
    {"negatives", "negatives-missing"},
    {"negatives", "local-negatives"},
    {"statistics", "local-advantage-statistics"},
    {"mask_duplicates", "duplicates-not-masked"},
});

}  // namespace

std::optional<Cause> by_config(const CauseInputs& inputs, const Cause& named) {
  std::vector<ConfigDifference> fitting;
  for (const ConfigDifference& it : inputs.config_differences) {
    // Another precision explains little of what has a name of its own, and micro-steps are a way of computing the same step.
    const bool is_a_way = it.key == "precision" || it.key == "accumulation";
    const bool of_any_trainer = !inputs.reference_config && !inputs.cell_config;
    // By their declarations the runs are compared: a mean with a sum over as many.
    if (of_any_trainer && it.key == "gradient_reduction") continue;
    const bool explains = !is_a_way || (named.confidence <= kGeneral && !(of_any_trainer && it.key == "accumulation"));
    if (explains && fits(it.key, inputs.difference)) fitting.push_back(it);
  }
  if (fitting.empty()) return std::nullopt;
  const bool is_meant = std::ranges::any_of(fitting, [&](const ConfigDifference& it) {
    return std::ranges::any_of(kConsequences,
                               [&](const Consequence& each) { return each.key == it.key && each.code == named.code; });
  });
  const std::string keys = "the configs differ in " + differences_text(fitting);
  if (is_meant) return Cause{named.code, named.confidence, fmt::format("{}; {}", named.evidence, keys), "", named.rank};
  const bool tells = named.code != "unexplained";
  return made("config-differs", kExact,
              fmt::format("{}, which can take effect first in {}{}", keys, inputs.difference.divergence.phase,
                          tells ? fmt::format("; it looks like {}: {}", named.code, named.evidence) : ""));
}

}  // namespace lockstep::causes
