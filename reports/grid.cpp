#include "reports/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/verdict/plan/question.h"
#include "reports/numbers.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t kLeastPlaces = 6, kMostColumns = 8, kMostRows = 24;

const std::string* value_of(const Pairs& pairs, std::string_view key) {
  for (const auto& [name, value] : pairs) {
    if (name == key) return &value;
  }
  return nullptr;
}

/// The values of all settings but two, in one text that tells two such sets apart.
std::string rest_of(const CellResult& cell, const std::string& a, const std::string& b) {
  std::string rest;
  for (const auto& [key, value] : cell.settings) {
    if (key != a && key != b) rest += key + '\n' + value + '\n';
  }
  return rest;
}

void add_value(std::vector<std::string>& values, const std::string& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

AnswerGrid laid_out(const std::vector<const CellResult*>& cells, const std::string& a, const std::string& b) {
  AnswerGrid grid;
  std::vector<std::string> first, second;
  for (const CellResult* cell : cells) {
    add_value(first, *value_of(cell->settings, a));
    add_value(second, *value_of(cell->settings, b));
  }
  const bool swap = second.size() > first.size();
  grid.row_axis = swap ? b : a;
  grid.column_axis = swap ? a : b;
  grid.rows = swap ? second : first;
  grid.columns = swap ? first : second;
  grid.cells.assign(grid.rows.size(), std::vector<const CellResult*>(grid.columns.size(), nullptr));
  for (const CellResult* cell : cells) {
    const auto at = [](const std::vector<std::string>& values, const std::string& value) {
      return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
    };
    const CellResult*& place = grid.cells[at(grid.rows, *value_of(cell->settings, grid.row_axis))]
                                         [at(grid.columns, *value_of(cell->settings, grid.column_axis))];
    if (!place) place = cell;
  }
  return grid;
}

std::size_t filled(const AnswerGrid& grid) {
  std::size_t count = 0;
  for (const auto& row : grid.cells) count += row.size() - std::count(row.begin(), row.end(), nullptr);
  return count;
}

bool is_product(const AnswerGrid& grid) {
  const std::size_t places = grid.rows.size() * grid.columns.size();
  return grid.columns.size() >= 2 && grid.columns.size() <= kMostColumns && grid.rows.size() <= kMostRows &&
         places >= kLeastPlaces && 8 * filled(grid) >= 7 * places;
}

}  // namespace

bool AnswerGrid::holds(const CellResult& cell) const {
  return std::any_of(cells.begin(), cells.end(),
                     [&](const auto& row) { return std::find(row.begin(), row.end(), &cell) != row.end(); });
}

bool is_judged(const CellResult& cell) { return !cell.noise && !cell.anchor; }

std::optional<AnswerGrid> grid_of(const Results& results) {
  if (results.suite || !question_named(results.question).by_outcome) return std::nullopt;
  std::vector<const CellResult*> cells;
  std::vector<std::string> keys;
  for (const CellResult& cell : results.cells) {
    if (cell.power_control || cell.noise || is_of_grown_batch(results, cell)) continue;
    cells.push_back(&cell);
    for (const auto& setting : cell.settings) add_value(keys, setting.first);
  }
  std::optional<AnswerGrid> best;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = i + 1; j < keys.size(); ++j) {
      std::map<std::string, std::vector<const CellResult*>> groups;
      for (const CellResult* cell : cells) {
        if (value_of(cell->settings, keys[i]) && value_of(cell->settings, keys[j]))
          groups[rest_of(*cell, keys[i], keys[j])].push_back(cell);
      }
      for (const auto& group : groups) {
        AnswerGrid grid = laid_out(group.second, keys[i], keys[j]);
        if (is_product(grid) && (!best || filled(grid) > filled(*best))) best = std::move(grid);
      }
    }
  }
  return best;
}

int global_batch_of(const std::optional<Layout>& layout) { return layout ? layout->global_batch() : 0; }

bool is_of_grown_batch(const Results& results, const CellResult& cell) {
  const ReferenceResult* reference = reference_of(results, cell);
  if (!reference) return false;
  const int own = global_batch_of(cell.layout), other = global_batch_of(reference->layout);
  return own > 0 && other > 0 && own != other;
}

std::string difference_and_half(const MetricDifference& difference, int decimals) {
  std::string text = signed_number(difference.mean, decimals);
  const double half = (difference.interval.high - difference.interval.low) / 2;
  if (std::isfinite(half)) text += fmt::format(" ± {:.{}f}", half, decimals);
  return text;
}

std::optional<double> common_level(const Results& results) {
  double level = 1 - results.primary.alpha;
  bool first = true;
  for (const CellResult& cell : results.cells) {
    if (!cell.outcome || cell.anchor) continue;
    const double own = cell.outcome->primary.interval.level;
    if (!first && std::abs(own - level) > 1e-9) return std::nullopt;
    level = own;
    first = false;
  }
  return level;
}

std::string interval_name(const Results& results) {
  const std::optional<double> level = common_level(results);
  return level ? level_words(*level) + " interval" : "interval";
}

namespace {

/// Fewest and most pairs of the cells that intervals are shown of; 0, 0: none.
std::pair<int, int> pairs_of(const Results& results) {
  int least = 0, most = 0;
  for (const CellResult& cell : results.cells) {
    if (!cell.outcome || cell.anchor) continue;
    least = most == 0 ? cell.outcome->n : std::min(least, cell.outcome->n);
    most = std::max(most, cell.outcome->n);
  }
  return {least, most};
}

}  // namespace

std::string pairs_words(const Results& results) {
  const auto [least, most] = pairs_of(results);
  if (most == 0) return "";
  return least == most ? counted(most, "paired seed") : fmt::format("{} to {} paired seeds", least, most);
}

std::string own_terms(const Results& results, const CellResult& cell) {
  if (!cell.outcome || cell.anchor || cell.outcome->n < 2) return "";
  const auto [least, most] = pairs_of(results);
  std::string text = least == most ? "" : fmt::format("n {}", cell.outcome->n);
  if (!common_level(results))
    text += (text.empty() ? "" : ", ") + level_words(cell.outcome->primary.interval.level);
  return text;
}

std::string setting_words(const std::string& key, const std::string& value) {
  if (key == "negatives") return name_words(value) + " negatives";
  return clean_line(key) + " " + name_words(value);
}

std::string held_against(const Results& results, const AnswerGrid& grid) {
  std::set<std::string> names, values;
  for (const auto& row : grid.cells) {
    for (const CellResult* cell : row) {
      if (!cell) continue;
      names.insert(cell->reference);
      const ReferenceResult* reference = reference_of(results, *cell);
      const std::string* value = reference ? value_of(reference->config, grid.row_axis) : nullptr;
      values.insert(value ? *value : "");
    }
  }
  if (names.size() == 1) return name_words(*names.begin());
  if (values.size() == 1 && !values.begin()->empty()) {
    const std::string& value = *values.begin();
    return grid.row_axis == "layout" ? name_words(value) : setting_words(grid.row_axis, value);
  }
  return "its reference";
}

}  // namespace lockstep
