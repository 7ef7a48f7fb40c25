#include "harness/verdict/evidence/rows_apart.h"

#include <algorithm>
#include <cmath>

#include "harness/verdict/evidence/align.h"
#include "harness/verdict/trace/record_values.h"

namespace lockstep {
namespace {

MeasuredRows measured_by(const StepRecords& rank) {
  MeasuredRows found;
  for (const Record& record : rank.records) {
    if (record.phase == Phase::samples) found.own_ids = record.ids;
    if (record.phase != Phase::loss) continue;
    if (record.name == "own") found.own = record.value;
    if (record.name == "together") found.together = record.value;
    if (record.name != "singles" && record.name != "pairs") continue;
    const auto values = values_of(record);
    if (!values || values->size() != record.ids.size()) continue;
    auto& to = record.name == "singles" ? found.singles : found.pairs;
    for (std::size_t i = 0; i < values->size(); ++i) to[record.ids[i]] = (*values)[i];
    if (record.name == "singles" && !record.ids.empty()) found.first = record.ids.front();
    found.epsilon = epsilon_of(record.dtype);
  }
  return found;
}

std::map<int64_t, std::vector<MeasuredRows>> measured_in(const std::string& dir) {
  std::map<int64_t, std::vector<MeasuredRows>> by_step;
  RunReader reader(dir);
  while (const auto step = reader.next()) {
    for (const StepRecords& rank : step->ranks) by_step[step->step].push_back(measured_by(rank));
  }
  return by_step;
}

/// Relative, of sums of quotients of differences.
double tolerance_of(double epsilon) { return epsilon < 1e-10 ? 1e-8 : 3e-4; }

/// The loss of all rows as their losses and weights give it; nothing where pairs do not tell a weight.
std::optional<double> loss_of_means(const MeasuredRows& measured, RowLosses& to) {
  const double first = measured.singles.at(*measured.first);
  to.rows[*measured.first] = {first, 1};
  double sum = first, weights = 1;
  for (const auto& [id, pair] : measured.pairs) {
    const auto single = measured.singles.find(id);
    if (single == measured.singles.end()) return std::nullopt;
    // pair = (first + weight * single) / (1 + weight)
    const double weight = (first - pair) / (pair - single->second);
    if (!std::isfinite(weight) || !(weight > 0)) return std::nullopt;
    to.rows[id] = {single->second, weight};
    sum += weight * single->second;
    weights += weight;
  }
  return sum / weights;
}

std::optional<double> loss_of_sums(const MeasuredRows& measured, RowLosses& to) {
  const double first = measured.singles.at(*measured.first);
  to.is_sum = true;
  to.rows[*measured.first] = {first, 1};
  double sum = first;
  for (const auto& [id, pair] : measured.pairs) {
    const auto single = measured.singles.find(id);
    if (single == measured.singles.end()) return std::nullopt;
    if (std::abs(pair - first - single->second) > to.tolerance * (std::abs(first) + std::abs(single->second))) return std::nullopt;
    to.rows[id] = {single->second, 1};
    sum += single->second;
  }
  return sum;
}

}  // namespace

std::optional<RowsApart> rows_apart(const std::string& reference_dir, const std::string& cell_dir, int64_t step) {
  const auto reference = measured_in(reference_dir), cell = measured_in(cell_dir);
  std::optional<RowsApart> found;
  for (const auto& [number, ranks] : reference) {
    const auto other = cell.find(number);
    if (number <= step && other != cell.end()) found = RowsApart{number, ranks, other->second};
  }
  return found;
}

TakenApart taken_apart(const MeasuredRows& measured) {
  TakenApart found;
  if (!measured.together || !measured.first || measured.pairs.size() + 1 != measured.singles.size() || measured.singles.size() < 3) return found;
  double size = std::abs(*measured.together);
  for (const auto& [id, loss] : measured.singles) size = std::max(size, std::abs(loss));
  double nearest = INFINITY;
  for (const auto& made_of : {loss_of_means, loss_of_sums}) {
    RowLosses rows;
    rows.tolerance = tolerance_of(measured.epsilon);
    const auto predicted = made_of(measured, rows);
    if (!predicted) continue;
    const double off = std::abs(*predicted - *measured.together) / size;
    nearest = std::min(nearest, off);
    if (off <= rows.tolerance) {
      found.rows = std::move(rows);
      return found;
    }
  }
  const bool all_finite = std::isfinite(size);
  found.is_coupled = all_finite && nearest > 100 * tolerance_of(measured.epsilon);
  return found;
}

}  // namespace lockstep
