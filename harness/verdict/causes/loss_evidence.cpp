#include "harness/verdict/causes/loss_evidence.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "harness/verdict/compare/exact_runs.h"

namespace lockstep::causes {
namespace {

/// The reference's row losses by sample id, in the order in which its ranks have them.
std::map<int64_t, std::vector<double>> losses_by_sample(const ForcedValues& values) {
  std::map<int64_t, std::vector<double>> losses;
  for (const RankLoss& rank : values.losses) {
    for (std::size_t row = 0; row < rank.row_ids.size(); ++row) {
      losses[rank.row_ids[row]].push_back(rank.row_losses[row]);
    }
  }
  return losses;
}

/// What rounding explains of a row's loss, whose scores may differ by their band.
double tolerance_of(const ForcedEvidence& forced, const RankLoss& rank) {
  const double temperature = std::isfinite(rank.temperature) ? std::max(std::abs(rank.temperature), 1e-3) : 1;
  const double score = forced.reference.scores ? largest_score(*forced.reference.scores) : 0;
  double size = 1 + score / (temperature * temperature);
  for (const double loss : rank.row_losses) size = std::max(size, std::abs(loss));
  return 256 * forced.reference.epsilon * size + 2 * forced.score_band / temperature;
}

}  // namespace

bool loss_is(const CauseInputs& inputs, double factor) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced) return false;
  const auto &reference = inputs.forced->reference.loss, &cell = inputs.forced->cell.loss;
  if (!reference || !cell || std::abs(*reference) < 100 * inputs.forced->loss_band) return false;
  // A factor so near to 1 that rounding leaves it open explains nothing.
  constexpr double kTelling = 16;
  if (std::abs(factor - 1) * std::abs(*reference) <= kTelling * inputs.forced->loss_band) return false;
  return std::abs(*cell - factor * *reference) <= (1 + std::abs(factor)) * inputs.forced->loss_band;
}

std::string losses_text(const CauseInputs& inputs) {
  return fmt::format("loss {} where the reference has {}", short_number(inputs.forced->cell.loss.value_or(0)),
                     short_number(inputs.forced->reference.loss.value_or(0)));
}

std::vector<RankRows> rows_that_agree(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced) return {};
  const std::map<int64_t, std::vector<double>> known = losses_by_sample(inputs.forced->reference);
  std::map<int64_t, std::size_t> seen;
  std::vector<RankRows> ranks;
  bool any = false;
  const bool as_differentiated = both_exact(inputs.reference_config, inputs.cell_config);
  for (const RankLoss& rank : inputs.forced->cell.losses) {
    if (rank.row_ids.size() != rank.row_losses.size()) return {};
    const double tolerance = tolerance_of(*inputs.forced, rank);
    RankRows own{rank, {}};
    for (std::size_t row = 0; row < rank.row_ids.size(); ++row) {
      const auto found = known.find(rank.row_ids[row]);
      const std::size_t occurrence = seen[rank.row_ids[row]]++;
      if (found == known.end() || occurrence >= found->second.size()) return {};
      own.expected.push_back(found->second[occurrence]);
      if (as_differentiated || rank.row_losses[row] == 0) continue;
      any = true;
      if (!(std::abs(rank.row_losses[row] - own.expected.back()) <= tolerance)) return {};
    }
    if (as_differentiated) {
      const double sum = std::accumulate(rank.row_losses.begin(), rank.row_losses.end(), 0.0);
      own.rank.loss = sum * rank.row_weight * static_cast<double>(inputs.forced->cell.losses.size());
      own.rank.row_losses = own.expected;
      any = true;
    }
    ranks.push_back(std::move(own));
  }
  return any ? ranks : std::vector<RankRows>{};
}

}  // namespace lockstep::causes
