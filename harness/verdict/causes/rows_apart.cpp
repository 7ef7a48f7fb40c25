// Causes of a wrong loss from what the trainer's own function gives for single rows: how ranks combine them, which they leave out, and what is taken over
// a rank's own rows where the reference takes it over all.

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/verdict/causes/rules.h"
#include "harness/verdict/evidence/rows_apart.h"

namespace lockstep::causes {
namespace {

using RowIds = std::vector<int64_t>;

bool near_value(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance * std::max({std::abs(a), std::abs(b), 1e-12}); }

/// Of some rows: the sum of their losses by weight, and of their weights.
struct Total {
  double loss = 0, weight = 0;
  double mean() const { return loss / weight; }
};

Total total_of(const RowLosses& rows, std::span<const int64_t> ids) {
  Total total;
  for (const int64_t id : ids) {
    const RowLosses::Row& row = rows.rows.at(id);
    total.loss += row.weight * row.loss;
    total.weight += row.weight;
  }
  return total;
}

/// The step, if the reference's rows are known and the ranks of the cell hold them once each.
struct Combined {
  const RowsApart& apart;
  RowLosses rows;
  Total all;
  std::vector<Total> ranks;
  double world() const { return static_cast<double>(apart.cell.size()); }
  /// The loss of a sum counts rows as they are; a mean's divides them by their weights.
  double unit() const { return rows.is_sum ? 1 : 1 / all.weight; }
};

std::optional<Combined> combined(const CauseInputs& inputs) {
  const Phase phase = inputs.difference.phase;
  if (phase != Phase::loss && phase != Phase::local_gradients && phase != Phase::reduced_gradients) return std::nullopt;
  if (!inputs.rows || inputs.rows->reference.empty() || inputs.rows->cell.empty()) return std::nullopt;
  auto apart = taken_apart(inputs.rows->reference.front());
  if (!apart.rows) return std::nullopt;
  Combined found{*inputs.rows, std::move(*apart.rows), {}, {}};
  std::set<int64_t> seen;
  for (const MeasuredRows& rank : found.apart.cell) {
    for (const int64_t id : rank.own_ids) {
      if (!found.rows.rows.contains(id) || !seen.insert(id).second) return std::nullopt;
    }
    found.ranks.push_back(total_of(found.rows, rank.own_ids));
    found.all.loss += found.ranks.back().loss;
    found.all.weight += found.ranks.back().weight;
  }
  if (seen.size() != found.rows.rows.size()) return std::nullopt;
  return found;
}

/// Is every rank's loss one factor times that?
std::optional<double> common_factor(const Combined& step, const std::function<double(std::size_t)>& of_rank) {
  std::optional<double> factor;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const double ratio = step.apart.cell[r].own / of_rank(r);
    if (!std::isfinite(ratio) || ratio == 0 || (factor && !near_value(ratio, *factor, 10 * step.rows.tolerance))) return std::nullopt;
    factor = factor.value_or(ratio);
  }
  return factor;
}

/// Does every rank count its rows as the reference does, but for a factor that they share?
bool counts_rows_alike(const Combined& step) {
  const auto factor = common_factor(step, [&](std::size_t r) { return step.ranks[r].loss; });
  return factor && (step.ranks.size() > 1 || near_value(*factor, step.unit(), 10 * step.rows.tolerance));
}

bool is_one_of(double value, std::initializer_list<double> known, double tolerance) {
  return std::ranges::any_of(known, [&](double each) { return near_value(value, each, tolerance); });
}

std::optional<Cause> mean_of_means_apart(const CauseInputs& inputs) {
  const auto step = combined(inputs);
  if (!step || step->ranks.size() < 2 || counts_rows_alike(*step)) return std::nullopt;
  const auto factor = common_factor(*step, [&](std::size_t r) { return step->ranks[r].mean(); });
  const double whole = step->rows.is_sum ? step->all.weight : 1;
  if (!factor || !is_one_of(*factor, {whole, whole / step->world()}, 10 * step->rows.tolerance)) return std::nullopt;
  const auto by_weight = [](const Total& a, const Total& b) { return a.weight < b.weight; };
  const auto [fewest, most] = std::ranges::minmax_element(step->ranks, by_weight);
  return made("mean-of-means", kExact,
              fmt::format("replays of single rows: each rank's loss is the mean over its own rows, which count {} to {} % of the batch's weight, and ranks count alike",
                          short_number(100 * fewest->weight / step->all.weight), short_number(100 * most->weight / step->all.weight)));
}

/// The parts into which a step's rows are cut: by equal numbers, the remainder spread or last.
std::vector<std::span<const int64_t>> micro_batches(std::span<const int64_t> ids, std::size_t count, bool spread) {
  std::vector<std::span<const int64_t>> parts;
  const std::size_t size = (ids.size() + count - 1) / count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = spread ? i * ids.size() / count : std::min(i * size, ids.size());
    const std::size_t to = spread ? (i + 1) * ids.size() / count : std::min((i + 1) * size, ids.size());
    if (to > from) parts.push_back(ids.subspan(from, to - from));
  }
  return parts;
}

std::optional<Cause> micro_steps_apart(const CauseInputs& inputs) {
  const auto step = combined(inputs);
  const auto micro_steps = static_cast<std::size_t>(std::max<int64_t>(1, inputs.cell_facts.accumulation));
  if (!step || step->rows.is_sum || micro_steps < 2 || counts_rows_alike(*step)) return std::nullopt;
  const auto count = static_cast<double>(micro_steps);
  for (const bool spread : {true, false}) {
    bool unequal = false;
    const auto sum_of_means = [&](std::size_t r) {
      double sum = 0;
      std::optional<double> weight;
      for (const auto& part : micro_batches(step->apart.cell[r].own_ids, micro_steps, spread)) {
        const Total total = total_of(step->rows, part);
        unequal = unequal || !near_value(weight.value_or(total.weight), total.weight, 1e-6);
        weight = total.weight;
        sum += total.mean();
      }
      return sum;
    };
    const auto factor = common_factor(*step, sum_of_means);
    if (!factor || !unequal) continue;
    const double tolerance = 10 * step->rows.tolerance;
    const auto text = [&](const char* how) {
      return fmt::format("replays of single rows: each rank's loss is the {} of the means of its {} micro-steps, whose rows count unequally", how, micro_steps);
    };
    if (is_one_of(*factor, {1 / count, 1 / count / step->world()}, tolerance)) return made("micro-steps-weighted-alike", kExact, text("mean"));
    if (is_one_of(*factor, {1, 1 / step->world()}, tolerance)) return made("accumulation-not-scaled", kExact, text("sum"));
  }
  return std::nullopt;
}

/// Rows that a rank may have left out: one, those at an end, or every second.
std::vector<RowIds> kept_rows(const RowIds& ids) {
  std::vector<RowIds> kept;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    RowIds without = ids;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    kept.push_back(std::move(without));
    const auto at = ids.begin() + static_cast<std::ptrdiff_t>(i);
    kept.emplace_back(ids.begin(), at);
    kept.emplace_back(at, ids.end());
  }
  for (const std::size_t from : {0, 1}) {
    RowIds every_second;
    for (std::size_t i = from; i < ids.size(); i += 2) every_second.push_back(ids[i]);
    kept.push_back(std::move(every_second));
  }
  std::erase_if(kept, [&](const RowIds& each) { return each.size() == ids.size(); });
  return kept;
}

/// How many rows the rank's loss has, if it is made of fewer than it holds at that factor.
std::optional<std::size_t> rows_kept(const Combined& step, std::size_t rank, double factor) {
  const double own = step.apart.cell[rank].own, tolerance = 10 * step.rows.tolerance;
  for (const RowIds& kept : kept_rows(step.apart.cell[rank].own_ids)) {
    const Total total = total_of(step.rows, kept);
    const bool at_their_weight = near_value(own, factor * total.loss, tolerance);
    const bool as_a_mean = total.weight > 0 && near_value(own, factor * step.ranks[rank].weight * total.mean(), tolerance);
    if (at_their_weight || as_a_mean) return kept.size();
  }
  return std::nullopt;
}

std::optional<Cause> rows_left_out_apart(const CauseInputs& inputs) {
  const auto step = combined(inputs);
  // Of many sets of rows one fits by chance where losses are known to few digits.
  if (!step || step->rows.tolerance > 1e-6 || counts_rows_alike(*step)) return std::nullopt;
  for (const double ranks : {step->world(), 1.0, 1 / step->world()}) {
    const double factor = ranks * step->unit();
    std::vector<std::string> wrong;
    bool fits = true;
    for (std::size_t r = 0; fits && r < step->ranks.size(); ++r) {
      if (near_value(step->apart.cell[r].own, factor * step->ranks[r].loss, 10 * step->rows.tolerance)) continue;
      const auto kept = rows_kept(*step, r, factor);
      fits = kept.has_value();
      if (kept) wrong.push_back(fmt::format("rank {} has {} of its {} rows", r, *kept, step->apart.cell[r].own_ids.size()));
    }
    if (!fits || wrong.empty()) continue;
    return made("rows-left-out", 0.95, fmt::format("replays of single rows: the loss of {}{}", wrong.front(), wrong.size() > 1 ? fmt::format(", and so of {} ranks", wrong.size()) : ""));
  }
  return std::nullopt;
}

/// Of the same rows the second has that factor times what the first has.
bool same_numbers(const std::map<int64_t, double>& a, const std::map<int64_t, double>& b, double factor, double room) {
  return a.size() == b.size() && std::ranges::equal(a, b, [&](const auto& x, const auto& y) { return x.first == y.first && std::abs(factor * x.second - y.second) <= room; });
}

/// Does the function, of the same rows, give what the reference's gives? A loss that is divided by the rows of all ranks gives W times as much.
bool agrees_on_same_rows(const MeasuredRows& reference, const MeasuredRows& rank, double world, double room) {
  if (!rank.together) return false;
  return std::ranges::any_of(std::array{1.0, world, 1 / world}, [&](double factor) {
    return std::abs(factor * *reference.together - *rank.together) <= room && same_numbers(reference.singles, rank.singles, factor, room) &&
           same_numbers(reference.pairs, rank.pairs, factor, room);
  });
}

/// The reference's loss couples rows. Of the same rows every rank's function gives what the reference's does, and of the ranks' own rows another loss: what
/// couples them does not go beyond a rank.
std::optional<Cause> taken_over_own_rows(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.rows || inputs.rows->reference.empty() || inputs.rows->cell.size() < 2) return std::nullopt;
  const MeasuredRows& reference = inputs.rows->reference.front();
  if (!taken_apart(reference).is_coupled) return std::nullopt;
  const double tolerance = reference.epsilon < 1e-10 ? 1e-9 : 1e-5, size = std::max(1.0, std::abs(*reference.together));
  const auto world = static_cast<double>(inputs.rows->cell.size());
  double sum = 0;
  for (const MeasuredRows& rank : inputs.rows->cell) {
    if (!agrees_on_same_rows(reference, rank, world, tolerance * size)) return std::nullopt;
    sum += rank.own;
  }
  const double mean = sum / world;
  for (const double loss : {sum, mean}) {
    if (std::abs(loss - *reference.together) <= 1e3 * tolerance * size) return std::nullopt;
  }
  const bool alone_is_nothing = std::ranges::all_of(reference.singles, [&](const auto& row) { return std::abs(row.second) <= tolerance * size; });
  const std::string text = fmt::format("replays of single rows, pairs and the whole batch give the reference's losses on every rank, and the ranks' own rows give {} where the batch has {}",
                                       short_number(mean), short_number(*reference.together));
  if (alone_is_nothing) return made("local-negatives", kExact, text + "; a row alone loses 0: the loss contrasts rows");
  return made("local-statistics", 0.9, text);
}

/// Do all rows count alike, or each what it counts in the reference?
bool weighs_alike_or_as(const RowLosses& found, const RowLosses& expected) {
  constexpr double kSame = 1e-6;
  const auto is_as_expected = [&](const auto& row) { return near_value(row.second.weight, expected.rows.at(row.first).weight, kSame); };
  return std::ranges::all_of(found.rows, [](const auto& row) { return near_value(row.second.weight, 1, kSame); }) || std::ranges::all_of(found.rows, is_as_expected);
}

bool same_rows(const RowLosses& a, const RowLosses& b) {
  return std::ranges::equal(a.rows, b.rows, {}, [](const auto& row) { return row.first; }, [](const auto& row) { return row.first; });
}

/// Rows that count most are whole and lose the same; the others, which are padded, lose something else.
std::optional<Cause> mask_ignored_apart(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.rows || inputs.rows->reference.empty()) return std::nullopt;
  const auto expected = taken_apart(inputs.rows->reference.front()).rows;
  if (!expected || expected->is_sum) return std::nullopt;
  double most = 0;
  for (const auto& [id, row] : expected->rows) most = std::max(most, row.weight);
  std::size_t whole = 0, padded = 0;
  for (const MeasuredRows& rank : inputs.rows->cell) {
    const auto found = taken_apart(rank).rows;
    if (!found || found->is_sum || !same_rows(*found, *expected) || !weighs_alike_or_as(*found, *expected)) return std::nullopt;
    whole = padded = 0;
    for (const auto& [id, row] : expected->rows) {
      const bool is_whole = near_value(row.weight, most, 1e-6), is_same = near_value(found->rows.at(id).loss, row.loss, 10 * expected->tolerance);
      if (is_whole != is_same) return std::nullopt;
      (is_whole ? whole : padded) += 1;
    }
  }
  if (whole < 2 || padded < 2) return std::nullopt;
  return made("mask-ignored", 0.9,
              fmt::format("replays of single rows: the {} rows that count most in the reference lose the same, and the {} that count less lose something else", whole, padded));
}

constexpr Rule kRowsApartRules[] = {mean_of_means_apart, micro_steps_apart, rows_left_out_apart, taken_over_own_rows, mask_ignored_apart};

}  // namespace

std::span<const Rule> rows_apart_rules() { return kRowsApartRules; }

std::string functions_seen(const CauseInputs& inputs) {
  if (!inputs.rows || inputs.rows->reference.empty() || inputs.rows->cell.empty()) return "";
  const MeasuredRows& reference = inputs.rows->reference.front();
  if (!reference.together || !std::isfinite(*reference.together)) return "";
  std::vector<std::size_t> apart;
  for (std::size_t rank = 0; rank < inputs.rows->cell.size(); ++rank) {
    const MeasuredRows& own = inputs.rows->cell[rank];
    if (!own.together) return "";
    if (!agrees_on_same_rows(reference, own, static_cast<double>(inputs.rows->cell.size()), 1e-5 * std::max(1.0, std::abs(*reference.together)))) apart.push_back(rank);
  }
  if (apart.empty()) return "of the same rows every rank's function gives the reference's loss";
  // A gather of equal rows has each of them W times, which a loss that couples rows must see.
  if (apart.size() == inputs.rows->cell.size()) return taken_apart(reference).is_coupled ? "" : "of the same rows every rank's function gives another loss than the reference's";
  return fmt::format("of the same rows the function gives the reference's loss on other ranks, and another one on rank {}", fmt::join(apart, ", "));
}

}  // namespace lockstep::causes
