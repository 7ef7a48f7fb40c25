#include "harness/verdict/compare/exact_inputs.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "harness/verdict/compare/step_records.h"
#include "harness/verdict/trace/record_values.h"

namespace lockstep {
namespace {

/// What one row holds.
struct HeldRow {
  int rank = 0;
  std::vector<double> values;
};
/// By sample; of a sample that a step has twice the first.
using HeldRows = std::map<int64_t, HeldRow>;

void add_held_rows(const Record& record, int rank, HeldRows& rows) {
  const auto values = values_of(record);
  if (!values || record.ids.empty() || record.shape.empty() || record.shape[0] != std::ssize(record.ids)) return;
  const std::size_t width = values->size() / record.ids.size();
  for (std::size_t i = 0; i < record.ids.size(); ++i) {
    const auto begin = values->begin() + static_cast<std::ptrdiff_t>(i * width);
    rows.try_emplace(record.ids[i], HeldRow{rank, {begin, begin + static_cast<std::ptrdiff_t>(width)}});
  }
}

std::map<std::string, HeldRows> held_rows_of(const StepOfRun& step) {
  std::map<std::string, HeldRows> by_name;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (const Record* record : records_of(step.ranks[rank], Phase::inputs)) add_held_rows(*record, static_cast<int>(rank), by_name[record->name]);
  }
  return by_name;
}

/// The same, or one of the two with ignored places (below 0) at its end or its beginning: batches are padded to their longest row.
bool holds_the_same(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double>&longer = a.size() < b.size() ? b : a, &shorter = a.size() < b.size() ? a : b;
  const auto common = static_cast<std::ptrdiff_t>(shorter.size()), more = std::ssize(longer) - common;
  if (more == 0 || common < 2) return a == b;
  const auto is_padding = [](auto first, auto last) { return std::all_of(first, last, [](double value) { return value < 0; }); };
  return (std::equal(shorter.begin(), shorter.end(), longer.begin()) && is_padding(longer.begin() + common, longer.end())) ||
         (std::equal(shorter.begin(), shorter.end(), longer.begin() + more) && is_padding(longer.begin(), longer.begin() + more));
}

std::string held_text(const std::vector<double>& values, const std::vector<double>& other) {
  if (values.size() != other.size()) return fmt::format("{} values", values.size());
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(values, other).in1 - values.begin());
  return values.size() == 1 ? fmt::format("{:.17g}", values[at]) : fmt::format("{:.17g} at place {} of {}", values[at], at, values.size());
}

}  // namespace

std::optional<Difference> inputs_difference(const StepOfRun& a, const StepOfRun& b) {
  const std::map<std::string, HeldRows> in_a = held_rows_of(a), in_b = held_rows_of(b);
  for (const auto& [name, expected] : in_a) {
    const auto found = in_b.find(name);
    if (found == in_b.end()) continue;
    std::set<int> ranks;
    const std::pair<const int64_t, HeldRow>* first = nullptr;
    for (const auto& actual : found->second) {
      const auto row = expected.find(actual.first);
      if (row == expected.end() || holds_the_same(row->second.values, actual.second.values)) continue;
      ranks.insert(actual.second.rank);
      if (!first) first = &actual;
    }
    if (!first) continue;
    const int world_size = static_cast<int>(b.ranks.size());
    const bool on_all = world_size > 1 && std::ssize(ranks) == world_size;
    Difference difference =
        difference_at(a.step, Phase::inputs, on_all ? kAllRanks : *ranks.begin(), name, DivergenceKind::value,
                      held_text(expected.at(first->first).values, first->second.values),
                      held_text(first->second.values, expected.at(first->first).values), world_size);
    difference.divergence.sample = first->first;
    difference.divergence.sentence += fmt::format(" It is sample {}.", first->first);
    return difference;
  }
  return std::nullopt;
}

}  // namespace lockstep
