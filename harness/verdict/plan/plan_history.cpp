#include "harness/verdict/plan/plan_history.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/hashing.h"
#include "harness/base/json.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/planned_run.h"

namespace lockstep {
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
