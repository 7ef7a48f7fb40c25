#include "harness/judge/evidence/replays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/judge/evidence/parts.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/canonical.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The folder that holds a run's folder, without links and dots.
fs::path home_of(const std::string& run_dir) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(run_dir, error);
  return (whole.has_filename() ? whole : whole.parent_path()).parent_path();
}

/// A run's settings without those that a plan changes for its forced run.
RunConfig without_forcing(RunConfig config) {
  config.forced = {};
  config.snapshot_steps.clear();
  config.eval_every = 0;
  return config;
}

/// Nothing where the folder is none of a finished run, or its run.json is damaged.
std::optional<RunConfig> finished_config(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir / "done", error)) return std::nullopt;
  try {
    const auto record = read_run_record(dir.string());
    return record ? std::optional(record->config) : std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

struct ForcedRun {
  std::string dir;
  RunConfig config;
};

std::vector<ForcedRun> forced_runs_in(const fs::path& home) {
  std::vector<ForcedRun> runs;
  std::error_code error;
  for (fs::directory_iterator at(home, error), end; !error && at != end; at.increment(error)) {
    std::optional<RunConfig> config = finished_config(at->path());
    if (config && config->forced.on()) runs.push_back({at->path().string(), std::move(*config)});
  }
  return runs;
}

/// Those that load the snapshots of the run of that id, of both configs. Nothing where one lacks.
std::optional<ForcedBeside> at_snapshots_of(const std::string& id, const std::vector<ForcedRun>& runs,
                                            RunConfig reference, RunConfig cell) {
  ForcedBeside found;
  for (const ForcedRun& run : runs) {
    if (run.config.forced.from != id) continue;
    reference.seed = cell.seed = found.seed = run.config.seed;
    const RunConfig plain = without_forcing(run.config);
    const bool of_reference = same_config(plain, reference), of_cell = same_config(plain, cell);
    if (run.config.forced.twin) {
      if (of_reference) found.reference_twin = run.dir;
      if (of_cell) found.cell_twin = run.dir;
      continue;
    }
    if (of_reference) found.reference = run.dir;
    if (of_cell) found.cell = run.dir;
  }
  if (found.reference.empty() || found.cell.empty()) return std::nullopt;
  if (reference.precision == Precision::float64) found.reference_twin = found.reference;
  if (cell.precision == Precision::float64) found.cell_twin = found.cell;
  return found;
}

}  // namespace

std::optional<ForcedBeside> forced_runs_beside(const std::string& reference_dir, const RunRecord& reference,
                                               const std::string& cell_dir, const RunRecord& cell) {
  const fs::path home = home_of(reference_dir);
  if (home != home_of(cell_dir) || reference.config.forced.on() || cell.config.forced.on()) return std::nullopt;
  const std::vector<ForcedRun> runs = forced_runs_in(home);
  std::set<std::string> others;
  for (const ForcedRun& run : runs) others.insert(run.config.forced.from);
  const RunConfig of_reference = without_forcing(reference.config), of_cell = without_forcing(cell.config);
  if (auto own = at_snapshots_of(reference.id, runs, of_reference, of_cell)) return own;
  for (const std::string& id : others) {
    if (auto other = at_snapshots_of(id, runs, of_reference, of_cell)) return other;
  }
  return std::nullopt;
}

namespace {

/// XXH3 of a whole file.
std::string digest_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw TraceError(path + ": cannot be read");
  const std::unique_ptr<XXH3_state_t, void (*)(XXH3_state_t*)> state(XXH3_createState(), [](XXH3_state_t* it) { XXH3_freeState(it); });
  XXH3_64bits_reset(state.get());
  std::array<char, 1 << 16> part;
  while (file.read(part.data(), part.size()), file.gcount() > 0) {
    XXH3_64bits_update(state.get(), part.data(), static_cast<std::size_t>(file.gcount()));
  }
  return hex16(XXH3_64bits_digest(state.get()));
}

/// The folder of that name within, if it holds a trace.
std::string traces_in(const fs::path& folder, const std::string& name) {
  std::error_code error;
  const fs::path found = folder / name;
  return fs::exists(found / "rank-0.trace", error) ? found.string() : "";
}

void take(const Record& record, Measured& to) {
  if (record.name == "own") to.own = record.value;
  if (record.name == "together") to.together = record.value;
  if (record.name != "singles" && record.name != "pairs") return;
  const auto values = values_of(record);
  if (!values || values->size() != record.ids.size()) return;
  auto& by_id = record.name == "singles" ? to.singles : to.pairs;
  for (std::size_t i = 0; i < values->size(); ++i) by_id[record.ids[i]] = (*values)[i];
  if (record.name == "singles" && !record.ids.empty()) to.first = record.ids.front();
  to.epsilon = epsilon_of(record.dtype);
}

MeasuredRows measured_by(const StepRecords& rank) {
  MeasuredRows found;
  for (const Record& record : rank.records) {
    if (record.phase == Phase::samples) found.own_ids = record.ids;
    if (record.phase == Phase::loss) take(record, found.loss);
    if (record.phase == Phase::local_gradients) take(record, found.slope);
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

/// Of all rows, as their values and weights give it; nothing where pairs do not tell a weight.
std::optional<double> of_a_mean(const Measured& measured, RowValues& to) {
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

std::optional<double> of_a_sum(const Measured& measured, RowValues& to) {
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

std::optional<ProbeReplays> probe_replays(const std::string& reference_dir, const std::string& cell_dir) {
  std::error_code error;
  const fs::path of_reference = fs::path(reference_dir) / "replay", of_cell = fs::path(cell_dir) / "replay";
  if (!fs::is_directory(of_reference, error) || !fs::is_directory(of_cell, error)) return std::nullopt;
  const std::string digest = digest_of((fs::path(reference_dir) / "rank-0.trace").string());
  ProbeReplays found;
  found.reference = traces_in(of_reference / digest, "single");
  found.cell = traces_in(of_cell / digest, "single");
  if (found.reference.empty() || found.cell.empty()) return std::nullopt;
  const auto take_both = [&](const char* name, std::string& reference, std::string& cell) {
    reference = traces_in(of_reference / digest, name);
    cell = traces_in(of_cell / digest, name);
    if (reference.empty() || cell.empty()) reference.clear(), cell.clear();
  };
  take_both("double", found.reference_twin, found.cell_twin);
  take_both("rows", found.reference_rows, found.cell_rows);
  for (int number = 1;; ++number) {
    const std::string repeat = traces_in(of_reference / digest, fmt::format("repeat-{}", number));
    if (repeat.empty()) break;
    found.repeats.push_back(repeat);
  }
  return found;
}

std::optional<RowsApart> rows_apart(const std::string& reference_dir, const std::string& cell_dir, int64_t step) {
  const auto reference = measured_in(reference_dir), cell = measured_in(cell_dir);
  std::optional<RowsApart> found;
  for (const auto& [number, ranks] : reference) {
    const auto other = cell.find(number);
    if (number <= step && other != cell.end()) found = RowsApart{number, ranks, other->second};
  }
  return found;
}

TakenApart taken_apart(const Measured& measured) {
  TakenApart found;
  if (!measured.together || !measured.first || measured.pairs.size() + 1 != measured.singles.size() || measured.singles.size() < 3) return found;
  double size = std::abs(*measured.together);
  for (const auto& [id, value] : measured.singles) size = std::max(size, std::abs(value));
  // Of equal rows a mean is the same whatever each counts.
  const double first = measured.singles.at(*measured.first);
  const auto is_equal = [&](const auto& pair) { return std::abs(pair.second - first) <= tolerance_of(measured.epsilon) * size; };
  if (std::ranges::all_of(measured.pairs, is_equal)) return found;
  double nearest = INFINITY;
  for (const auto& made_of : {of_a_mean, of_a_sum}) {
    RowValues rows;
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

namespace {

/// Buffers may be a rank's own, as statistics of its rows are.
bool is_parameter(const Record& record) {
  return record.phase == Phase::parameters && !record.is_scalar && !record.name.starts_with("buffer/");
}

std::vector<const Record*> parameters_of(const StepRecords& rank) {
  std::vector<const Record*> all;
  for (const Record& record : rank.records) {
    if (is_parameter(record)) all.push_back(&record);
  }
  return all;
}

/// The record of that name; ranks record in one order as a rule, so that the search is short.
const Record* named(const std::vector<const Record*>& all, const std::string& name, std::size_t guess) {
  if (guess < all.size() && all[guess]->name == name) return all[guess];
  const auto found = std::ranges::find(all, name, [](const Record* record) -> const std::string& { return record->name; });
  return found == all.end() ? nullptr : *found;
}

/// Does the rank hold the parameters that rank 0 holds? True of a rank that recorded none. Tensors of one shape that
/// nobody calls alike are shards, unless they have the same bits.
bool is_replica(const StepRecords& first, const StepRecords& rank) {
  const std::vector<const Record*> expected = parameters_of(first), actual = parameters_of(rank);
  if (expected.empty() || actual.empty()) return true;
  if (expected.size() != actual.size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Record* other = named(actual, expected[i]->name, i);
    if (!other || other->shape != expected[i]->shape) return false;
    if (!expected[i]->replicated && other->stats.hash != expected[i]->stats.hash) return false;
  }
  return true;
}

/// Do all ranks have local gradients of the same names and shapes, and do ranks hold parts of what these belong to? Ranks that hold
/// parts of what they compute with, as tensor-parallel ones do, have gradients of those parts.
bool have_whole_gradients_of_shards(const StepOfRun& step) {
  using Shapes = std::map<std::string, std::vector<int64_t>>;
  const auto shapes_of = [](const StepRecords& rank, Phase phase) {
    Shapes shapes;
    for (const Record& record : rank.records) {
      if (record.phase == phase && !record.is_scalar) shapes[record.name] = record.shape;
    }
    return shapes;
  };
  const Shapes gradients = shapes_of(step.ranks[0], Phase::local_gradients);
  bool holds_parts = false;
  for (const StepRecords& rank : step.ranks) {
    if (shapes_of(rank, Phase::local_gradients) != gradients) return false;
    for (const auto& [name, shape] : shapes_of(rank, Phase::parameters)) {
      const auto gradient = gradients.find(name);
      holds_parts = holds_parts || (gradient != gradients.end() && gradient->second != shape);
    }
  }
  return holds_parts;
}

/// Does the rank hold the parts of parameters that the other one holds?
bool holds_same_parts(const StepOfRun& step, std::size_t other, std::size_t rank) {
  if (step.parts.empty()) return true;
  for (const Record& first : step.parts[other]) {
    if (first.phase != Phase::parameters) continue;
    const auto same = [&](const Record& each) {
      return each.phase == first.phase && each.name == first.name && *each.placement == *first.placement;
    };
    if (std::ranges::none_of(step.parts[rank], same)) return false;
  }
  return true;
}

/// The declared group of rank 0; nothing if none is declared.
std::optional<std::vector<int>> declared_replicas(const StepOfRun& step) {
  if (!step.declared || step.declared->replicas.empty()) return std::nullopt;
  for (const std::vector<int>& ranks : step.declared->replicas) {
    if (std::ranges::find(ranks, 0) != ranks.end()) return ranks;
  }
  return std::vector<int>{};
}

std::string form_of(const Record& record) {
  return fmt::format("{} [{}]", name_of(record.dtype), fmt::join(record.shape, ", "));
}

}  // namespace

std::vector<int> ranks_reduced_together(const StepOfRun& step) {
  if (!step.bearers.empty()) return step.bearers;
  if (const auto declared = declared_replicas(step)) return *declared;
  std::vector<int> all(step.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  const bool replicas =
      std::ranges::all_of(step.ranks, [&](const StepRecords& rank) { return is_replica(step.ranks[0], rank); });
  return replicas || have_whole_gradients_of_shards(step) ? all : std::vector<int>{};
}

namespace {

/// Ranks that hold other parts of the same rows, or of the model, than the first rank of their declared group.
std::set<int> ranks_of_split_rows(const StepOfRun& step, const std::function<std::vector<int64_t>(int)>& ids_of) {
  constexpr std::string_view kSplitting[] = {"context", "sequence", "tensor", "pipeline", "expert"};
  std::set<int> ranks;
  // Placements of what rows hold tell that a rank has another part of the same rows.
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const auto is_later_part = [](const Record& record) {
      return record.phase == Phase::inputs && record.placement && record.placement->shard && record.placement->offset.size() > 1 &&
             std::any_of(record.placement->offset.begin() + 1, record.placement->offset.end(), [](int64_t offset) { return offset > 0; });
    };
    const bool in_parts = rank < step.parts.size() && std::ranges::any_of(step.parts[rank], is_later_part);
    if (in_parts || std::ranges::any_of(step.ranks[rank].records, is_later_part)) ranks.insert(static_cast<int>(rank));
  }
  if (!step.declared) return ranks;
  for (const auto& [name, members] : step.declared->groups) {
    if (std::ranges::none_of(kSplitting, [&](std::string_view word) { return name.starts_with(word); })) continue;
    for (const int rank : members) {
      if (rank != members.front() && ids_of(rank) == ids_of(members.front())) ranks.insert(rank);
    }
  }
  return ranks;
}

}  // namespace

std::vector<int> ranks_with_rows(const StepOfRun& step) {
  if (const auto declared = declared_replicas(step)) return *declared;
  const auto ids_of = [](const StepRecords& rank) {
    const auto found = std::ranges::find(rank.records, Phase::samples, &Record::phase);
    return found == rank.records.end() ? std::vector<int64_t>{} : found->ids;
  };
  const std::set<int> split = ranks_of_split_rows(step, [&](int rank) { return ids_of(step.ranks[static_cast<std::size_t>(rank)]); });
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    if (split.contains(static_cast<int>(rank))) continue;
    const std::vector<int64_t> ids = ids_of(step.ranks[rank]);
    const auto is_other_part = [&](int earlier) {
      const auto other = static_cast<std::size_t>(earlier);
      return !ids.empty() && ids_of(step.ranks[other]) == ids && !(is_replica(step.ranks[other], step.ranks[rank]) && holds_same_parts(step, other, rank));
    };
    if (std::ranges::none_of(ranks, is_other_part)) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

OtherForm local_gradient_of_another_form(const StepOfRun& step, const std::vector<int>& ranks, const StepOfRun& reference) {
  struct Form {
    const Record* record;
    int rank;
  };
  std::map<std::string, std::vector<Form>> by_name;
  for (const int rank : ranks) {
    for (const Record& record : step.ranks[static_cast<std::size_t>(rank)].records) {
      if (record.phase == Phase::local_gradients && !record.is_scalar) by_name[record.name].push_back({&record, rank});
    }
  }
  const auto alike = [](const Record& a, const Record& b) { return a.dtype == b.dtype && a.shape == b.shape; };
  for (const auto& [name, forms] : by_name) {
    const auto votes = [&](const Form& form) {
      return std::ranges::count_if(forms, [&](const Form& each) { return alike(*each.record, *form.record); });
    };
    const auto is_the_references = [&](const Form& form) {
      std::size_t seen = 0;
      for (const StepRecords& rank : reference.ranks) {
        for (const Record& record : rank.records) {
          if (record.phase != Phase::local_gradients || record.name != form.record->name) continue;
          if (!alike(record, *form.record)) return false;
          ++seen;
        }
      }
      return seen > 0;
    };
    auto right = std::ranges::find_if(forms, is_the_references);
    if (right == forms.end()) right = std::ranges::max_element(forms, {}, votes);
    for (const Form& form : forms) {
      if (alike(*form.record, *right->record)) continue;
      return {form.rank, name, form_of(*right->record), form_of(*form.record), form.record->shape != right->record->shape};
    }
  }
  return {};
}

}  // namespace lockstep
