#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "harness/judge/causes/rules.h"
#include "losses/denominator.h"
#include "scenarios/causes.h"
#include "scenarios/classify/spec.h"

namespace lockstep {
namespace {

using namespace causes;

/// Groups of parameters by their place in the model; any other comes behind.
Role role_of(std::string_view group) {
  constexpr std::string_view kGroups[] = {"encoder", "norm", "mixer", "classes"};
  return static_cast<Role>(std::ranges::find(kGroups, group) - std::begin(kGroups));
}

/// Counts of each micro-step of a rank, and of all of them.
struct RankCounts {
  std::vector<LossCounts> micro_steps;
  LossCounts all;
};

RankCounts counts_of(const RunConfig& config, const std::vector<int64_t>& ids) {
  RankCounts counts;
  const auto rows = static_cast<int64_t>(ids.size());
  for (int64_t micro = 0; micro < config.accumulation; ++micro) {
    LossCounts own;
    for (int64_t row = micro * rows / config.accumulation; row < (micro + 1) * rows / config.accumulation; ++row) {
      own.rows += 1;
      own.valid_steps += keyed_crop_steps(config, CropPart::train, ids[static_cast<std::size_t>(row)]);
    }
    counts.all.rows += own.rows;
    counts.all.valid_steps += own.valid_steps;
    counts.micro_steps.push_back(own);
  }
  return counts;
}

/// A rank's loss if its sums were divided as `denominator` says.
double loss_with(const Denominator& denominator, const RankLoss& rank, const RankCounts& counts,
                 const LossCounts& all, int ranks) {
  const auto count = static_cast<int64_t>(rank.row_losses.size());
  const auto micro_steps = static_cast<int64_t>(counts.micro_steps.size());
  double loss = 0;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    double sum = 0;
    for (int64_t row = micro * count / micro_steps; row < (micro + 1) * count / micro_steps; ++row)
      sum += rank.row_losses[static_cast<std::size_t>(row)];
    loss += sum * loss_weight(denominator, {counts.micro_steps[static_cast<std::size_t>(micro)], counts.all, all, ranks,
                                            micro_steps});
  }
  return loss;
}

struct Ranks {
  std::vector<RankRows> rows;
  std::vector<RankCounts> counts;
  LossCounts all;
};

/// Does every rank's recorded loss follow the denominator?
bool follows(const CauseInputs& inputs, const Ranks& ranks, const Denominator& denominator) {
  const int world = static_cast<int>(ranks.rows.size());
  for (std::size_t rank = 0; rank < ranks.rows.size(); ++rank) {
    const RankLoss& own = ranks.rows[rank].rank;
    const double predicted = loss_with(denominator, own, ranks.counts[rank], ranks.all, world);
    if (!(std::abs(predicted - own.loss) <= world * inputs.forced->loss_band + 1e-12)) return false;
  }
  return true;
}

/// The fewest and the most that is counted where the scope counts.
std::pair<double, double> counted_between(const Ranks& ranks, const Denominator& denominator) {
  const auto of = [&](const LossCounts& counts) {
    return denominator.over == DenominatorOver::rows ? counts.rows : counts.valid_steps;
  };
  double fewest = std::numeric_limits<double>::infinity(), most = 0;
  const auto take = [&](const LossCounts& counts) {
    fewest = std::min(fewest, of(counts));
    most = std::max(most, of(counts));
  };
  for (const RankCounts& rank : ranks.counts) {
    if (denominator.scope == DenominatorScope::local) take(rank.all);
    for (const LossCounts& micro : rank.micro_steps)
      if (denominator.scope == DenominatorScope::micro) take(micro);
  }
  return {fewest, most};
}

/// Where micro-steps are recorded, the cause of any trainer (micro-steps-weighted-alike) says the same and more.
constexpr double kOfMicroSteps = kExact - 0.06;

/// Row losses are the reference's, and every rank's loss is their mean over its own step, or over its own
/// micro-steps, although these have unequal counts.
Answer mean_of_means(const CauseInputs& inputs) {
  Ranks ranks;
  ranks.rows = rows_that_agree(inputs);
  if (ranks.rows.empty() || !inputs.cell_config) return std::nullopt;
  for (const RankRows& rows : ranks.rows) {
    ranks.counts.push_back(counts_of(*inputs.cell_config, rows.rank.row_ids));
    ranks.all.rows += ranks.counts.back().all.rows;
    ranks.all.valid_steps += ranks.counts.back().all.valid_steps;
  }
  for (const DenominatorScope scope : {DenominatorScope::local, DenominatorScope::micro}) {
    for (const DenominatorOver over : {DenominatorOver::valid_steps, DenominatorOver::rows}) {
      const Denominator own{over, scope}, whole{over, DenominatorScope::global};
      const auto [fewest, most] = counted_between(ranks, own);
      if (fewest == most || !follows(inputs, ranks, own) || follows(inputs, ranks, whole)) continue;
      const char* what = over == DenominatorOver::rows ? "rows" : "valid time steps";
      const bool local = scope == DenominatorScope::local;
      return told(local ? kExact : kOfMicroSteps,
                  "row losses are the reference's, and each {}'s loss is their mean over its own {} ({} to {}): {}",
                  local ? "rank" : "micro-step", what, fewest, most, losses_text(inputs));
    }
  }
  return std::nullopt;
}

constexpr Hypothesis kHypotheses[] = {
    {"mean-of-means", kInLoss, kValues | kOurs, kExact, mean_of_means},
};

constexpr CausePage kPages[] = {
    {"batch-norm-local", "loss", "Each rank normalises features by the statistics of its own rows.",
     "row losses differ from the reference's, and the ranks normalised by different means",
     "model = DistributedDataParallel(model)  # with BatchNorm layers",
     "model = SyncBatchNorm.convert_sync_batchnorm(model)\nmodel = DistributedDataParallel(model)",
     "Share the statistics over ranks (SyncBatchNorm), or use a normalisation within one row.",
     "facebookresearch/moco#137, lightly-ai/lightly#18"},
};

std::span<const CausePage> pages() { return kPages; }

std::span<const Hypothesis> hypotheses() { return kHypotheses; }

}  // namespace

const TrainerRules& classify_cause_rules() {
  static constexpr TrainerRules kRules{.role_of = role_of, .hypotheses = hypotheses, .pages = pages};
  return kRules;
}

}  // namespace lockstep
