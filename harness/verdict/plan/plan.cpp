#include "harness/verdict/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <unordered_map>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/plan_history.h"
#include "harness/verdict/plan/planned_run.h"
#include "harness/verdict/plan/question.h"

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
  // An A/A pair shows how outcomes scatter and nothing else. A command's probe replays steps in the run itself.
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
    if (!reference.empty() && reads_reference(config, reference)) needs.push_back(reference);
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

}  // namespace lockstep
