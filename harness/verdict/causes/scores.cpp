// Causes of wrong scores that any trainer may have: another precision, a replica with other parameters.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "harness/verdict/causes/rules.h"
#include "harness/verdict/causes/score_evidence.h"
#include "harness/verdict/compare/bits.h"
#include "harness/verdict/config/field.h"

namespace lockstep::causes {
namespace {

double unit_of(Precision precision) {
  return precision == Precision::bfloat16  ? std::ldexp(1.0, -8)
         : precision == Precision::float32 ? std::ldexp(1.0, -24)
                                           : std::ldexp(1.0, -53);
}

/// Two runs that are meant to round differently do. Where scores were kept whole, no difference may be more
/// than rounding in the coarser precision: a mistake beside it is another rule's.
std::optional<Cause> scores_in_other_precision(const CauseInputs& inputs) {
  if (!inputs.reference_config || !inputs.cell_config || misses_scores(inputs)) return std::nullopt;
  const Precision expected = inputs.reference_config->precision, actual = inputs.cell_config->precision;
  if (expected == actual) return std::nullopt;
  static const RunField* const precision = find_core_field("precision");
  const std::string words = fmt::format("the reference computes in {}, the cell in {}",
                                        text_of(precision->of(*inputs.reference_config)),
                                        text_of(precision->of(*inputs.cell_config)));
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty()) return made("precision-differs", 0.9, words);
  double largest = 0, size = 0;
  for (const AlignedRow& row : rows) {
    for (std::size_t j = 0; j < row.columns.size(); ++j) {
      largest = std::max(largest, distance(row.expected[j], row.actual[j]));
      size = std::max(size, std::abs(row.expected[j]));
    }
  }
  // Roundings of some ten operations, each on terms that may be larger than what they add up to.
  constexpr double kMostUnits = 64;
  const double units = largest / (std::max(unit_of(expected), unit_of(actual)) * size);
  if (!(units <= kMostUnits)) return std::nullopt;
  return made("precision-differs", kExact,
              fmt::format("{}; {} differ by no more than {} units of the coarser one's rounding", words,
                          score_name(inputs), short_number(units)));
}

std::optional<Cause> replica_shows_in_scores(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.empty() || !inputs.cell || misses_scores(inputs)) return std::nullopt;
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  if (wrong.by_rank.size() != 1 || wrong.of_rank.size() < 2) return std::nullopt;
  const auto drift = replica_drift(*inputs.cell, pointer_to(inputs.reference));
  const auto [rank, count] = *wrong.by_rank.begin();
  // Its scores at the reference's parameters show that it is this rank that holds something else.
  const auto is_alone = [&, own = std::vector<int>{static_cast<int>(rank)}](const auto& group) { return group == own; };
  if (!drift || drift->phase != Phase::parameters || std::ranges::none_of(drift->holders.groups, is_alone)) return std::nullopt;
  if (drift->name.starts_with("buffer/") || 2 * count < wrong.of_rank.at(rank)) return std::nullopt;
  return made(
      "replica-corrupted", 0.95,
      fmt::format("only rank {} has different {} ({} of its {}), and its {} differs from the other ranks'",
                  rank, score_name(inputs), count, wrong.of_rank.at(rank), drift->name));
}

constexpr Rule kScoresRules[] = {scores_in_other_precision, replica_shows_in_scores};

}  // namespace

std::span<const Rule> score_rules() { return kScoresRules; }

}  // namespace lockstep::causes
