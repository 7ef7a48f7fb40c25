#include "reports/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "harness/answer/results/words.h"
#include "harness/answer/stats/controls.h"
#include "harness/answer/stats/estimates.h"
#include "harness/answer/stats/outcome.h"
#include "harness/base/text.h"
#include "harness/plan/matrix/matrix.h"
#include "reports/text.h"

namespace lockstep {
namespace {

std::string with_minus_sign(std::string text) {
  if (!text.empty() && text.front() == '-') text.replace(0, 1, "−");
  return text;
}

}  // namespace

int decimals_for(double unit) {
  if (!std::isfinite(unit) || unit <= 0) return 3;
  return std::clamp(1 - static_cast<int>(std::floor(std::log10(unit))), 0, 9);
}

std::string signed_number(double value, int decimals) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "+infinite" : "−infinite";
  if (std::abs(value) >= 1e7) return with_minus_sign(fmt::format("{:+.2e}", value));
  const double unit = std::pow(10.0, -decimals);
  if (std::abs(value) < unit / 2) value = 0.0;
  return with_minus_sign(fmt::format("{:+.{}f}", value, decimals));
}

std::string compact_number(double value) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "infinite" : "−infinite";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e6 || size < 1e-3) return with_minus_sign(fmt::format("{:.2e}", value));
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return with_minus_sign(fmt::format("{:.{}f}", value, std::clamp(4 - std::max(before, 1), 0, 3)));
}

std::string interval_words(const Interval& interval, int decimals) {
  if (std::isnan(interval.low) || std::isnan(interval.high)) return "not a number";
  return "[" + signed_number(interval.low, decimals) + ", " + signed_number(interval.high, decimals) + "]";
}

std::string band_share(double band_used) {
  if (std::isnan(band_used)) return "not a number";
  if (std::isinf(band_used)) return "infinite ×";
  if (band_used <= 0) return "0";
  if (band_used < 0.01) return "< 1 %";
  if (band_used <= 1) return fmt::format("{:.0f} %", 100 * band_used);
  if (band_used < 10) return fmt::format("{:.1f} ×", band_used);
  if (band_used < 1e4) return fmt::format("{:.0f} ×", band_used);
  return fmt::format("{:.1e} ×", band_used);
}

std::string band_words(double band_used, std::string_view of) {
  if (band_used == 0) return fmt::format("0 % of {}", of);
  const bool is_part = band_used > 0 && band_used <= 1;
  return fmt::format("{} {}{}", band_share(band_used), is_part ? "of " : "", of);
}

std::string probability_words(double p) {
  if (std::isnan(p)) return "not a number";
  if (p < 0.001) return p <= 0 ? "0" : "< 0.001";
  if (p > 0.999) return p >= 1 ? "1" : "> 0.999";
  return fmt::format("{:.{}f}", p, p < 0.1 || p > 0.99 ? 3 : 2);
}

std::string seeds_words(const std::vector<int64_t>& seeds) {
  std::string out;
  for (std::size_t i = 0; i < seeds.size();) {
    std::size_t last = i;
    while (last + 1 < seeds.size() && seeds[last + 1] == seeds[last] + 1) ++last;
    if (!out.empty()) out += ", ";
    out += std::to_string(seeds[i]);
    if (last == i + 1) out += ", " + std::to_string(seeds[last]);
    if (last > i + 1) out += "–" + std::to_string(seeds[last]);
    i = last + 1;
  }
  return out;
}

double share_of_band(const GradientSignature& signature) {
  if (signature.difference == 0) return 0;
  if (signature.band <= 0) return HUGE_VAL;
  return signature.difference / signature.band;
}

bool leaves_out_zero(const MetricDifference& d) { return d.interval.low > 0 || d.interval.high < 0; }

std::string metric_words(std::string_view metric) {
  const MetricName name = metric_name(metric);
  if (name.spec == nullptr) return clean_line(metric);
  if (name.training) return std::string(name.spec->train_words);
  std::string words(name.spec->family.empty() ? name.spec->name : name.spec->family);
  if (!name.spec->way.empty()) words = fmt::format("{}-way {}", name.spec->way, words);
  if (!name.spec->qualifier.empty()) {
    std::string qualifier(name.spec->qualifier);
    std::ranges::replace(qualifier, '-', ' ');
    words += ", " + qualifier;
  }
  return name.area ? words + ", area under the curve" : words;
}

std::string name_words(std::string_view name) {
  constexpr int kLongest = 120;
  return name.empty() ? "(no name)" : short_line(name, kLongest);
}

double chance_of(std::string_view metric) {
  const MetricName name = metric_name(metric);
  return name.spec == nullptr || name.area ? -1 : name.spec->chance.value_or(-1);
}

bool is_negligible(const MetricDifference& d) {
  constexpr double kLeast = 1e-6;
  return std::abs(d.mean) < kLeast * std::max(std::abs(d.reference_mean), std::abs(d.cell_mean));
}

bool disagrees_in_sign(const MetricDifference& primary, const MetricDifference& other) {
  for (const MetricDifference* each : {&primary, &other})
    if (!leaves_out_zero(*each) || is_negligible(*each) || !each->has_direction) return false;
  const auto better = [](const MetricDifference& d) { return (d.mean > 0) == d.higher_is_better; };
  return better(primary) != better(other);
}

std::string divergence_words(const Divergence& divergence) {
  if (!divergence.sentence.empty()) return clean_line(divergence.sentence);
  std::string text = place_words(divergence);
  if (!divergence.where.empty()) text += ": " + clean_line(divergence.where);
  return text;
}

std::string place_words(const Divergence& divergence) {
  std::string text = fmt::format("step {}", divergence.step);
  if (!divergence.phase.empty()) {
    std::string phase = clean_line(divergence.phase);
    std::ranges::replace(phase, '_', ' ');
    text += ", " + phase;
  }
  if (divergence.rank >= 0) text += fmt::format(", rank {}", divergence.rank);
  return text;
}

std::string rank_words(int rank) {
  if (rank == kRankUnknown) return "rank unknown";
  return rank < 0 ? "all ranks" : fmt::format("rank {}", rank);
}

std::string failure_words(const Failure& failure) {
  std::string text = failure.rank >= 0 ? fmt::format("rank {} ", failure.rank) : "";
  text += to_word(failure.kind);
  if (failure.step >= 0) text += fmt::format(" at step {}", failure.step);
  if (!failure.operation.empty()) text += " in " + clean_line(failure.operation);
  if (!failure.message.empty()) text += ": " + clean_line(failure.message);
  return text;
}

std::string difference_headline(const Mechanism& mechanism) {
  const Divergence& first = *mechanism.first_divergence;
  const bool named = mechanism.cause && mechanism.cause->code != "unexplained";
  return clean_line(fmt::format("different {}: {}", first.step < 0 ? "before the first step" : fmt::format("from step {}", first.step),
                                named ? mechanism.cause->code : replaced(first.phase, "_", " ")));
}

const Cause* cause_of(const CellResult& cell) {
  const std::optional<Cause>& cause = cell.failure || !cell.mechanism ? cell.cause : cell.mechanism->cause;
  return cause && cause->code != "unexplained" ? &*cause : nullptr;
}

/// seeds_in_words for a column.
std::string needed_words(const Outcome& o) {
  const auto count = [](int seeds) {
    return seeds >= kMostSeeds ? std::string("10,000 or more") : std::to_string(seeds);
  };
  if (o.n < 2) return "one seed gives no spread: at least 2 are needed";
  if (leaves_out(o.primary.interval, 0)) {
    return leaves_out(o.primary.interval, o.margin / 2) || o.seeds_needed_half <= o.n
               ? std::string("not 0: the difference may be larger than the margin")
               : fmt::format("not 0; {:.0f} % chance to decide: {} seeds if the difference is half the margin", 100 * kWantedPower,
                             count(o.seeds_needed_half));
  }
  if (o.seeds_needed > o.n) {
    return fmt::format("{:.0f} % chance to decide: {} seeds if there is no difference, {} if it is half the margin", 100 * kWantedPower,
                       count(o.seeds_needed), count(o.seeds_needed_half));
  }
  if (o.seeds_needed_half <= o.n) return "the difference may be larger than the margin";
  return fmt::format("the difference may be close to the margin; {:.0f} % chance to decide: {} seeds if it is half the margin",
                     100 * kWantedPower, count(o.seeds_needed_half));
}

std::string more_seeds_words(const Results& results) {
  const auto counts = [](const CellResult& cell) {
    return !cell.noise && !cell.anchor && !cell.failure && cell.outcome && cell.outcome->n >= 2 &&
           cell.verdict == VerdictKind::inconclusive && cell.outcome->seeds_needed_half > cell.outcome->n;
  };
  if (std::ranges::none_of(results.cells, counts)) return "";
  return "So many seeds as the rows name, in a new run; to extend this one use seeds: auto.";
}

std::string undeclared_words(const CellResult& cell) {
  std::vector<ConfigDifference> undeclared;
  std::ranges::copy_if(cell.config_differences, std::back_inserter(undeclared), std::not_fn(&ConfigDifference::declared));
  return undeclared.empty() ? "" : "configs differ in " + clean_line(differences_text(undeclared));
}

std::vector<std::string> without_shared_words(const std::vector<std::string>& names) {
  const auto words_of = [](const std::string& name) {
    std::istringstream text(name);
    return std::vector<std::string>(std::istream_iterator<std::string>(text), {});
  };
  std::set<std::string> shared;
  bool first = true;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    const std::vector<std::string> words = words_of(name);
    const std::set<std::string> own(words.begin(), words.end());
    if (std::exchange(first, false)) shared = own;
    std::erase_if(shared, [&](const std::string& word) { return !own.contains(word); });
  }
  std::vector<std::string> all;
  for (const std::string& name : names) {
    std::string kept;
    for (const std::string& word : words_of(name))
      kept += shared.contains(word) ? "" : (kept.empty() ? "" : " ") + word;
    all.push_back(kept.empty() || names.size() < 2 ? name : kept);
  }
  return all;
}

std::string certification_words(const Results& results) {
  int wanted = 0, agreed = 0, by_band = 0, world_size = -1;
  double most_used = 0;
  int64_t fewest = -1, most = -1;
  std::string backend;
  for (const CellResult& cell : results.cells) {
    const Certification& c = cell.certification;
    if (!c.wanted) continue;
    ++wanted;
    if (c.divergence || c.steps < c.asked || c.steps == 0) continue;
    ++agreed;
    if (c.certify == kByBand) {
      ++by_band;
      most_used = std::max(most_used, c.band_used);
    }
    fewest = fewest < 0 ? c.steps : std::min(fewest, c.steps);
    most = std::max(most, c.steps);
    const int ranks = world_size_of(cell);
    world_size = world_size == -1 || world_size == ranks ? ranks : 0;
    backend = backend.empty() || backend == c.backend ? c.backend : " ";
  }
  if (wanted == 0) return {};
  if (agreed == 0) return fmt::format("none of {} certified on real ranks", counted(wanted, "cell"));
  std::string text = by_band == 0 ? "certified bit for bit on " : by_band == agreed ? "within tolerance on " : "certified on ";
  if (world_size > 0) text += fmt::format("{} ", world_size);
  text += "real ";
  if (backend != " " && !backend.empty()) text += backend_words(backend) + " ";
  const std::string steps = fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most);
  const std::string cells = agreed == wanted ? "each cell" : fmt::format("{} of {} cells", agreed, wanted);
  std::string what = fmt::format("{} steps of {}", steps, cells);
  if (by_band > 0) {
    if (by_band < agreed) what += fmt::format(", {} bit for bit and {} within tolerance", agreed - by_band, by_band);
    what += fmt::format(", at most {:.2g} % of tolerance used; {}", 100 * most_used, band_reason_words(backend));
  }
  return text + "ranks: " + what;
}

std::string declaration_words(const Results& results) {
  const Declaration none, &d = results.declaration ? *results.declaration : none;
  const int unknown = d.runs - d.before - d.changed;
  const auto part = [&d](int runs) { return fmt::format("{} of {} runs", runs, d.runs); };
  if (d.changed > 0) {
    std::vector<std::string> changes;
    for (const DeclaredChange& change : d.changes)
      changes.push_back(fmt::format("{} was {}", clean_line(change.what), clean_line(change.was)));
    return fmt::format("changed after {} ({} when they were planned){}",
                       d.changed == d.runs ? "the runs" : part(d.changed), join_words(changes),
                       unknown > 0 ? fmt::format("; unknown for {}", part(unknown)) : "");
  }
  if (d.before == 0) return "time of declaration unknown";
  if (unknown == 0) return "declared before anything ran";
  return fmt::format("declared before {}; unknown for the others", part(d.before));
}

std::string question_words(const Results& results) {
  if (results.suite) return clean_line(results.suite->subject);
  const std::string seeds = counted(std::ssize(results.seeds), "seed");
  const std::string margin = fmt::format("margin ± {:g}", results.primary.margin);
  if (results.detection) {
    return fmt::format("{}: which planted faults are found and named correctly, {}, {}", results.question,
                       counted(std::ssize(results.cells), "trial"),
                       counted(results.steps, "step"));
  }
  if (results.certificate) {
    return fmt::format("{}: do gradients equal those of the plain reference to {:g}, {}", results.question,
                       results.certificate->exact,
                       counted(std::ssize(results.cells), "case"));
  }
  const QuestionPlan& asked = question_named(results.question);
  if (!asked.by_outcome) {
    return fmt::format("{}: {}, {}, {}", asked.name, asked.help, counted(results.steps, "step"), seeds);
  }
  return fmt::format("{}: {}, {}, {}{}", asked.name, clean_line(results.primary.metric), margin,
                     counted(std::ssize(results.seeds), "paired seed"),
                     results.primary.test == OutcomeTest::sign ? ", sign test of the median" : "");
}

std::string backend_words(std::string_view backend) {
  if (backend == "gloo") return "Gloo";
  if (backend == "nccl") return "NCCL";
  if (backend == "gloo_cuda") return "Gloo (GPU)";
  return clean_line(backend);
}

std::string band_reason_words(std::string_view backend) {
  return (backend.empty() || backend == " " ? "such a backend" : backend_words(backend)) + " does not specify its summation order";
}

int world_size_of(const CellResult& cell) { return cell.layout ? cell.layout->world_size : 0; }

std::vector<std::string> cell_anchors(const Results& results) {
  std::vector<std::string> anchors;
  for (const CellResult& cell : results.cells) {
    const std::string base = "cell-" + slug(cell.scenario);
    std::string anchor = base;
    for (int copy = 2; std::ranges::find(anchors, anchor) != anchors.end(); ++copy) {
      anchor = base + "-" + std::to_string(copy);
    }
    anchors.push_back(anchor);
  }
  return anchors;
}

const ReferenceResult* reference_of(const Results& results, const CellResult& cell) {
  const auto found = std::ranges::find(results.references, cell.reference, &ReferenceResult::name);
  return found == results.references.end() ? nullptr : &*found;
}

const std::string* value_of(const Pairs& pairs, std::string_view key) {
  const auto found = std::ranges::find(pairs, key, &Pairs::value_type::first);
  return found == pairs.end() ? nullptr : &found->second;
}

void add_value(std::vector<std::string>& values, const std::string& value) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

namespace {

constexpr std::size_t kLeastPlaces = 6, kMostColumns = 8, kMostRows = 24;

/// The values of all settings but two, in one text that tells two such sets apart.
std::string rest_of(const CellResult& cell, const std::string& a, const std::string& b) {
  std::string rest;
  for (const auto& [key, value] : cell.settings) {
    if (key != a && key != b) rest += key + '\n' + value + '\n';
  }
  return rest;
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
      return static_cast<std::size_t>(std::ranges::find(values, value) - values.begin());
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
  return std::ranges::any_of(cells, [&](const auto& row) { return std::ranges::find(row, &cell) != row.end(); });
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
  std::vector<double> levels;
  for (const CellResult& cell : results.cells)
    if (cell.outcome && !cell.anchor) levels.push_back(cell.outcome->primary.interval.level);
  if (levels.empty()) return 1 - results.primary.alpha;
  const auto [low, high] = std::ranges::minmax(levels);
  return high - low > 1e-9 ? std::nullopt : std::optional(levels.back());
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

// What a verdict, and a whole matrix, is called.
namespace {

std::string missed_controls(const Results& results) {
  std::string text;
  for (const CellResult& cell : results.cells) {
    if (!is_missed_control(cell)) continue;
    const VerdictKind kind = cell.outcome && !cell.failure ? cell.outcome->verdict : cell.verdict;
    text += fmt::format("{}{} came out {}", text.empty() ? "Power control " : "; ", name_words(cell.scenario),
                        style_of(kind).words);
  }
  if (text.empty()) text = "A power control was not found to differ";
  return text +
         ". Until it is found to differ, no equivalence here means anything: use more seeds or steps, or a stronger "
         "control.";
}

std::string unexpected_cells(const Results& results) {
  std::string names;
  int count = 0;
  for (const CellResult& cell : results.cells) {
    if (is_as_expected(cell)) continue;
    const Cause* cause = cause_of(cell);
    if (++count <= 3)
      names +=
          (names.empty() ? "" : ", ") + name_words(cell.scenario) + (cause ? " (" + clean_line(cause->code) + ")" : "");
  }
  if (count == 0) return "";
  if (count > 3) names += fmt::format(" and {} more", count - 3);
  return fmt::format("{} of {} not as expected: {}.", count,
                     counted(std::ssize(results.cells), "cell"), names);
}

/// Does the matrix state what is expected of any of its cells, power controls apart?
bool states_expectations(const Results& results) {
  return std::ranges::any_of(results.cells,
                             [](const CellResult& cell) { return !cell.power_control && !cell.expected.empty(); });
}

/// Is the cell judged, not failed, and nothing stated of what is expected of it?
bool states_nothing(const CellResult& cell) {
  return is_judged(cell) && !cell.power_control && cell.expected.empty() && cell.as_expected;
}

std::string as_expected_words(const Results& results) {
  const auto unstated = static_cast<int>(std::ranges::count_if(results.cells, states_nothing));
  const auto stated = static_cast<int>(results.cells.size()) - unstated;
  std::string text =
      !states_expectations(results) ? std::string("The config states no expectation of a cell, and none failed")
      : unstated == 0 ? stated == 1 ? std::string("The one cell came out as the config expects")
                                    : fmt::format("All {} cells came out as the config expects", stated)
                      : fmt::format("{} came out as the config expects; it states no expectation of the other {}",
                                    counted(stated, "cell"), unstated);
  if (std::ranges::any_of(results.cells, [](const CellResult& cell) { return !cell.failed_saves.empty(); }))
    text += "; but saves of checkpoints failed";
  return text + ".";
}

std::string figures_of(const SuiteResult& suite) {
  return fmt::format("{} ({}), {} wrong, {} undecided", counted(suite.trials, "trial"),
                     counted(suite.cases, "case"), suite.faults, suite.undecided);
}

Status suite_status(const Results& results) {
  const SuiteResult& suite = *results.suite;
  const std::string figures = figures_of(suite) + ".";
  if (results.summary.exit_code == 6 || suite.cases == 0)
    return {"?", "und", "Nothing selected", "No trial was run, so nothing is judged."};
  if (suite.faults > 0) return {"✗", "bad", "Faults found", figures};
  if (results.summary.exit_code == 5) return {"?", "und", "Undecided", figures};
  return {"✓", "ok", "No fault found", figures};
}

}  // namespace

const VerdictStyle& style_of(VerdictKind kind) {
  // In the order of VerdictKind.
  static constexpr VerdictStyle kStyles[] = {{"=", "identical", "ok"},  {"≈", "within envelope", "ok"},
                                             {"=", "equivalent", "ok"}, {"≠", "divergent", "bad"},
                                             {"?", "inconclusive", "und"}, {"×", "failed", "fail"}};
  return kStyles[static_cast<std::size_t>(kind)];
}

bool is_missed_control(const CellResult& cell) {
  if (!cell.power_control) return false;
  // A control is judged by its outcome, whatever its mechanism or its certificate say.
  if (cell.failure || cell.verdict == VerdictKind::failed) return true;
  return (cell.outcome ? cell.outcome->verdict : cell.verdict) != VerdictKind::divergent;
}

bool is_as_expected(const CellResult& cell) { return cell.as_expected && !is_missed_control(cell); }

std::string expected_words(const CellResult& cell) {
  if (cell.expected.empty()) return "any verdict but failed";
  std::vector<std::string_view> verdicts;
  for (const VerdictKind verdict : cell.expected) verdicts.push_back(style_of(verdict).words);
  return join_words(verdicts, "or");
}

Status status_of(const Results& results) {
  if (results.suite) return suite_status(results);
  const Summary& summary = results.summary;
  if (results.cells.empty() || summary.exit_code == 6) {
    return {"?", "und", "Nothing selected", "No cell was run, so nothing is judged."};
  }
  if (summary.exit_code == 7) return {"×", "fail", "Not judged", "lockstep or this machine failed."};
  if (summary.exit_code == 130) return {"×", "fail", "Interrupted", "Run the same command again to resume."};
  if (summary.margin_refused && !summary.margin_text.empty())
    return {"×", "bad", "Margin refused", summary.margin_text};
  if (!summary.can_tell) return {"?", "bad", "Cannot tell", missed_controls(results)};
  // For such a question rates decide, and the sentence says which fall short.
  if (results.detection && summary.exit_code == 0) return {"✓", "ok", "As expected", "All rates meet their limits."};
  if (results.detection && summary.exit_code == 1) return {"✗", "bad", "Not as expected", summary.sentence};
  const std::string unexpected = unexpected_cells(results);
  switch (summary.exit_code) {
    case 0:
      // A certificate states one for all its cases: certified.
      if (states_expectations(results) || results.certificate)
        return {"✓", "ok", "As expected", as_expected_words(results)};
      return {"•", "ctl", "Judged", as_expected_words(results)};
    case 1:
      return {"✗", "bad", "Not as expected", unexpected};
    case 3:
      return {"×", "fail", "A rank died", unexpected};
    case 4:
      return {"×", "fail", "A rank hung", unexpected};
    case 5:
      return {"?", "und", "Undecided", unexpected};
    default:
      return {"✗", "bad", fmt::format("Exit code {}", summary.exit_code), unexpected};
  }
}

}  // namespace lockstep
