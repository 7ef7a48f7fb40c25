#include "harness/verdict/plan/planned_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {

const char* name_of(RunRole role) {
  switch (role) {
    case RunRole::reference:
      return "reference";
    case RunRole::cell:
      return "cell";
    case RunRole::certify:
      return "certify";
    case RunRole::certify_forced:
      return "certify_forced";
    case RunRole::forced_reference:
      return "forced_reference";
    case RunRole::forced_cell:
      return "forced_cell";
    case RunRole::forced_twin:
      return "forced_twin";
    case RunRole::exact_reference:
      return "exact_reference";
    case RunRole::exact_cell:
      return "exact_cell";
    case RunRole::timing:
      return "timing";
  }
  return "?";
}

RunConfig as_it_runs(RunConfig config) {
  if (config.backend == Backend::emulated) config.transport = Transport::gloo;
  return config;
}

RunConfig twin_config(RunConfig forced) {
  forced.forced.twin = true;
  forced.forced.chosen_by.clear();
  return forced;
}

namespace {

constexpr double kLibraries = 110e6;     ///< LibTorch in a process that computes
constexpr double kRealRank = 70e6;       ///< of these what a forked rank does not share, with Gloo's buffers
constexpr double kTracePart = 17e6;      ///< of a step, as the trace takes it at once
constexpr double kEmulatedRank = 0.3e6;  ///< a thread, its communicators and its trace's buffer

/// Of one rank: parameters and what is kept of each, and a part of the trace on its way to the file.
double parameter_bytes(const RunConfig& config) {
  double elements = 0, largest = 0;
  for (const ModelParameter& parameter : spec_of(config).parameters(config, config.data.channels)) {
    elements += static_cast<double>(parameter.elements());
    largest = std::max(largest, static_cast<double>(parameter.elements()));
  }
  const double of_number = computed_precision(config) == Precision::float64 ? 8 : 4;
  // Itself, its gradient, what the optimizer keeps and buckets; sums of exact arithmetic have digits of 64 bits.
  const double copies = config.optimizer == OptimizerKind::sgd ? 4 : 6;
  const double digits = config.arithmetic == Arithmetic::exact ? (of_number == 8 ? 54 : 8) * 8.0 : 0;
  const bool whole = config.forced.on() || config.trace == TraceLevel::full;
  constexpr double kCopiesOfPart = 4;  // records, the frame made of them, and the room in which both grew
  const double traced = whole ? kCopiesOfPart * std::min(3 * elements * of_number, kTracePart + largest * of_number) : 0;
  return elements * (copies * of_number + digits) + traced;
}

}  // namespace

RunCosts costs_of(const RunConfig& config) {
  const auto costs = spec_of(config).costs;
  return costs == nullptr ? RunCosts{} : costs(config);
}

double modelled_memory_bytes(const RunConfig& config) {
  const RunCosts costs = costs_of(config);
  const double ranks = config.layout.world_size, of_rank = parameter_bytes(config) + costs.held_bytes;
  if (config.backend == Backend::gloo && config.layout.world_size > 1) {
    return kLibraries + ranks * (kRealRank + of_rank + costs.computing_bytes + costs.data_bytes);
  }
  const double at_once = std::min<double>(ranks, emulated_turns());
  return kLibraries + ranks * (kEmulatedRank + of_rank) + at_once * costs.computing_bytes + 2 * costs.data_bytes;
}

double machine_memory_bytes() {
  const double machine = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  double group = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> group;  // "max": none
  return group > 0 ? std::min(group, machine) : machine;
}

RunConfig timing_config(const Matrix& matrix, const Layout& layout) {
  RunConfig config = matrix.cells.empty() ? RunConfig{} : matrix.cells.front().reference;
  config.layout = layout;
  config.backend = layout.world_size > 1 ? Backend::gloo : Backend::emulated;
  config.steps = matrix.timing.steps;
  config.stop_after = 0;
  config.schedule = Schedule::constant;
  config.warmup_steps = 0;
  config.rows = RowPartition::equal;
  config.oracle_world = 0;
  config.perturb = Perturbation::none;
  config.trace = TraceLevel::off;
  config.snapshot_steps.clear();
  config.eval_every = EvaluationPeriod::never();
  config.checkpoint = CheckpointConfig{};
  begin_by_itself(config);
  config.forced = ForcedConfig{};
  config.mutant = config.second_mutant = MutantConfig{};
  return as_it_runs(std::move(config));
}

std::string timing_name(const Layout& layout) {
  return fmt::format("timing {}x{}", layout.world_size, layout.rows_per_rank);
}

std::vector<PlannedRun> timing_runs(const Matrix& matrix) {
  std::vector<PlannedRun> runs;
  for (int repeat = 0; repeat < matrix.timing.repeats; ++repeat) {
    for (const Layout& layout : matrix.timing.layouts) {
      PlannedRun run;
      run.role = RunRole::timing;
      run.cell = timing_name(layout);
      run.config = timing_config(matrix, layout);
      run.hash = config_hash(run.config);
      run.id = fmt::format("timing-{}x{}-{}-{}", layout.world_size, layout.rows_per_rank, repeat,
                           run.hash.substr(0, 8));
      run.exclusive = true;
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

const Cell* source_of(const std::vector<Cell>& cells, const std::string& resume_from) {
  const auto is_named = [&](const Cell& cell) { return cell.name == resume_from || cell.short_name == resume_from; };
  const auto found = std::ranges::find_if(cells, is_named);
  return found == cells.end() ? nullptr : &*found;
}

std::unordered_map<const Cell*, std::vector<int64_t>> steps_gone_on_from(const std::vector<Cell>& cells) {
  std::unordered_map<const Cell*, std::vector<int64_t>> steps;
  for (const Cell& cell : cells) {
    const RunConfig& config = cell.config;
    if (!config.resume_from.empty()) steps[source_of(cells, config.resume_from)].push_back(config.resume_step);
  }
  return steps;
}

std::vector<std::pair<std::string, std::string>> resume_problems(const std::vector<Cell>& cells, const Cell& cell) {
  const RunConfig& config = cell.config;
  if (!cell.reference.resume_from.empty()) {
    return {{"resume_from", "a reference cannot resume: set resume_from for cells only"}};
  }
  if (config.resume_from.empty()) {
    if (config.resume_step == 0) return {};
    return {{"resume_step", "resume_step has no effect: resume_from names no cell"}};
  }
  const Cell* source = source_of(cells, config.resume_from);
  if (source == nullptr) {
    std::vector<std::string_view> names;
    for (const Cell& each : cells) names.push_back(each.name);
    const std::string_view near = nearest(config.resume_from, names);
    return {{"resume_from", fmt::format("{} is not a cell of this matrix{}", in_quotes(config.resume_from),
                                        near.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(near)))}};
  }
  if (source >= &cell) return {{"resume_from", fmt::format("{} must come before the cell that resumes from it", in_quotes(config.resume_from))}};
  if (config.resume_step <= source->config.resume_step || config.resume_step >= std::min(config.steps, source->config.steps)) {
    return {{"resume_step", fmt::format("resume_step is {}: it must lie within the steps that {} trains", config.resume_step,
                                        in_quotes(config.resume_from))}};
  }
  if (config.checkpoint.on()) {
    return {{"resume_from", "a run that resumes from another cannot have checkpoint.every"}};
  }
  if (source->config.trace == TraceLevel::off) {
    return {{"resume_from", fmt::format("the state is read from the trace, and {} has none (trace: off)", in_quotes(config.resume_from))}};
  }
  RunConfig own = config, theirs = source->config;
  for (RunConfig* each : {&own, &theirs}) each->mutant = each->second_mutant = MutantConfig{};
  if (training_hash(own) == training_hash(theirs)) return {};
  return {{"resume_from", fmt::format("{} trains differently from the cell that resumes from it: only layout, ranks, buckets and trace may differ",
                                      in_quotes(config.resume_from))}};
}

void begin_by_itself(RunConfig& config) {
  config.resume_from.clear();
  config.resume_step = 0;
}

}  // namespace lockstep
