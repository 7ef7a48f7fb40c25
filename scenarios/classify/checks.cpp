#include <fmt/format.h>

#include "harness/lib/data/series_source.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/crops.h"
#include "scenarios/classify/spec.h"

namespace lockstep {
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
