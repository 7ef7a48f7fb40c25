#include "harness/plan/matrix/plan_history.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"

namespace lockstep {

/// For a run that has no folder: how its config differs from that of the run of the same name, role and seed
/// that has one ("ran here with another config: steps was 100, is 101"); empty if there is none. `present`:
/// the folders under `runs_folder`.
static std::string changed_config(const PlannedRun& run, const std::string& runs_folder,
                           const std::set<std::string>& present);

/// Reads the evidence whole. The first file that is no longer as `files` (JSON of evidence_json) says, and
/// where: "its rank-3.trace is gone"; empty if all are.
static std::string evidence_problem(const std::string& run_folder, const std::string& files);

/// Files that the judge reads: run.json, traces and results of ranks, what a probe says of itself. A finished run is reused only if they
/// are all as they were.
static bool is_evidence(const std::string& file_name);

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

/// What the run's trainer says of it; zeros where it says nothing.
static RunCosts costs_of(const RunConfig& config) {
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

namespace {

namespace fs = std::filesystem;

struct Done {
  std::string problem;  ///< that the file itself has; then nothing else is known
  std::string config_hash, build, libtorch, isa, data;
  std::string files;  ///< JSON of evidence_json
  double seconds = 0;
};

std::optional<Done> read_done(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  Done done;
  const std::optional<nlohmann::json> sealed = read_sealed(path.string(), done.problem);
  if (!sealed) return done;  // malformed: matches no run
  const nlohmann::json& json = *sealed;
  const auto text = [&json](const char* key) {
    const auto at = json.find(key);
    return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  done.config_hash = text("config_hash");
  done.build = text("build");
  done.libtorch = text("libtorch");
  done.isa = text("isa");
  done.data = text("data");
  done.files = json.value("files", nlohmann::json()).dump();
  const auto seconds = json.find("seconds");
  if (seconds != json.end() && seconds->is_number()) done.seconds = std::max(0.0, seconds->get<double>());
  return done;
}

// The first thing that was asked for and is not as it was, in words; empty if nothing.
std::string difference(const Done& done, const PlannedRun& run, const BuildIdentity& identity) {
  if (done.config_hash != run.hash) return fmt::format("its config was different ({})", done.config_hash);
  const auto changed = [](const char* what, const std::string& was, const std::string& is) {
    return fmt::format("{} changed: {} then, {} now", what, was, is);
  };
  if (done.build != identity.build) return changed("the build", done.build, identity.build);
  if (done.libtorch != identity.libtorch) return changed("LibTorch", done.libtorch, identity.libtorch);
  if (done.isa != identity.isa) return changed("the instruction set", done.isa, identity.isa);
  if (done.data != identity.data) return changed("the data", done.data, identity.data);
  return "";
}

// Runs that take about the same time a step.
std::string kind_of(const RunConfig& config) {
  return fmt::format("{}x{} {} {} {}", config.layout.world_size, config.layout.rows_per_rank,
                     static_cast<int>(config.backend), spec_of(config).objective(config), config.forced.on());
}

struct Rate {
  double seconds = 0;
  double steps = 0;
};

std::set<std::string> folders_in(const fs::path& path) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    names.insert(at->path().filename().string());
  }
  return names;
}

}  // namespace

/// Seconds that a run takes alone on a machine of two cores, if nothing better is known.
static double modelled_s(const PlannedRun& run) {
  // Rough figures of a small model on two cores: good enough to order runs and to tell minutes from hours.
  constexpr double kStartS = 0.05, kStartRankS = 0.04;
  constexpr double kBaseMs = 1.0, kRowMs = 0.08, kRankMs = 0.65, kRealRankMs = 5.0;
  const RunConfig& config = run.config;
  const int ranks = config.layout.world_size;
  const bool real = config.backend == Backend::gloo && ranks > 1;
  constexpr double kFlopsAMs = 15e6;
  const RunCosts costs = costs_of(config);
  const double slower = computed_precision(config) == Precision::float64 ? 2 : 1;
  double step_ms = kBaseMs + std::max(kRowMs * config.layout.global_batch(), slower * ranks * costs.step_flops / kFlopsAMs);
  if (ranks > 1) step_ms += (real ? kRealRankMs : kRankMs) * ranks;
  constexpr double kExactRowMs = 0.8;  // each row by itself, whoever has it
  if (config.arithmetic == Arithmetic::exact) step_ms += kExactRowMs * config.layout.global_batch();
  // Further backward passes, that measure how large the terms of gradients are.
  constexpr double kTermPasses = 8;
  const bool of_terms = run.role == RunRole::forced_reference || run.role == RunRole::forced_twin;
  constexpr double kTermRows = 128;  // of a larger batch no more are measured
  if (of_terms && config.layout.world_size == 1) step_ms *= 1 + kTermPasses * std::min(1.0, kTermRows / config.layout.global_batch());
  const auto steps = static_cast<double>(steps_to_run(config));
  return kStartS + (real ? kStartRankS * ranks : 0) + steps * step_ms / 1000 + modelled_evaluation_s(run);
}

double modelled_evaluation_s(const PlannedRun& run) {
  constexpr double kLeast_s = 0.002, kFlopsAS = 2.5e10;
  const RunConfig& config = run.config;
  if (config.forced.on()) return 0;
  const RunCosts costs = costs_of(config);
  const auto all = static_cast<double>(config.eval_every.evaluations(steps_to_run(config)));
  return all * kLeast_s + (std::min(all, 1.0) * costs.evaluation_flops + std::max(all - 1, 0.0) * costs.curve_flops) / kFlopsAS;
}

double modelled_trace_bytes(const PlannedRun& run) {
  // A record's name, shape and statistics; a float.
  constexpr double kRecord = 120, kValue = 4;
  const RunConfig& config = run.config;
  const std::vector<ModelParameter> parameters = spec_of(config).parameters(config, config.data.channels);
  double values = 0;
  for (const ModelParameter& parameter : parameters) values += static_cast<double>(parameter.elements());
  const auto tensors = static_cast<double>(parameters.size());
  const auto steps = static_cast<double>(steps_to_run(config));
  const double ranks = config.layout.world_size, rows = config.layout.global_batch();
  const double records = steps * ranks * kRecord * (3 * tensors + 15);
  if (!config.forced.on()) {
    const double whole = config.trace == TraceLevel::full ? steps * values * kValue * (ranks + 2) : 0;
    const bool moments = config.optimizer != OptimizerKind::sgd;
    const auto snapshots = static_cast<double>(config.snapshot_steps.size() + 1);
    return records + whole + snapshots * values * kValue * (moments ? 3 : 1);
  }
  // Every rank's local gradients, rank 0's reduced ones and parameters, sums of terms; the block of energies.
  const double moments = config.optimizer == OptimizerKind::sgd ? 0 : 2;
  return records + steps * (config.forced.twin ? 2 : 1) * kValue * (values * (ranks + 3 + moments) + rows * rows);
}

void apply_history(std::vector<PlannedRun>& runs, const std::string& out_dir, const BuildIdentity& identity) {
  const fs::path folder = fs::path(out_dir) / "runs";
  const std::set<std::string> present = folders_in(folder);
  std::map<std::string, Rate> rates;
  std::unordered_map<std::string, const PlannedRun*> by_id;
  std::vector<double> known(runs.size(), 0);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    PlannedRun& run = runs[i];
    by_id.emplace(run.id, &run);
    if (!present.contains(run.id)) {
      run.why = changed_config(run, folder.string(), present);
      if (run.why.empty()) run.why = "has not run here";
      continue;
    }
    const std::optional<Done> done = read_done(folder / run.id / "done");
    if (!done) {
      run.why = "was started but not finished";
      continue;
    }
    if (!done->problem.empty()) {
      run.why = "its done file " + done->problem;
      continue;
    }
    known[i] = done->seconds;
    Rate& rate = rates[kind_of(run.config)];
    rate.seconds += done->seconds;
    rate.steps += static_cast<double>(steps_to_run(run.config));
    run.why = difference(*done, run, identity);
    // Time is measured anew whatever there is.
    if (run.why.empty() && !run.exclusive) {
      run.why = evidence_problem((folder / run.id).string(), done->files);
      run.damaged = !run.why.empty();
    }
    run.reused = run.why.empty();
    if (run.reused) run.why = "finished with the same config, build, LibTorch, instruction set and data";
    // References stand before what needs them, so one pass carries a rerun on.
    for (const std::string& need : run.needs) {
      const auto at = by_id.find(need);
      if (run.reused && (at == by_id.end() || !at->second->reused)) {
        run.reused = false;
        run.why = fmt::format("it reads {}, which runs again", need);
      }
    }
  }
  for (PlannedRun& run : runs) {
    if (!run.exclusive) continue;
    run.reused = false;
    run.why = "it measures time, and timings are never reused";
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].memory_bytes = modelled_memory_bytes(runs[i].config);
    runs[i].estimate_s = known[i];
    if (known[i] > 0) continue;
    const auto rate = rates.empty() ? rates.end() : rates.find(kind_of(runs[i].config));
    const bool measured = rate != rates.end() && rate->second.steps > 0 && rate->second.seconds > 0;
    runs[i].estimate_s = measured ? rate->second.seconds / rate->second.steps *
                                        static_cast<double>(steps_to_run(runs[i].config))
                                  : modelled_s(runs[i]);
  }
}

namespace {

constexpr std::size_t kHashDigits = 8;
constexpr std::size_t kBlockBytes = 64 * 1024;  ///< of a file: damage is known to lie in one of them
constexpr std::size_t kMostCandidates = 8;
constexpr std::size_t kMostKeys = 3;

struct Fingerprint {
  std::size_t bytes = 0;
  std::vector<std::string> blocks;  ///< XXH3 of each 64 KiB
};

/// Returns what keeps the file from being read to its end, or nothing.
std::string take_fingerprint(const fs::path& path, Fingerprint& print) {
  return OpenFile(path.string()).read_blocks(kBlockBytes, [&print](std::string_view block) {
    print.bytes += block.size();
    print.blocks.push_back(hash_in_hex(block));
  });
}

std::vector<std::string> evidence_in(const std::string& run_folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(run_folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (is_evidence(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<RunConfig> config_in(const fs::path& run_json) {
  std::string problem;
  const std::optional<nlohmann::json> json = read_sealed(run_json.string(), problem);
  if (!json || !json->contains("config")) return std::nullopt;
  const auto at = json->find("config");
  try {
    return run_config_from_json(at->dump(), run_json.string());
  } catch (const ConfigError&) {
    return std::nullopt;  // of a version that had other keys
  }
}

/// "steps was 100, is 101", one a key.
std::vector<std::string> differing_keys(const RunConfig& was, const RunConfig& is) {
  const auto before_all = config_fields(was), now = config_fields(is);
  const std::map<std::string, std::string> before(before_all.begin(), before_all.end());
  std::vector<std::string> keys, following;
  for (const auto& [name, value] : now) {
    const auto was_it = before.find(name);
    if (was_it == before.end() || was_it->second == value) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "''" : text; };
    std::string words =
        fmt::format("{} was {}, is {}", name, shown(was_it->second), shown(value));
    // These follow from other keys: the rest says more.
    const bool follows = name == "snapshot_steps" || name.starts_with("forced.");
    (follows ? following : keys).push_back(std::move(words));
  }
  if (keys.empty()) keys = std::move(following);
  return keys;
}

bool is_hash(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace

bool is_evidence(const std::string& file_name) {
  return file_name == "run.json" || (file_name.starts_with("rank-") &&
                                     (file_name.ends_with(".trace") || file_name.ends_with(".result.json") || file_name.ends_with(".probe.json")));
}

std::string evidence_json(const std::string& run_folder) {
  nlohmann::json files = nlohmann::json::object();
  for (const std::string& name : evidence_in(run_folder)) {
    const fs::path path = fs::path(run_folder) / name;
    Fingerprint found;
    const std::string problem = take_fingerprint(path, found);
    if (!problem.empty()) throw MachineError(fmt::format("{}: {}", path.string(), problem));
    files[name] = {{"bytes", found.bytes}, {"xxh3", found.blocks}};
  }
  return files.dump();
}

std::string evidence_problem(const std::string& run_folder, const std::string& files) {
  const nlohmann::json expected = parse_json(files);
  if (!expected.is_object()) return "its done file is malformed";
  if (!expected.contains("run.json")) return "its done file lists no checksum of run.json";
  for (const auto& [name, was] : expected.items()) {
    const auto bytes = was.find("bytes"), blocks = was.find("xxh3");
    if (!was.is_object() || bytes == was.end() || blocks == was.end() || !blocks->is_array()) {
      return fmt::format("its done file has no checksum of {}: an earlier version wrote it", name);
    }
    Fingerprint is;
    if (!take_fingerprint(fs::path(run_folder) / name, is).empty())
      return fmt::format("its {} is missing", name);
    if (*bytes != is.bytes)
      return fmt::format("its {} has {} bytes and had {}", name, is.bytes, bytes->dump());
    for (std::size_t i = 0; i < is.blocks.size(); ++i) {
      if (i < blocks->size() && (*blocks)[i] == is.blocks[i]) continue;
      return fmt::format(
          "its {} is damaged between bytes {} and {}: their XXH3 is {}, and was {} when the run finished",
          name, i * kBlockBytes, std::min((i + 1) * kBlockBytes, is.bytes), is.blocks[i],
          i < blocks->size() && (*blocks)[i].is_string() ? (*blocks)[i].get<std::string>() : "not noted");
    }
  }
  for (const std::string& name : evidence_in(run_folder)) {
    if (!expected.contains(name)) return fmt::format("its {} did not exist when it finished", name);
  }
  return "";
}

std::string changed_config(const PlannedRun& run, const std::string& runs_folder,
                           const std::set<std::string>& present) {
  if (run.id.size() <= kHashDigits) return "";
  const std::string name = run.id.substr(0, run.id.size() - kHashDigits);
  std::vector<std::string> fewest;
  std::size_t candidates = 0;
  for (auto at = present.lower_bound(name); at != present.end() && at->starts_with(name); ++at) {
    if (at->size() != run.id.size() || !is_hash(std::string_view(*at).substr(name.size()))) continue;
    if (++candidates > kMostCandidates) break;
    const std::optional<RunConfig> config = config_in(fs::path(runs_folder) / *at / "run.json");
    if (!config) continue;
    std::vector<std::string> keys = differing_keys(*config, run.config);
    if (!keys.empty() && (fewest.empty() || keys.size() < fewest.size())) fewest = std::move(keys);
  }
  if (fewest.empty()) return "";
  const std::size_t more = fewest.size() > kMostKeys ? fewest.size() - kMostKeys : 0;
  fewest.resize(std::min(fewest.size(), kMostKeys));
  return fmt::format("ran here with a different config: {}{}", fmt::join(fewest, "; "),
                     more > 0 ? fmt::format("; {} more keys", more) : "");
}

}  // namespace lockstep
