#include "harness/verdict/evidence/arms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/base/errors.h"
#include "harness/base/read_file.h"
#include "harness/base/sealed_json.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Results read_results_of(const std::string& out_dir) {
  const std::string path = out_dir + "/results.json";
  try {
    return results_from_json(read_whole(path), path);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw ConfigError(error.what());
  }
}

/// Seeds of one arm share all but the seed, and the snapshots that the first seed keeps for forced runs.
std::string seedless(RunConfig config) {
  config.seed = 0;
  config.snapshot_steps.clear();
  return canonical_json(config);
}

bool trains_freely(const RunRecord& record) { return record.role == "reference" || record.role == "cell"; }

RunEvidence evidence_at(const RunRecord& record, const std::string& dir, const std::string& metric) {
  PlannedRun run;
  run.id = record.id;
  run.role = record.role == "reference" ? RunRole::reference : RunRole::cell;
  run.cell = record.cell;
  run.config = record.config;
  run.hash = config_hash(record.config);
  return gather_run(run, dir, nullptr, read_rank_result, metric);
}

std::string judged_metric(const Arm& arm, const std::string& metric) {
  return metric.empty() ? arm.primary.value_or(Primary{}).metric : metric;
}

/// All run.json files under OUT/runs, read once; ranks' results of an arm's runs only when it is asked for.
class RunIndex {
 public:
  explicit RunIndex(const std::string& out_dir) : out_dir_(out_dir) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(out_dir + "/runs", error)) {
      try {
        if (auto record = read_run_record(entry.path().string())) {
          if (trains_freely(*record)) by_config_[seedless(record->config)].push_back(std::move(*record));
        }
      } catch (const ConfigError& unreadable) {
        // It may belong to no arm that is asked for; if an arm lacks a run, this may be the one.
        if (first_unreadable_.empty()) first_unreadable_ = unreadable.what();
      }
    }
  }

  /// `first_run`: the id of one of its runs, which says what the others are like.
  void take_runs(const std::string& first_run, const std::vector<int64_t>& seeds, const std::string& metric,
                 Arm& arm) const {
    const std::string first_dir = out_dir_ + "/runs/" + first_run;
    const auto first = first_run.empty() ? std::nullopt : read_run_record(first_dir);
    if (!first) {
      throw ConfigError(
          fmt::format("{}: {} has no run there; only the results have its figures", out_dir_, arm.name));
    }
    arm.config = first->config;
    const auto alike = by_config_.find(seedless(first->config));
    for (const int64_t seed : seeds) {
      const RunRecord* found = nullptr;
      if (alike != by_config_.end()) {
        for (const RunRecord& record : alike->second) {
          if (record.config.seed == seed && (!found || record.id == first_run)) found = &record;
        }
      }
      if (!found && !first_unreadable_.empty()) throw ConfigError(first_unreadable_);
      if (!found) {
        arm.missing.push_back(seed);
        continue;
      }
      const std::string dir = out_dir_ + "/runs/" + found->id;
      arm.runs.emplace(seed, ArmRun{dir, *found, evidence_at(*found, dir, metric)});
    }
  }

 private:
  std::string out_dir_, first_unreadable_;
  std::map<std::string, std::vector<RunRecord>> by_config_;
};

/// An arm that the results name, before its runs are read.
struct NamedArm {
  Arm arm;
  std::string first_run;
  std::vector<int64_t> seeds;
};

std::vector<NamedArm> named_arms(const std::string& out_dir, const Results& results) {
  std::vector<NamedArm> arms;
  std::map<std::string, NamedArm> references;
  std::set<std::string> names;
  for (const CellResult& cell : results.cells) {
    NamedArm named;
    named.arm.name = cell.scenario;
    named.arm.place = out_dir;
    named.arm.question = results.question;
    named.arm.primary = results.primary;
    named.first_run = cell.run;
    named.seeds = cell.outcome ? cell.outcome->seeds : results.seeds;
    NamedArm reference = named;
    reference.arm.name = cell.reference;
    reference.arm.is_reference = true;
    reference.first_run = cell.reference_run;
    NamedArm& known = references.try_emplace(cell.reference, reference).first->second;
    for (const int64_t seed : named.seeds) {
      if (std::ranges::find(known.seeds, seed) == known.seeds.end()) known.seeds.push_back(seed);
    }
    names.insert(cell.scenario);
    arms.push_back(std::move(named));
  }
  for (auto& [name, reference] : references) {
    if (!name.empty() && !names.contains(name)) arms.push_back(std::move(reference));
  }
  return arms;
}

Arm single_run(const std::string& dir, const std::string& metric) {
  const auto record = read_run_record(dir);
  if (!record) throw ConfigError(dir + ": has no run.json, which describes the run");
  if (!trains_freely(*record))
    throw ConfigError(fmt::format("{}: is a run of the role {}, which has no outcome", dir, record->role));
  Arm arm;
  arm.name = record->id;
  arm.place = dir;
  arm.single = true;
  arm.config = record->config;
  // A run of a matrix: what that declared holds for it.
  const std::string out_dir = (fs::absolute(dir).lexically_normal() / "../..").lexically_normal().string();
  if (is_output_folder(out_dir)) {
    const Results results = read_results_of(out_dir);
    arm.question = results.question;
    arm.primary = results.primary;
  }
  arm.runs.emplace(record->config.seed,
                   ArmRun{dir, *record, evidence_at(*record, dir, judged_metric(arm, metric))});
  return arm;
}

std::vector<Arm> read_some(const std::string& out_dir, const std::string& wanted, const std::string& metric) {
  const std::vector<NamedArm> named = named_arms(out_dir, read_results_of(out_dir));
  const RunIndex index(out_dir);
  std::vector<Arm> arms;
  std::vector<std::string> names;
  for (const NamedArm& each : named) {
    names.push_back(each.arm.name);
    if (!wanted.empty() && each.arm.name != wanted) continue;
    arms.push_back(each.arm);
    index.take_runs(each.first_run, each.seeds, judged_metric(each.arm, metric), arms.back());
  }
  if (arms.empty()) {
    throw ConfigError(wanted.empty() ? out_dir + ": its results have no cell"
                                     : fmt::format("{}: there is no cell '{}'; it has these: {}", out_dir,
                                                   wanted, fmt::join(names, ", ")));
  }
  return arms;
}

}  // namespace

std::string read_whole(const std::string& path) {
  FileText file = read_file(path);
  if (!file) throw ConfigError({ConfigProblem{path, 0, 0, file.problem, ""}});
  return std::move(file.text);
}

std::optional<RunRecord> read_run_record(const std::string& run_dir) {
  const std::string path = run_dir + "/run.json";
  if (!fs::exists(path)) return std::nullopt;
  RunRecord record;
  try {
    std::string problem;
    const std::optional<json> sealed = read_sealed(path, problem);
    if (!sealed)
      throw ConfigError(path + " " + problem + "; run its matrix again to retrain this run");
    const json& document = *sealed;
    record.config = run_config_from_json(document.at("config").dump(), path);
    record.id = document.value("id", fs::path(run_dir).filename().string());
    record.role = document.value("role", "");
    record.cell = document.value("cell", "");
    const json facts = document.value("provenance", json::object());
    for (const auto& [key, value] : facts.items()) {
      if (value.is_string()) record.provenance[key] = value.get<std::string>();
    }
    record.started = record.provenance["started"];
  } catch (const json::exception&) {
    throw ConfigError(path + ": not a run's description: a key is missing or has another type");
  }
  return record;
}

std::string title_of(const Arm& arm) { return fmt::format("{} ({})", arm.name, arm.place); }

bool is_run_folder(const std::string& path) {
  return fs::exists(path + "/run.json") || fs::exists(path + "/rank-0.trace");
}

bool is_output_folder(const std::string& path) { return fs::exists(path + "/results.json"); }

std::vector<Arm> read_all_arms(const std::string& out_dir, const std::string& metric) {
  return read_some(out_dir, "", metric);
}

std::vector<Arm> read_arms(const std::string& word, const std::string& metric) {
  if (fs::is_directory(word)) {
    if (is_output_folder(word)) {
      std::vector<Arm> arms = read_all_arms(word, metric);
      // What is compared by name are cells; a reference is named where it is meant.
      std::erase_if(arms, [](const Arm& arm) { return arm.is_reference; });
      return arms;
    }
    if (is_run_folder(word)) return {single_run(word, metric)};
    throw ConfigError(
        word +
        ": has neither results.json, which `lockstep run` writes when a matrix has finished, nor "
        "run.json");
  }
  // A path may hold colons itself: the name follows the first one behind which there is a folder.
  for (std::size_t at = word.find(':'); at != std::string::npos; at = word.find(':', at + 1)) {
    const std::string folder = word.substr(0, at);
    if (!fs::is_directory(folder)) continue;
    if (!is_output_folder(folder))
      throw ConfigError(folder + ": has no results.json; no cell can be named in it");
    return read_some(folder, word.substr(at + 1), metric);
  }
  throw ConfigError(word + ": no such folder");
}

std::optional<Failure> failure_of(const Arm& arm) {
  for (const auto& [seed, run] : arm.runs) {
    if (run.evidence.failure) return run.evidence.failure;
  }
  return std::nullopt;
}

MetricsBySeed metrics_of(const Arm& arm) {
  MetricsBySeed metrics;
  for (const auto& [seed, run] : arm.runs) metrics[seed] = run.evidence.metrics;
  return metrics;
}

}  // namespace lockstep
