// Mistakes of what a loss divides by.

#include <array>

#include "harness/jobs/orders/rewards/mutants.h"

namespace lockstep::rewards {
namespace {

template <class Factor>
void scale(WeightsSeam& seam, const Factor& factor) {
  for (std::size_t part = 0; part < seam.shown.micro.size(); ++part) seam.shown.micro[part].weight *= factor(part);
}

double world(const WeightsSeam& seam) { return seam.at.one.world; }

void without_world(WeightsSeam& seam) {
  scale(seam, [&](std::size_t) { return 1 / world(seam); });
}
void with_world_again(WeightsSeam& seam) {
  scale(seam, [&](std::size_t) { return world(seam); });
}

double sum(const ShownWeights& shown, int64_t ShownWeight::* count) {
  double all = 0;
  for (const ShownWeight& each : shown.micro) all += static_cast<double>(each.*count);
  return all;
}

void by_own_rows(WeightsSeam& seam) {
  const double rows = sum(seam.shown, &ShownWeight::rows);
  for (ShownWeight& each : seam.shown.micro) each.weight = 1 / rows;
}
void by_own_steps(WeightsSeam& seam) {
  const double steps = sum(seam.shown, &ShownWeight::valid_steps);
  for (ShownWeight& each : seam.shown.micro) each.weight = 1 / steps;
}
void by_micro_rows(WeightsSeam& seam) {
  const double parts = static_cast<double>(seam.shown.micro.size());
  for (ShownWeight& each : seam.shown.micro) each.weight = 1 / (parts * static_cast<double>(each.rows));
}
void accumulation_again(WeightsSeam& seam) {
  scale(seam, [&](std::size_t) { return 1 / static_cast<double>(seam.shown.micro.size()); });
}

/// Of all ranks.
double whole_count(const WeightsSeam& seam, int64_t Counts::* count) {
  double all = 0;
  for (const auto& rank : seam.partitioned.by_rank) {
    for (const Counts& each : rank) all += static_cast<double>(each.*count);
  }
  return all;
}

void rows_instead(WeightsSeam& seam) {
  for (ShownWeight& each : seam.shown.micro) each.weight = world(seam) / whole_count(seam, &Counts::rows);
}
void steps_instead(WeightsSeam& seam) {
  for (ShownWeight& each : seam.shown.micro) each.weight = world(seam) / whole_count(seam, &Counts::valid_steps);
}
void groups_instead(WeightsSeam& seam) {
  for (ShownWeight& each : seam.shown.micro) each.weight = world(seam) / static_cast<double>(seam.partitioned.groups);
}
void unfiltered(WeightsSeam& seam) {
  double parts = 0;
  for (const auto& rank : seam.partitioned.by_rank) parts += static_cast<double>(rank.size());
  const double filtered = static_cast<double>(seam.at.one.steps[static_cast<std::size_t>(seam.at.step)].filtered);
  for (ShownWeight& each : seam.shown.micro)
    each.weight = world(seam) / (whole_count(seam, &Counts::rows) + filtered * parts);
}

void of_steps(Case& one) { one.denominator = Denominator::valid_steps; }
void of_groups(Case& one) { one.denominator = Denominator::groups; }
void of_constant(Case& one) { one.denominator = Denominator::constant; }

constexpr Mutant row(std::string_view name, std::string_view cause, std::string_view help, void (*act)(WeightsSeam&),
                     void (*prepare)(Case&) = nullptr) {
  Mutant mutant{name, "weights", cause, help, 2, true, prepare};
  mutant.weights = act;
  return mutant;
}

constexpr std::array kWeightMutants{
    row("world_dropped", "world-dropped", "the number of ranks is left out of the weight", without_world),
    row("world_dropped_constant", "world-dropped", "a constant denominator, the number of ranks left out", without_world, of_constant),
    row("world_twice", "world-twice", "the number of ranks stands in the weight twice", with_world_again, of_groups),
    row("local_rows", "denominator-local", "each rank divides by its own rows", by_own_rows),
    row("local_steps", "denominator-local", "each rank divides by its own steps", by_own_steps, of_steps),
    row("micro_rows", "denominator-micro", "each micro-batch divides by its own rows", by_micro_rows),
    row("accumulation_twice", "accumulation-twice", "the number of micro-batches divides twice", accumulation_again),
    row("rows_for_steps", "rows-for-steps", "rows are counted where steps are meant", rows_instead, of_steps),
    row("steps_for_rows", "steps-for-rows", "steps are counted where rows are meant", steps_instead),
    row("groups_for_rows", "groups-for-rows", "groups are counted where rows are meant", groups_instead),
    row("filtered_counted", "counted-before-filter", "rows are counted before a filter takes some out", unfiltered),
};

}  // namespace

std::span<const Mutant> weight_mutants() { return kWeightMutants; }

}  // namespace lockstep::rewards
