#include "harness/lib/rewards/denominators.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace lockstep::rewards {
namespace {

constexpr std::array<std::string_view, 4> kDenominators{"rows", "valid_steps", "groups", "constant"};
constexpr std::array<std::string_view, 3> kScopes{"global", "local", "micro"};

double count_of(Denominator denominator, const Counts& counts, double constant) {
  if (denominator == Denominator::rows) return static_cast<double>(counts.rows);
  if (denominator == Denominator::valid_steps) return static_cast<double>(counts.valid_steps);
  if (denominator == Denominator::groups) return static_cast<double>(counts.groups);
  return constant;
}

Counts sum_of(const std::vector<Counts>& micro_batches) {
  Counts sum;
  for (const Counts& each : micro_batches) {
    sum.rows += each.rows;
    sum.valid_steps += each.valid_steps;
    sum.groups += each.groups;
  }
  return sum;
}

double inverse(double value) { return value > 0 ? 1 / value : 0; }

bool near_integer(double value) {
  const double whole = std::round(value);
  return whole >= 1 && whole <= 4096 && std::abs(value - whole) <= 1e-9 * whole;
}

}  // namespace

std::span<const std::string_view> words_of(Denominator) { return kDenominators; }
std::span<const std::string_view> words_of(Scope) { return kScopes; }

double whole(Denominator denominator, const Partitioned& partitioned) {
  Counts all;
  for (const std::vector<Counts>& rank : partitioned.by_rank) {
    const Counts each = sum_of(rank);
    all.rows += each.rows;
    all.valid_steps += each.valid_steps;
    all.groups += each.groups;
  }
  if (partitioned.groups > 0) all.groups = partitioned.groups;
  return count_of(denominator, all, partitioned.constant);
}

double weight_of(Denominator denominator, Scope scope, const Partitioned& partitioned, int rank, int micro) {
  const auto& micro_batches = partitioned.by_rank.at(static_cast<std::size_t>(rank));
  if (scope == Scope::global)
    return static_cast<double>(partitioned.by_rank.size()) * inverse(whole(denominator, partitioned));
  if (scope == Scope::local) {
    Counts own = sum_of(micro_batches);
    if (!partitioned.rank_groups.empty()) own.groups = partitioned.rank_groups.at(static_cast<std::size_t>(rank));
    return inverse(count_of(denominator, own, partitioned.constant));
  }
  return inverse(static_cast<double>(micro_batches.size()) *
                 count_of(denominator, micro_batches.at(static_cast<std::size_t>(micro)), partitioned.constant));
}

double factor_of(Denominator denominator, Scope scope, const Partitioned& partitioned, int rank, int micro) {
  return weight_of(denominator, scope, partitioned, rank, micro) * whole(denominator, partitioned) /
         static_cast<double>(partitioned.by_rank.size());
}

bool independent_of_layout(Denominator denominator, Scope scope, const Partitioned& partitioned) {
  for (std::size_t rank = 0; rank < partitioned.by_rank.size(); ++rank) {
    for (std::size_t micro = 0; micro < partitioned.by_rank[rank].size(); ++micro) {
      if (partitioned.by_rank[rank][micro].rows == 0) continue;
      const double factor = factor_of(denominator, scope, partitioned, static_cast<int>(rank), static_cast<int>(micro));
      if (std::abs(factor - 1) > 4 * 0x1p-52) return false;
    }
  }
  return true;
}

std::string factor_in_words(double factor) {
  if (near_integer(factor)) return fmt::format("{:.2f}", factor);
  if (factor > 0 && near_integer(1 / factor)) return fmt::format("1/{:.0f}", 1 / factor);
  return fmt::format("{:.6g}", factor);
}

}  // namespace lockstep::rewards
