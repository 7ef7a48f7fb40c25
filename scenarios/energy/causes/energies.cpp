// Causes of wrong energies that rest on what the energy trainer's config says; those of any scores of candidates stand with the rules of
// any trainer.

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "harness/verdict/causes/score_evidence.h"
#include "scenarios/energy/causes/rules.h"
#include "scenarios/energy/config.h"

namespace lockstep::causes {
namespace {

std::optional<Cause> mask_ignored(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 2 || misses_scores(inputs) || !inputs.cell_config) return std::nullopt;
  if (energy(*inputs.cell_config).data.min_context >= energy(*inputs.cell_config).data.context_steps) return std::nullopt;
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  std::size_t whole = 0;
  std::set<int> ranks;
  for (const AlignedRow& row : rows) {
    const auto found = wrong.by_row.find(row.id);
    if (found == wrong.by_row.end()) continue;
    if (10 * found->second < 9 * row.columns.size()) return std::nullopt;
    ++whole;
    ranks.insert(row.rank);
  }
  // Padding is a matter of the sample: rows that differ stand beside rows that do not, on more than one rank.
  if (whole < 2 || whole == rows.size() || (world_size_of(inputs) > 1 && ranks.size() < 2))
    return std::nullopt;
  bool mixed = world_size_of(inputs) == 1;
  for (const auto& [rank, count] : wrong.by_rank) mixed = mixed || count < wrong.of_rank.at(rank);
  if (!mixed) return std::nullopt;
  return made(
      "mask-ignored", kFits,
      fmt::format("{} of {} rows differ in all their energies and the others in none; contexts of {} to {} "
                  "steps are padded",
                  whole, rows.size(), energy(*inputs.cell_config).data.min_context,
                  energy(*inputs.cell_config).data.context_steps));
}

constexpr Rule kEnergyScoreRules[] = {mask_ignored};

}  // namespace

std::span<const Rule> energy_value_rules() { return kEnergyScoreRules; }

}  // namespace lockstep::causes
