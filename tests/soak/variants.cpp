#include "tests/soak/variants.h"

#include <array>

#include "losses/loss.h"
#include "scenarios/energy/config.h"
#include "tests/support/mini_run.h"

namespace lockstep {
namespace {

constexpr int64_t kSteps = 3, kSnapshotStep = 1;

struct Kind {
  const char* name;
  Layout layout;
  Backend ranks;
};
constexpr std::array kKinds{Kind{"solo", {1, 12}, Backend::emulated},
                            Kind{"emulated", {3, 4}, Backend::emulated},
                            Kind{"real", {3, 4}, Backend::gloo}};

std::vector<std::pair<const char*, Negatives>> negatives_of(const std::string& loss) {
  std::vector<std::pair<const char*, Negatives>> all{{"global", Negatives::global},
                                                     {"local", Negatives::local}};
  if (loss == "infonce") {
    all.emplace_back("layer", Negatives::layer);
    all.emplace_back("mixed", Negatives::mixed);
  }
  return all;
}

/// What takes turns, by the variant's number.
void take_turns(RunConfig& config, std::size_t turn) {
  constexpr std::array kOptimizers{OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw};
  constexpr std::array kPartitions{RowPartition::equal, RowPartition::unequal, RowPartition::one_empty};
  config.optimizer = kOptimizers[turn % 3];
  config.momentum = config.optimizer == OptimizerKind::sgd ? 0.9 : 0.0;
  config.weight_decay = config.optimizer == OptimizerKind::adamw ? 0.05 : 0.0;
  config.clip_norm = turn % 2 == 0 ? 0.3 : 0.0;
  config.rows = config.layout.world_size > 1 ? kPartitions[turn / 3 % 3] : RowPartition::equal;
  config.accumulation = turn % 4 == 3 ? 2 : 1;
  energy(config).invalid_rows = turn % 5 == 4 ? 0.2 : 0.0;
  energy(config).activation_checkpointing = turn % 7 == 6;
  config.trace = turn % 2 == 0 ? TraceLevel::full : TraceLevel::stats;
}

}  // namespace

std::vector<Variant> soak_variants() {
  constexpr std::array kPrecisions{std::pair{"float32", Precision::float32},
                                   std::pair{"float64", Precision::float64},
                                   std::pair{"bfloat16", Precision::bfloat16}};
  std::vector<Variant> variants;
  std::size_t turn = 0;
  for (const LossEntry& loss : losses()) {
    for (const auto& [negatives_name, negatives] : negatives_of(std::string(loss.name))) {
      for (const auto& [precision_name, precision] : kPrecisions) {
        for (const Kind& kind : kKinds) {
          RunConfig config = mini_config();
          config.layout = kind.layout;
          config.backend = kind.ranks;
          energy(config).loss = loss.name;
          energy(config).negatives = negatives;
          config.precision = precision;
          config.data.series = 24;
          config.steps = kSteps;
          config.snapshot_steps = {kSnapshotStep};
          take_turns(config, turn);
          const std::string name =
              std::string(loss.name) + "-" + negatives_name + "-" + precision_name + "-" + kind.name;
          variants.push_back({name, config});
          config.snapshot_steps = {};
          config.forced = {"", {kSnapshotStep}, 0, {}};
          variants.push_back({name + "-forced", config, static_cast<int>(variants.size()) - 1});
        }
        ++turn;
      }
    }
  }
  return variants;
}

}  // namespace lockstep
