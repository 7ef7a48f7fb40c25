// One factor on the loss and on every gradient, and the number of the run that is nearest to it.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "harness/verdict/causes/loss_evidence.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/causes/step_gradients.h"

namespace lockstep::causes {
namespace {

/// The factor, in phases loss and local gradients.
struct Scaled {
  double factor = 1;
  std::string text;
};

std::optional<Scaled> scaled_of(const CauseInputs& inputs) {
  const Phase phase = inputs.difference.phase;
  const auto gradients = gradients_of(inputs);
  if (!gradients || (phase != Phase::loss && phase != Phase::local_gradients)) return std::nullopt;
  double dot = 0, own = 0;
  for (const NamedTensor& expected : inputs.forced->reference.gradients) {
    const NamedTensor* actual = find_tensor(gradients->mean, expected.name);
    if (!actual && norm(expected.values) == 0) continue;
    if (!actual || actual->values.size() != expected.values.size()) return std::nullopt;
    dot += std::inner_product(expected.values.begin(), expected.values.end(), actual->values.begin(), 0.0);
    own += std::inner_product(expected.values.begin(), expected.values.end(), expected.values.begin(), 0.0);
  }
  const double factor = own > 0 ? dot / own : 1;
  if (!std::isfinite(factor) || std::abs(factor - 1) < 1e-4 || std::abs(factor) < 1e-9 || !gradients->signatures().all_fit(factor)) return std::nullopt;
  if (phase == Phase::loss && !loss_is(inputs, factor)) return std::nullopt;
  return Scaled{factor, fmt::format("{} {} times the reference's", phase == Phase::loss ? "loss and every gradient are" : "every gradient is",
                                    factor_text(factor, world_size_of(inputs)))};
}

bool is_factor(double factor, double value) { return std::abs(factor - value) <= 1e-4 * std::abs(value); }

/// Does a factor have a name of its own: the world size, the number of micro-steps, a sign?
bool has_a_name(const CauseInputs& inputs, double factor) {
  const double world = world_size_of(inputs), steps = static_cast<double>(inputs.cell_facts.accumulation);
  return is_factor(factor, world) || is_factor(factor, 1 / world) || is_factor(factor, -1) || (steps > 1 && is_factor(factor, steps));
}

/// The declared group of that many ranks; empty if there is none.
std::string group_of(const CauseInputs& inputs, double factor) {
  if (!inputs.cell || !inputs.cell->declared) return "";
  for (const auto& [name, ranks] : inputs.cell->declared->groups) {
    const auto size = static_cast<double>(ranks.size());
    if (ranks.size() > 1 && (is_factor(factor, size) || is_factor(factor, 1 / size))) return name;
  }
  return "";
}

std::optional<Cause> counted_over_wrong_group(const CauseInputs& inputs) {
  const auto scaled = scaled_of(inputs);
  if (!scaled || is_factor(scaled->factor, world_size_of(inputs)) || is_factor(scaled->factor, 1.0 / world_size_of(inputs))) return std::nullopt;
  const std::string group = group_of(inputs, scaled->factor);
  if (group.empty()) return std::nullopt;
  return made("counted-over-wrong-group", 0.95,
              fmt::format("{}: the number of ranks of the group \"{}\", over which counts were added up or not", scaled->text, group));
}

std::optional<Cause> normalised_by_another_window(const CauseInputs& inputs) {
  const auto scaled = scaled_of(inputs);
  const auto steps = inputs.cell_facts.accumulation;
  if (!scaled || steps < 2 || has_a_name(inputs, scaled->factor) || !group_of(inputs, scaled->factor).empty()) return std::nullopt;
  constexpr int64_t kMostSteps = 16;
  for (int64_t other = 2; other <= kMostSteps; ++other) {
    const double ratio = static_cast<double>(steps) / static_cast<double>(other);
    if (!is_factor(scaled->factor, ratio)) continue;
    return made("normalised-by-another-window", 0.9,
                fmt::format("{}: {}/{}, where a step has {} micro-steps: counts of one number of them, a division by another", scaled->text, steps, other, steps));
  }
  return std::nullopt;
}

/// "the tokens with padding over those without": which counts of rows make the factor; empty where none do.
std::string counts_behind(const CauseInputs& inputs, double factor) {
  double rows = 0, tokens = 0, padded = 0;
  for (const RankLoss& rank : inputs.forced->cell.losses) {
    rows += static_cast<double>(rank.row_losses.size());
    tokens = std::accumulate(rank.row_counts.begin(), rank.row_counts.end(), tokens);
    padded = std::accumulate(rank.row_widths.begin(), rank.row_widths.end(), padded);
  }
  const std::pair<std::string, double> counts[] = {{"rows", rows}, {"tokens", tokens}, {"tokens with padding", padded},
                                                   {"ranks", static_cast<double>(world_size_of(inputs))}};
  for (const auto& [over, above] : counts) {
    for (const auto& [under, below] : counts) {
      if (above > 0 && below > 0 && over != under && is_factor(factor, above / below))
        return fmt::format("{} {} over {} {}", above, over, below, under);
    }
  }
  return "";
}

std::optional<Cause> constant_factor(const CauseInputs& inputs) {
  const auto scaled = scaled_of(inputs);
  // Of gradients alone the sign has a rule of its own.
  if (scaled && inputs.difference.phase == Phase::loss && is_factor(scaled->factor, -1)) return made("sign-flipped", kExact, scaled->text);
  if (!scaled || has_a_name(inputs, scaled->factor)) return std::nullopt;
  const std::string counts = counts_behind(inputs, scaled->factor);
  return made("constant-factor", kGeneral + 0.1, scaled->text + (counts.empty() ? "" : ": " + counts));
}

constexpr Rule kFactorRules[] = {counted_over_wrong_group, normalised_by_another_window, constant_factor};

}  // namespace

std::span<const Rule> factor_rules() { return kFactorRules; }

}  // namespace lockstep::causes
