#include "harness/plan/matrix/plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan_history.h"

namespace lockstep {
namespace {

std::string folder_name(std::string_view name) {
  constexpr std::size_t kLongest = 80;  // the hash tells apart what is cut
  std::string out;
  for (const char c : name.substr(0, kLongest)) {
    const bool keep = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    // No dot in front: the folder would be hidden, or worse, "..".
    out += keep && !(out.empty() && c == '.') ? c : '-';
  }
  return out;
}

std::string role_suffix(RunRole role) {
  switch (role) {
    case RunRole::reference:
    case RunRole::cell:
      return "";
    case RunRole::certify:
      return "-certify";
    case RunRole::certify_forced:
      return "-certify-forced";
    case RunRole::forced_reference:
      return "-forced";
    case RunRole::forced_cell:
      return "-forced";
    case RunRole::forced_twin:
      return "-twin";
    case RunRole::exact_reference:
    case RunRole::exact_cell:
      return "-exact";
    case RunRole::timing:
      return "-timing";
  }
  return "";
}

std::vector<int64_t> merged(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  a.erase(std::unique(a.begin(), a.end()), a.end());
  return a;
}

std::vector<int64_t> below(std::vector<int64_t> steps, int64_t end) {
  std::erase_if(steps, [end](int64_t step) { return step >= end; });
  return steps;
}

std::vector<int64_t> first_steps(int64_t count) {
  std::vector<int64_t> steps(static_cast<std::size_t>(count));
  std::iota(steps.begin(), steps.end(), 0);
  return steps;
}

/// NCCL publishes no order of adding. Exact sums are the same in every order.
bool may_add_in_any_order(const RunConfig& config) {
  return config.transport == Transport::nccl && config.arithmetic == Arithmetic::native;
}

bool same_model(const RunConfig& a, const RunConfig& b) {
  if (a.trainer != b.trainer) return false;
  // A master copy in float32 is the same for both other precisions.
  if ((a.precision == Precision::float64) != (b.precision == Precision::float64)) return false;
  const auto parameters_of = [](const RunConfig& config) {
    return spec_of(config).parameters(config, config.data.channels);
  };
  return std::ranges::equal(parameters_of(a), parameters_of(b), [](const ModelParameter& x, const ModelParameter& y) {
    return x.name == y.name && x.shape == y.shape;
  });
}

// A reference with the same bits, or another layout: the first needs no band, the second cannot do without.
bool wants_forced(const Matrix& matrix, const Cell& cell) {
  // An A/A pair shows how outcomes scatter and nothing else. A command's own run is led.
  if (matrix.forced_steps.empty() || cell.noise || spec_of(cell.config).is_command()) return false;
  // A run that must fail has no step that could be compared.
  if (cell.expected == std::vector{VerdictKind::failed}) return false;
  // The reference's batch does not fit into a step of another size.
  if (cell.config.layout.global_batch() != cell.reference.layout.global_batch()) return false;
  // Free runs of exact arithmetic are compared bit for bit at every step.
  if (cell.config.arithmetic == Arithmetic::exact || cell.reference.arithmetic == Arithmetic::exact) return false;
  if (!asked_by(matrix).trains) return true;
  // Snapshots of one model do not fit another one.
  if (!same_model(cell.config, cell.reference)) return false;
  return !(cell.paired && cell.config.layout == cell.reference.layout);
}

class Planner {
 public:
  explicit Planner(const Matrix& matrix) : matrix_(matrix), gone_on_from_(steps_gone_on_from(matrix.cells)) {}

  std::vector<PlannedRun> run() {
    if (matrix_.seeds.empty()) return {};
    gather_references();
    const std::size_t of_cells = matrix_.cells.size() * (matrix_.seeds.size() + 3);
    runs_.reserve(of_cells + references_.size() * (matrix_.seeds.size() + 2));
    by_hash_.reserve(runs_.capacity());
    ids_.reserve(runs_.capacity());
    for (Reference& reference : references_) add_reference(reference);
    for (const Reference& reference : references_) add_forced_reference(reference);
    for (std::size_t i = 0; i < matrix_.cells.size(); ++i) {
      add_cell(matrix_.cells[i], references_[reference_of_[i]]);
    }
    for (PlannedRun& timed : timing_runs(matrix_)) runs_.push_back(std::move(timed));
    return std::move(runs_);
  }

 private:
  struct Reference {
    const Cell* first = nullptr;  ///< a cell that has it
    std::vector<int64_t> seeds;   ///< of all cells that have it
    bool forced = false;
    std::string first_run;  ///< id of the run of the first seed
    std::map<int64_t, std::string> runs = {};  ///< ids by seed
  };

  int64_t first_seed(const Cell& cell) const { return seeds_of(matrix_, cell).front(); }

  // Cells of one reference share its runs; equal configs are one reference whatever they are called.
  void gather_references() {
    std::unordered_map<std::string, std::size_t> by_hash;
    for (const Cell& cell : matrix_.cells) {
      RunConfig config = as_it_runs(cell.reference);
      config.seed = first_seed(cell);
      const auto [at, is_new] = by_hash.emplace(config_hash(config), references_.size());
      if (is_new) references_.push_back({&cell, {}, false, ""});
      Reference& reference = references_[at->second];
      reference.forced |= wants_forced(matrix_, cell);
      // Undecided cells have more seeds than the others, and all count from 0: the longest list holds the
      // rest.
      if (std::vector<int64_t> seeds = seeds_of(matrix_, cell); seeds.size() > reference.seeds.size()) {
        reference.seeds = std::move(seeds);
      }
      reference_of_.push_back(at->second);
    }
  }

  bool replays() const { return !matrix_.replay.empty(); }

  void add_reference(Reference& reference) {
    if (replays()) return;
    const int64_t first_seed = this->first_seed(*reference.first);
    for (const int64_t seed : reference.seeds) {
      RunConfig config = reference.first->reference;
      config.seed = seed;
      // One seed's snapshots serve all forced runs; the others stay lean.
      if (reference.forced && seed == first_seed) {
        config.snapshot_steps = merged(config.snapshot_steps, below(matrix_.forced_steps, config.steps));
      }
      if (RunConfig read = config; reads_reference(read)) config.snapshot_steps = merged(config.snapshot_steps, below(matrix_.forced_steps, config.steps));
      const std::size_t run = add(RunRole::reference, reference.first->reference_name, std::move(config));
      reference.runs[seed] = runs_[run].id;
      if (seed == first_seed) reference.first_run = runs_[run].id;
    }
  }

  std::vector<std::string> needs_of(const Reference& reference) const {
    return replays() ? std::vector<std::string>{} : std::vector<std::string>{reference.first_run};
  }

  RunConfig forced(RunConfig config, const Reference& reference) const {
    config.seed = first_seed(*reference.first);
    config.snapshot_steps.clear();
    config.eval_every = 0;
    config.checkpoint = CheckpointConfig{};
    begin_by_itself(config);
    config.forced = {reference.first_run, below(matrix_.forced_steps, config.steps), 0, matrix_.replay};
    return config;
  }

  // A run in float64 is its own twin. A declared bound judges without any.
  bool has_twin(const RunConfig& config) const {
    return matrix_.band.exact == 0 && config.precision != Precision::float64;
  }

  /// The forced run and its twin. Where the loss takes some of a row's candidates, those that the twin takes.
  void add_forced(RunRole role, const std::string& name, RunConfig config, const Reference& reference) {
    std::vector<std::string> needs = needs_of(reference);
    if (has_twin(config)) {
      const std::size_t twin = add(RunRole::forced_twin, name, twin_config(config), needs_of(reference));
      if (spec_of(config).scores.takes_some(config)) {
        config.forced.chosen_by = runs_[twin].id;
        needs.push_back(runs_[twin].id);
      }
    }
    add(role, name, std::move(config), std::move(needs));
  }

  void add_forced_reference(const Reference& reference) {
    if (!reference.forced) return;
    const Cell& cell = *reference.first;
    add_forced(RunRole::forced_reference, cell.reference_name, forced(cell.reference, reference), reference);
  }

  void add_cell(const Cell& cell, const Reference& reference) {
    // A certificate is of gradients at the reference's weights: how the cell itself would train is no part of
    // it.
    const bool trains = asked_by(matrix_).trains && !replays();
    for (const int64_t seed : trains ? seeds_of(matrix_, cell) : std::vector<int64_t>{}) {
      add_trained(cell, seed, reference.runs.contains(seed) ? reference.runs.at(seed) : "");
    }
    if (trains && !cell.noise && certifies_prefixes(matrix_.ranks) &&
        cell.config.backend == Backend::emulated && cell.config.layout.world_size > 1 &&
        matrix_.certify_steps > 0) {
      add_prefix(cell);
    }
    if (std::optional<ExactPair> pair = exact_pair_of(matrix_, cell)) {
      add(RunRole::exact_reference, cell.reference_name, std::move(pair->reference));
      add(RunRole::exact_cell, cell.name, std::move(pair->cell));
    }
    if (wants_forced(matrix_, cell)) {
      add_forced(RunRole::forced_cell, cell.name, forced(cell.config, reference), reference);
    }
  }

  /// A cell's run. One that goes on from another cell's begins with the state that this one keeps.
  std::size_t add_trained(const Cell& cell, int64_t seed, const std::string& reference = "") {
    RunConfig config = cell.config;
    config.seed = seed;
    const auto steps = gone_on_from_.find(&cell);
    config.snapshot_steps = merged(config.snapshot_steps, steps == gone_on_from_.end() ? std::vector<int64_t>{} : steps->second);
    std::vector<std::string> needs = go_on_from_source(cell, config);
    if (!reference.empty() && reads_reference(config, reference)) {
      needs.push_back(reference);
      config.snapshot_steps = merged(config.snapshot_steps, below(matrix_.forced_steps, config.steps));
    }
    return add(RunRole::cell, cell.name, std::move(config), std::move(needs));
  }

  /// Does the trainer's own run read the reference's? Then the config says which.
  static bool reads_reference(RunConfig& config, const std::string& reference = "") {
    const auto read = spec_of(config).read_reference;
    return read != nullptr && read(config, reference);
  }

  /// Puts the run's id in place of the cell's name. Throws ConfigError if that cell was not selected.
  std::vector<std::string> go_on_from_source(const Cell& cell, RunConfig& config) {
    if (config.resume_from.empty()) return {};
    const Cell* source = source_of(matrix_.cells, config.resume_from);
    if (source == nullptr) {
      throw ConfigError(fmt::format("cell {} resumes from {}, which is not selected: select both", in_quotes(cell.name),
                                    in_quotes(config.resume_from)));
    }
    config.resume_from = runs_[add_trained(*source, config.seed)].id;
    return {config.resume_from};
  }

  /// The first steps of a cell on real ranks. Where their sums may be added in any order, bits may part though nothing is wrong:
  /// the prefix keeps what it computed, and its steps are computed again on emulated ranks, each from the prefix's own parameters.
  void add_prefix(const Cell& cell) {
    RunConfig config = cell.config;
    config.seed = first_seed(cell);
    config.eval_every = EvaluationPeriod::never();
    config.checkpoint = CheckpointConfig{};
    std::vector<std::string> needs = go_on_from_source(cell, config);
    RunConfig again = config;
    config.backend = Backend::gloo;
    const int64_t end = config.resume_step + matrix_.certify_steps;
    config.stop_after = end < config.steps ? end : 0;
    const bool banded = may_add_in_any_order(config);
    if (banded) {
      config.trace = again.trace = TraceLevel::full;  // each rank's own gradients: what a planted fault does, both sides show
      config.snapshot_steps = first_steps(steps_to_run(config));
      std::erase_if(config.snapshot_steps, [&](int64_t step) { return step < config.resume_step; });
      begin_by_itself(again);
      again.snapshot_steps.clear();
      again.forced.steps = config.snapshot_steps;
    }
    const std::size_t prefix = add(RunRole::certify, cell.name, std::move(config), std::move(needs));
    if (!banded) return;
    again.forced.from = runs_[prefix].id;
    add(RunRole::certify_forced, cell.name, std::move(again), {runs_[prefix].id});
  }

  std::size_t add(RunRole role, const std::string& name, RunConfig config,
                  std::vector<std::string> needs = {}) {
    config = as_it_runs(std::move(config));
    std::string hash = config_hash(config);
    const auto [at, is_new] = by_hash_.emplace(hash, runs_.size());
    if (!is_new) return at->second;
    PlannedRun run;
    run.id = fmt::format("{}-s{}{}-{}", folder_name(name), config.seed, role_suffix(role),
                         std::string_view(hash).substr(0, 8));
    // Eight digits may meet by chance; the ninth and on then tell them apart.
    while (!ids_.emplace(run.id, runs_.size()).second) run.id += "-" + hash.substr(8);
    run.role = role;
    run.cell = name;
    run.config = std::move(config);
    run.hash = std::move(hash);
    run.needs = std::move(needs);
    runs_.push_back(std::move(run));
    return runs_.size() - 1;
  }

  const Matrix& matrix_;
  const std::unordered_map<const Cell*, std::vector<int64_t>> gone_on_from_;
  std::vector<Reference> references_;
  std::vector<std::size_t> reference_of_;  // by cell
  std::vector<PlannedRun> runs_;
  std::unordered_map<std::string, std::size_t> by_hash_;
  std::unordered_map<std::string, std::size_t> ids_;
};

bool is_of_reference(RunRole role) {
  return role == RunRole::reference || role == RunRole::forced_reference;
}

}  // namespace

Plan make_plan(const Matrix& matrix, const std::string& out_dir, const BuildIdentity& identity) {
  Plan plan;
  plan.matrix = matrix;
  plan.runs = Planner(matrix).run();
  apply_history(plan.runs, out_dir, identity);
  return plan;
}

const PlannedRun* find_run(const Plan& plan, const std::string& cell, RunRole role, int64_t seed) {
  const bool is_free = role == RunRole::reference || role == RunRole::cell;
  const auto find = [&](const std::string& name) -> const PlannedRun* {
    const auto at = std::find_if(plan.runs.begin(), plan.runs.end(), [&](const PlannedRun& run) {
      return run.role == role && run.cell == name && (!is_free || run.config.seed == seed);
    });
    return at != plan.runs.end() ? &*at : nullptr;
  };
  if (const PlannedRun* run = find(cell)) return run;
  if (!is_of_reference(role)) return nullptr;
  const auto has_it = std::find_if(plan.matrix.cells.begin(), plan.matrix.cells.end(),
                                   [&cell](const Cell& candidate) { return candidate.name == cell; });
  return has_it != plan.matrix.cells.end() ? find(has_it->reference_name) : nullptr;
}

namespace {

RunConfig first_steps(RunConfig config, int64_t seed, int64_t steps) {
  config.arithmetic = Arithmetic::exact;
  config.seed = seed;
  config.backend = Backend::emulated;
  config.stop_after = steps < config.steps ? steps : 0;
  config.eval_every = EvaluationPeriod::never();
  config.checkpoint = CheckpointConfig{};
  begin_by_itself(config);
  config.snapshot_steps.clear();
  return config;
}

}  // namespace

std::optional<ExactPair> exact_pair_of(const Matrix& matrix, const Cell& cell) {
  const int64_t asked = matrix.certify.exact;
  if (asked <= 0 || !asked_by(matrix).trains || !matrix.replay.empty()) return std::nullopt;
  if (cell.noise || cell.anchor || cell.power_control) return std::nullopt;
  if (cell.expected == std::vector{VerdictKind::failed}) return std::nullopt;
  if (cell.config.layout.global_batch() != cell.reference.layout.global_batch()) return std::nullopt;
  if (cell.config.trace == TraceLevel::off || cell.reference.trace == TraceLevel::off) return std::nullopt;
  const int64_t steps = std::min({asked, cell.config.steps, cell.reference.steps});
  const int64_t seed = seeds_of(matrix, cell).front();
  return ExactPair{first_steps(cell.reference, seed, steps), first_steps(cell.config, seed, steps), steps};
}

// A plan in words and as JSON.
namespace {

int cores_or(int jobs) {
  return jobs > 0 ? jobs : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int cores_of(const PlannedRun& run, int jobs) {
  return run.exclusive ? jobs : std::min(run.config.layout.world_size, jobs);
}

std::string duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string ranks_text(const RunConfig& config) {
  if (config.layout.world_size == 1) return "1 process";
  return fmt::format("{} {}", config.layout.world_size, config.backend == Backend::gloo ? "real" : "emulated");
}

// Runs that differ by seed (or by permutation) alone: one line of the text.
struct Line {
  const PlannedRun* first = nullptr;
  std::string name;
  std::size_t runs = 0, reused = 0;
  double estimate_s = 0, memory_bytes = 0;
  std::string why;
};

std::vector<Line> lines_of(const Plan& plan) {
  std::vector<Line> lines;
  std::map<std::pair<RunRole, std::string>, std::size_t> index;
  const auto line_of = asked_by(plan.matrix).line_of;
  for (const PlannedRun& run : plan.runs) {
    // What twins cost in all is of interest, and what each is of stands above.
    const std::string name = run.role == RunRole::forced_twin ? "in float64" : line_of != nullptr ? line_of(run) : run.cell;
    const auto [at, is_new] = index.emplace(std::pair(run.role, name), lines.size());
    if (is_new) lines.push_back({&run, name, 0, 0, 0, 0, ""});
    Line& line = lines[at->second];
    ++line.runs;
    line.memory_bytes = std::max(line.memory_bytes, run.memory_bytes);
    if (run.reused) {
      ++line.reused;
    } else {
      line.estimate_s += run.estimate_s;
      if (line.why.empty()) line.why = run.why;
    }
  }
  return lines;
}

std::size_t width_of(std::string_view text) {  // columns: UTF-8 continuation bytes have none
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t has = width_of(text);
  return text + std::string(width > has ? width - has : 0, ' ');
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += " " + padded(row[i], widths[i]) + " ";
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", bytes / 1e9); }

/// Of a plan's time, what evaluations take by the model that it is estimated by.
double evaluations_total_s(const Plan& plan, int cores) {
  double core_seconds = 0;
  for (const PlannedRun& run : plan.runs) {
    if (!run.reused) core_seconds += std::min(run.estimate_s, modelled_evaluation_s(run)) * cores_of(run, cores);
  }
  return core_seconds / cores;
}

std::string role_text(RunRole role) {
  std::string text = name_of(role);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string headline(const Matrix& matrix) {
  const QuestionPlan& asks = asked_by(matrix);
  if (asks.headline != nullptr) {
    return fmt::format("{} · {}: {}\n", matrix.name, asks.name, asks.headline(matrix));
  }
  if (!asks.by_outcome) {
    return fmt::format("{} · {}: {}\n", matrix.name, asks.name,
                       counted(static_cast<int64_t>(matrix.seeds.size()), "seed"));
  }
  if (matrix.seeds_auto.on) {
    return fmt::format("{} · {}: {}, margin ± {}, paired, {}, until decided\n", matrix.name, asks.name,
                       matrix.primary.metric, matrix.primary.margin, interim_analyses_in_words(matrix.seeds_auto));
  }
  return fmt::format("{} · {}: {}, margin ± {}, {} paired {}\n", matrix.name, asks.name,
                     matrix.primary.metric, matrix.primary.margin, matrix.seeds.size(),
                     matrix.seeds.size() == 1 ? "seed" : "seeds");
}

// What the looks after this one add at most: as many runs again for each seed more.
std::string most_text(const Plan& plan, int cores) {
  const SeedsAuto& seeds = plan.matrix.seeds_auto;
  const auto now = static_cast<double>(plan.matrix.seeds.size());
  if (!seeds.on || now == 0 || now >= seeds.most) return "";
  double runs = 0, core_seconds = 0;
  for (const PlannedRun& run : plan.runs) {
    if (run.role != RunRole::cell && run.role != RunRole::reference) continue;
    runs += 1;
    core_seconds += run.estimate_s * cores_of(run, cores);
  }
  const double more = seeds.most / now - 1;
  const std::string budget =
      seeds.budget_s > 0 ? fmt::format("; no interim analysis starts after {}", duration(seeds.budget_s)) : "";
  return fmt::format(
      "first interim analysis: {} seeds; with all {}, if no cell is decided before: {:.0f} more runs, about {}{}\n",
      plan.matrix.seeds.size(), seeds.most, runs * more, duration(core_seconds * more / cores), budget);
}

// Where evaluations and saves do not meet, the best model that was seen is not one that is kept.
std::string best_model_text(const Plan& plan) {
  for (const PlannedRun& run : plan.runs) {
    const RunConfig& config = run.config;
    if (!config.checkpoint.on() || (run.role != RunRole::cell && run.role != RunRole::reference)) continue;
    const int64_t all = steps_to_run(config), every = config.checkpoint.every, evaluated = config.eval_every.evaluations(all);
    const int64_t period = config.eval_every.steps() > 0 ? config.eval_every.steps() : all;  // the last step is always evaluated
    const int64_t saved = all / std::lcm(period, every) + (all % period != 0 && all % every == 0 ? 1 : 0);
    if (evaluated == 0 || saved == evaluated) continue;
    return fmt::format("checkpoints: {} of {} of a run {} at a step that is saved (eval_every {}, checkpoint.every {}): {}; let checkpoint.every divide eval_every and steps\n",
                       saved == 0 ? std::string("none") : std::to_string(saved), counted(evaluated, "evaluation"),
                       saved == 1 || saved == 0 ? "is" : "are", config.eval_every.steps(), config.checkpoint.every,
                       saved == 0 ? "best_model is not written" : "best_model names the best of those alone");
  }
  return "";
}

// What will show nothing is said before hours are spent on it.
std::string control_text(const Matrix& matrix) {
  if (!asked_by(matrix).by_outcome) return "";
  constexpr std::size_t kMostNamed = 5;
  std::vector<std::string> names = references_without_control(matrix);
  if (names.empty()) return "";
  const std::size_t more = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
  names.resize(names.size() - more);
  if (more > 0) names.push_back(fmt::format("{} more", more));
  return fmt::format(
      "there is no power control for {}: nothing will show that a difference would be noticed in comparisons with {}; "
      "add a cell "
      "under power_controls\n",
      join_words(names), names.size() == 1 ? "it" : "them");
}

}  // namespace

double estimate_total_s(const Plan& plan, int jobs) {
  const int cores = cores_or(jobs);
  double core_seconds = 0, longest = 0;
  std::map<std::string, double> ends;  // of what others wait for
  for (const PlannedRun& run : plan.runs) {
    if (run.reused) continue;
    core_seconds += run.estimate_s * cores_of(run, cores);
    double end = run.estimate_s;
    for (const std::string& need : run.needs) {
      if (const auto at = ends.find(need); at != ends.end()) end = std::max(end, at->second + run.estimate_s);
    }
    if (run.role == RunRole::reference) ends[run.id] = end;
    longest = std::max(longest, end);
  }
  return std::max(core_seconds / cores, longest);
}

std::vector<std::string> lacking_memory(const Plan& plan, double machine_bytes) {
  std::vector<std::string> lacking;
  for (const Line& line : lines_of(plan)) {
    if (line.reused == line.runs || machine_bytes <= 0 || line.memory_bytes <= machine_bytes) continue;
    lacking.push_back(fmt::format("{} '{}' ({}) needs about {} of memory, but this machine has {}", role_text(line.first->role), line.name,
                                  ranks_text(line.first->config), gigabytes(line.memory_bytes), gigabytes(machine_bytes)));
  }
  return lacking;
}

/// Bytes of all runs' traces on disk, by a rough model from each trainer's parameters, at data.channels
/// channels.
static double estimate_trace_bytes(const Plan& plan) {
  double bytes = 0;
  for (const PlannedRun& run : plan.runs) bytes += modelled_trace_bytes(run);
  return bytes;
}

std::string plan_text(const Plan& plan, int jobs) {
  std::vector<std::vector<std::string>> rows{
      {"ROLE", "NAME", "RUNS", "RANKS", "STEPS", "ESTIMATE", "MEMORY", "REUSED"}};
  std::size_t reused = 0;
  const bool various = asked_by(plan.matrix).draws_cells();
  for (const Line& line : lines_of(plan)) {
    reused += line.reused;
    const std::string all = line.reused == 0           ? "no"
                            : line.reused == line.runs ? "all"
                                                       : fmt::format("{}", line.reused);
    rows.push_back({role_text(line.first->role), line.name, fmt::format("{}", line.runs),
                    various ? "" : ranks_text(line.first->config),
                    various ? "" : fmt::format("{}", steps_to_run(line.first->config)),
                    line.reused == line.runs ? "-" : duration(line.estimate_s), gigabytes(line.memory_bytes),
                    line.why.empty() ? all : all + ": " + line.why});
  }
  const int cores = cores_or(jobs);
  std::string out = headline(plan.matrix);
  if (!plan.matrix.question_text.empty()) out += plan.matrix.question_text + "\n";
  out += table(rows);
  out += fmt::format("{}: {} to run, {} reused; about {} on {}", counted(static_cast<int64_t>(plan.runs.size()), "run"),
                     plan.runs.size() - reused, reused, duration(estimate_total_s(plan, cores)),
                     counted(cores, "core"));
  if (const double evaluations_s = evaluations_total_s(plan, cores); evaluations_s >= 1) {
    out += fmt::format(", {} of it for evaluations", duration(evaluations_s));
  }
  if (various) out += fmt::format(", about {:.1f} GB of traces", estimate_trace_bytes(plan) / 1e9);
  out += "\n";
  return out + best_model_text(plan) + control_text(plan.matrix) + most_text(plan, cores);
}

std::string plan_json(const Plan& plan, int jobs) {
  using Json = nlohmann::ordered_json;
  const int cores = cores_or(jobs);
  Json runs = Json::array();
  std::size_t reused = 0;
  for (const PlannedRun& run : plan.runs) {
    reused += run.reused ? 1 : 0;
    runs.push_back({{"id", run.id},
                    {"role", name_of(run.role)},
                    {"cell", run.cell},
                    {"seed", run.config.seed},
                    {"hash", run.hash},
                    {"world_size", run.config.layout.world_size},
                    {"ranks", run.config.backend == Backend::gloo ? "real" : "emulated"},
                    {"steps", steps_to_run(run.config)},
                    {"needs", run.needs},
                    {"estimate_s", run.estimate_s},
                    {"memory_bytes", run.memory_bytes},
                    {"reused", run.reused},
                    {"why", run.why},
                    {"config", Json::parse(canonical_json(run.config))}});
  }
  Json cells = Json::array();
  for (const Cell& cell : plan.matrix.cells) {
    Json expected = Json::array();
    for (const VerdictKind kind : cell.expected) expected.push_back(name_of(kind));
    cells.push_back({{"name", cell.name},
                     {"reference", cell.reference_name},
                     {"power_control", cell.power_control},
                     {"expected", expected}});
  }
  Json out{{"schema_version", 1},
           {"name", plan.matrix.name},
           {"file", plan.matrix.file},
           {"question", plan.matrix.question},
           {"seeds", plan.matrix.seeds},
           {"cells", cells},
           {"without_power_control",
            asked_by(plan.matrix).by_outcome ? references_without_control(plan.matrix) : std::vector<std::string>{}},
           {"runs", runs},
           {"reused", reused},
           {"jobs", cores},
           {"estimate_s", estimate_total_s(plan, cores)}};
  if (const SeedsAuto& seeds = plan.matrix.seeds_auto; seeds.on) {
    out["seeds_auto"] = {
        {"first", seeds.first}, {"step", seeds.step}, {"most", seeds.most}, {"budget_s", seeds.budget_s}};
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
