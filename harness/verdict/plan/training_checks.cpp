#include "harness/verdict/plan/training_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/verdict/config/learning_rate.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

using Found = std::vector<std::pair<std::string, std::string>>;

void check_rule(const RunConfig& config, Found& found) {
  if (config.lr_rule != LrRule::adam_sqrt) return;
  if (config.optimizer == OptimizerKind::sgd) {
    found.emplace_back("lr_rule", "lr_rule adam_sqrt scales Adam's betas and eps: optimizer sgd has none");
  } else if (!fits_adam_sqrt(config)) {
    found.emplace_back(
        "lr_rule", fmt::format("lr_rule adam_sqrt with {} ranks multiplies 1 - beta by {}, which leaves no "
                               "memory: beta1 {} and beta2 {} must exceed {:.4g}",
                               config.layout.world_size, config.layout.world_size, config.beta1, config.beta2,
                               1 - 1.0 / config.layout.world_size));
  }
}

void check_precision(const RunConfig& config, const QuestionPlan& asks, Found& found) {
  if (config.precision != Precision::bfloat16) return;
  if (asks.against_plain() || config.oracle_world > 0) {
    found.emplace_back("precision",
                       "a certificate compares with a float64 reference: bfloat16 rounds a thousand times "
                       "more coarsely than the differences it must detect");
  }
}

void check_row_order(const RunConfig& config, Found& found) {
  if (config.layout.rows_per_rank / config.accumulation < 2) {
    found.emplace_back("perturb", "perturb row_order: a single row per rank and micro-step has no other order");
  } else if (config.rank_seed != RankSeed::keyed) {
    found.emplace_back(
        "perturb",
        "perturb row_order changes only the order if draws are keyed by sample: it needs "
        "rank_seed keyed");
  }
}

void check_perturbation(const RunConfig& config, const QuestionPlan& asks, Found& found) {
  if (config.perturb == Perturbation::none) return;
  if (asks.against_plain() || config.oracle_world > 0) {
    found.emplace_back("perturb", "a certificate computes both sides from one state: remove perturb");
  } else if (config.perturb == Perturbation::row_order) {
    check_row_order(config, found);
  }
}

void check_arithmetic(const RunConfig& config, const QuestionPlan& asks, Found& found) {
  if (config.arithmetic != Arithmetic::exact) return;
  if (asks.against_plain() || config.oracle_world > 0) {
    found.emplace_back("arithmetic",
                       "a certificate's reference computes all rows at once: arithmetic: exact is not possible");
  } else if (config.forced.on()) {
    found.emplace_back("arithmetic", "forced steps compare whole shards of rows: arithmetic: exact is not possible");
  }
}

/// Weights alone: gradients and the optimizer's moments are as large again, each.
void check_size(const RunConfig& config, Found& found) {
  constexpr double kMost = 268435456;  // 2^28: 1 GiB in float32
  // Channels of other data are known when they are read; theirs are few beside those that a config can ask
  // for.
  const int64_t channels = config.data.source == DataSource::synthetic ? config.data.channels : 1;
  double elements = 0;
  for (const ModelParameter& parameter : spec_of(config).parameters(config, channels)) {
    double product = 1;
    for (const int64_t size : parameter.shape) product *= static_cast<double>(size);
    elements += product;
  }
  if (elements > kMost) {
    found.emplace_back("model.hidden", fmt::format("a model of {:.3g} weights: at most 2^28; they follow from model.* and data.*",
                                                   elements));
  }
}

void check_watch(const RunConfig& config, Found& found) {
  if (config.watch.nan_guard == NanGuard::skip && config.arithmetic == Arithmetic::exact) {
    found.emplace_back("watch.nan_guard", "exact arithmetic ends a run at the first row that is not finite: use stop");
  }
}

void check_sharded(const RunConfig& config, Found& found) {
  if (config.update != UpdatePartition::sharded) return;
  if (config.arithmetic == Arithmetic::exact) {
    found.emplace_back("update", "exact arithmetic sums every gradient on every rank: update sharded needs arithmetic native");
  } else if (config.checkpoint.on()) {
    found.emplace_back("update", "checkpoints are made of a whole optimizer state: update sharded cannot have checkpoint.every");
  }
}

void check_checkpoint(const RunConfig& config, Found& found) {
  if (!config.checkpoint.on()) {
    if (config.checkpoint.required) found.emplace_back("checkpoint.required", "checkpoint.required without checkpoint.every: the run saves nothing");
    return;
  }
  if (config.mutant.name != "none" || config.second_mutant.name != "none") {
    found.emplace_back("checkpoint.every",
                       "checkpoints do not contain the state of a planted fault: a cell with a mutant cannot have checkpoint.every");
  }
  const std::string& best = config.checkpoint.best;
  const auto metrics = spec_of(config).metrics();
  const bool evaluated = std::ranges::any_of(metrics, [&](const MetricSpec& metric) {
    return metric.name == best && metric.when == MetricSpec::When::evaluation && metric.higher_is_better;
  });
  if (!best.empty() && !evaluated) {
    found.emplace_back("checkpoint.best",
                       fmt::format("checkpoint.best {} is no metric of evaluations of which it is known whether higher "
                                   "is better; the trainer's own is {}",
                                   best, spec_of(config).shown_metric));
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> training_problems(const RunConfig& config,
                                                                   const QuestionPlan& asks) {
  Found found;
  check_rule(config, found);
  check_size(config, found);
  check_precision(config, asks, found);
  check_arithmetic(config, asks, found);
  check_perturbation(config, asks, found);
  check_checkpoint(config, found);
  check_watch(config, found);
  check_sharded(config, found);
  return found;
}

}  // namespace lockstep
