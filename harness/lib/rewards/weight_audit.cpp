#include "harness/lib/rewards/weight_audit.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

namespace lockstep::rewards {
namespace {

/// A place in a partition.
struct Spot {
  std::span<const ShownWeights> by_rank;
  const Partitioned& partitioned;
  const WeightOptions& options;
  int rank = 0, micro = 0;
  double expected = 0;

  double ranks() const { return static_cast<double>(by_rank.size()); }
  double parts() const { return static_cast<double>(by_rank[static_cast<std::size_t>(rank)].micro.size()); }
  double of(Denominator denominator, Scope scope) const { return weight_of(denominator, scope, partitioned, rank, micro); }
  bool declared(Denominator denominator) const { return options.denominator == denominator; }
};
using Predicted = std::optional<double>;

Predicted world_dropped(const Spot& spot) {
  return spot.options.scope == Scope::global && spot.ranks() > 1 ? Predicted(spot.expected / spot.ranks()) : Predicted{};
}
Predicted world_twice(const Spot& spot) {
  return spot.ranks() > 1 ? Predicted(spot.expected * spot.ranks()) : Predicted{};
}
Predicted local(const Spot& spot) {
  // A constant that every rank divides by is the batch's without the number of ranks, and is told as that.
  if (spot.options.scope == Scope::local || spot.ranks() == 1 || spot.declared(Denominator::constant)) return {};
  return spot.of(spot.options.denominator, Scope::local);
}
Predicted micro(const Spot& spot) {
  return spot.options.scope == Scope::micro || spot.parts() == 1 ? Predicted{} : spot.of(spot.options.denominator, Scope::micro);
}
Predicted accumulation_twice(const Spot& spot) {
  return spot.parts() > 1 ? Predicted(spot.expected / spot.parts()) : Predicted{};
}
Predicted rows_for_steps(const Spot& spot) {
  return spot.declared(Denominator::valid_steps) ? Predicted(spot.of(Denominator::rows, spot.options.scope)) : Predicted{};
}
Predicted steps_for_rows(const Spot& spot) {
  return spot.declared(Denominator::rows) ? Predicted(spot.of(Denominator::valid_steps, spot.options.scope)) : Predicted{};
}
Predicted groups_for_rows(const Spot& spot) {
  return spot.declared(Denominator::rows) ? Predicted(spot.of(Denominator::groups, spot.options.scope)) : Predicted{};
}
Predicted before_filter(const Spot& spot) {
  if (!spot.declared(Denominator::rows)) return {};
  Partitioned before = spot.partitioned;
  for (std::size_t rank = 0; rank < spot.by_rank.size(); ++rank) {
    for (std::size_t part = 0; part < spot.by_rank[rank].micro.size(); ++part)
      before.by_rank[rank][part].rows = spot.by_rank[rank].micro[part].rows_before_filter;
  }
  return weight_of(Denominator::rows, spot.options.scope, before, spot.rank, spot.micro);
}

struct WeightQuestion {
  const char* code;
  Predicted (*predict)(const Spot& spot);
};
constexpr WeightQuestion kWeightQuestions[] = {
    {"world-dropped", world_dropped},   {"world-twice", world_twice},       {"denominator-local", local},
    {"denominator-micro", micro},       {"accumulation-twice", accumulation_twice},
    {"rows-for-steps", rows_for_steps}, {"steps-for-rows", steps_for_rows}, {"groups-for-rows", groups_for_rows},
    {"counted-before-filter", before_filter},
};

bool close(double a, double b) { return std::abs(a - b) <= 8 * 0x1p-52 * std::abs(b); }

Finding named(const Spot& spot, const ShownWeight& shown, int64_t step) {
  Finding finding{"", {}, step, {spot.rank}, ""};
  for (const WeightQuestion& question : kWeightQuestions) {
    const Predicted predicted = question.predict(spot);
    if (!predicted || close(*predicted, spot.expected) || !close(shown.weight, *predicted)) continue;
    if (finding.code.empty())
      finding.code = question.code;
    else
      finding.also.emplace_back(question.code);
  }
  if (finding.code.empty()) finding.code = "weight-differs";
  finding.sentence = fmt::format(
      "step {}: rank {}, micro-batch {}: {}; its {} rows weigh {} times what they should ({} for {})", step, spot.rank,
      spot.micro, help_of(finding.code), shown.rows, factor_in_words(shown.weight / spot.expected), shown.weight, spot.expected);
  return finding;
}

}  // namespace

/// What the ranks show as a partition.
static Partitioned partitioned_of(std::span<const ShownWeights> by_rank, const WeightOptions& options) {
  Partitioned partitioned;
  partitioned.groups = options.groups;
  partitioned.constant = options.constant;
  partitioned.rank_groups = options.rank_groups;
  for (const ShownWeights& rank : by_rank) {
    partitioned.by_rank.emplace_back();
    for (const ShownWeight& part : rank.micro) partitioned.by_rank.back().push_back({part.rows, part.valid_steps, part.groups});
  }
  return partitioned;
}

std::vector<Finding> audit_weights(std::span<const ShownWeights> by_rank, const WeightOptions& options) {
  std::vector<Finding> findings;
  const Partitioned partitioned = partitioned_of(by_rank, options);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (std::size_t part = 0; part < by_rank[rank].micro.size(); ++part) {
      const ShownWeight& shown = by_rank[rank].micro[part];
      Spot spot{by_rank, partitioned, options, static_cast<int>(rank), static_cast<int>(part), 0};
      spot.expected = spot.of(options.denominator, options.scope);
      if (shown.rows == 0 || close(shown.weight, spot.expected)) continue;
      add(findings, named(spot, shown, by_rank[rank].step));
    }
  }
  return findings;
}

}  // namespace lockstep::rewards
