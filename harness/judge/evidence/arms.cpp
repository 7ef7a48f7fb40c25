#include "harness/judge/evidence/arms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ranges>
#include <set>

#include "harness/answer/results/words.h"
#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/judge/evidence/parts.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"

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

std::vector<Arm> read_arms(const std::string& word, const std::string& metric) {
  if (fs::is_directory(word)) {
    if (is_output_folder(word)) {
      std::vector<Arm> arms = read_some(word, "", metric);
      // What is compared by name are cells; a reference is named where it is meant.
      std::erase_if(arms, [](const Arm& arm) { return arm.is_reference; });
      return arms;
    }
    if (is_run_folder(word)) return {single_run(word, metric)};
    throw ConfigError(
        word +
        ": has neither results.json, which `lockstep run` writes when a matrix has finished, nor run.json");
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

namespace {

bool are_same_runs(const Arm& a, const Arm& b) {
  std::error_code error;
  return a.name == b.name && std::filesystem::equivalent(a.place, b.place, error);
}

const Arm* named(const std::vector<Arm>& arms, const std::string& name) {
  const auto found = std::ranges::find(arms, name, &Arm::name);
  return found == arms.end() ? nullptr : &*found;
}

const Arm& partner_of(const Arm& arm, const std::vector<Arm>& among) {
  if (const Arm* found = named(among, arm.name)) return *found;
  throw ConfigError(fmt::format("{}: which cell is to be compared with {}? It has {}; name one: {}:CELL",
                                among.front().place, title_of(arm),
                                fmt::join(among | std::views::transform(&Arm::name), ", "), among.front().place));
}

std::string seeds_alone(const Arm& arm, const Arm& other) {
  std::vector<int64_t> seeds;
  for (const auto& [seed, run] : arm.runs) {
    if (!other.runs.contains(seed)) seeds.push_back(seed);
  }
  return seeds.empty() ? "" : fmt::format("{} ({} alone)", fmt::join(seeds, ", "), title_of(arm));
}

}  // namespace

static ConfigProblem problem_of(const std::string& where, std::string what) {
  return {where, 0, 0, std::move(what), ""};
}

MatchedArms match_arms(std::vector<Arm> reference, std::vector<Arm> cell) {
  MatchedArms matched;
  if (reference.size() == 1 && cell.size() == 1) {
    matched.pairs.push_back({reference.front(), cell.front(), {}});
  } else if (reference.size() == 1) {
    matched.pairs.push_back({reference.front(), partner_of(reference.front(), cell), {}});
  } else if (cell.size() == 1) {
    matched.pairs.push_back({partner_of(cell.front(), reference), cell.front(), {}});
  } else {
    for (const auto& [own, others] : {std::pair(&reference, &cell), {&cell, &reference}}) {
      for (const Arm& arm : *own) {
        const Arm* partner = named(*others, arm.name);
        if (!partner) matched.alone.push_back("the cell " + title_of(arm) + " has no counterpart of the same name");
        if (partner && own == &reference) matched.pairs.push_back({arm, *partner, {}});
      }
    }
  }
  for (const ArmPair& pair : matched.pairs) {
    if (are_same_runs(pair.reference, pair.cell)) {
      throw ConfigError(fmt::format("{}: both sides are the same runs; name two cells: OUT:CELL",
                                    title_of(pair.reference)));
    }
  }
  return matched;
}

void require_same_question(MatchedArms& matched, const Given& given, bool across) {
  std::vector<ConfigProblem> problems;
  for (ArmPair& pair : matched.pairs) {
    pair.differences = question_differences(pair.reference, pair.cell, given);
    for (const QuestionDifference& difference : pair.differences) {
      problems.push_back(problem_of(fmt::format("{} against {}", title_of(pair.cell), title_of(pair.reference)),
                                    "different question: " + difference_text(difference)));
    }
  }
  for (const std::string& alone : matched.alone) problems.push_back(problem_of("compare", alone));
  if (!matched.pairs.empty() && (across || problems.empty())) return;
  problems.push_back(
      problem_of("compare", matched.pairs.empty()
                                ? "no cell of either side has a counterpart of the same name on the other"
                                : "--across compares them anyway, and shows how they differ"));
  throw ConfigError(problems);
}

void require_paired_seeds(const std::vector<ArmPair>& pairs) {
  std::vector<ConfigProblem> problems;
  for (const ArmPair& pair : pairs) {
    for (const std::string& alone :
         {seeds_alone(pair.reference, pair.cell), seeds_alone(pair.cell, pair.reference)}) {
      if (!alone.empty())
        problems.push_back(problem_of(
            "compare", "seeds without a partner: " + alone + "; a paired comparison needs both runs of each seed"));
    }
    for (const Arm* arm : {&pair.reference, &pair.cell}) {
      if (!arm->missing.empty())
        problems.push_back(problem_of(
            title_of(*arm), fmt::format("the runs of seeds {} no longer exist", fmt::join(arm->missing, ", "))));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
}

std::string difference_text(const QuestionDifference& difference) {
  return fmt::format("{} is {} against {}", difference.what, difference.b.empty() ? "empty" : difference.b,
                     difference.a.empty() ? "empty" : difference.a);
}

PlannedArms::PlannedArms(const Plan& plan) : plan_(plan) {
  for (const Cell& cell : plan.matrix.cells) cell_hashes_.emplace(cell.name, config_hash(as_it_runs(cell.config)));
}

std::vector<SeedPair> PlannedArms::pair_seeds(const Cell& cell) const {
  // A plan holds each distinct run once: a seed of a cell that equals its reference's is found by its hash.
  auto by_hash = [&](RunConfig config, int64_t seed) -> const PlannedRun* {
    config.seed = seed;
    const std::string hash = config_hash(as_it_runs(std::move(config)));
    const auto found = std::ranges::find_if(plan_.runs, [&](const PlannedRun& run) {
      return run.hash == hash && (run.role == RunRole::cell || run.role == RunRole::reference);
    });
    return found == plan_.runs.end() ? nullptr : &*found;
  };
  std::vector<SeedPair> pairs;
  for (int64_t seed : seeds_of(plan_.matrix, cell)) {
    SeedPair pair{seed, find_run(plan_, cell.name, RunRole::cell, seed),
                  find_run(plan_, cell.reference_name, RunRole::reference, seed)};
    // Of cells that do not train, gradients at the reference's weights are all that there is.
    if (!asked_by(plan_.matrix).trains || !plan_.matrix.replay.empty()) {
      pair.cell = single_run(cell, RunRole::forced_cell);
    } else if (!pair.cell) {
      pair.cell = by_hash(cell.config, seed);
    }
    if (!plan_.matrix.replay.empty()) {
      pair.reference = find_run(plan_, cell.reference_name, RunRole::forced_reference, seed);
    } else if (!pair.reference) {
      pair.reference = by_hash(cell.reference, seed);
    }
    pairs.push_back(pair);
  }
  return pairs;
}

const PlannedRun* PlannedArms::single_run(const Cell& cell, RunRole role) const {
  if (const PlannedRun* run = find_run(plan_, cell.name, role, cell.config.seed)) return run;
  const bool carried = role == RunRole::certify || role == RunRole::certify_forced;
  // A forced run is at one reference's snapshots, and a real prefix has one transport.
  const auto serves = [&](const Cell& other) {
    return cell_hashes_.at(other.name) == cell_hashes_.at(cell.name) &&
           (role != RunRole::forced_cell || same_config(as_it_runs(other.reference), as_it_runs(cell.reference))) &&
           (!carried || other.config.transport == cell.config.transport);
  };
  for (const Cell& other : plan_.matrix.cells) {
    if (other.name == cell.name || !serves(other)) continue;
    if (const PlannedRun* run = find_run(plan_, other.name, role, cell.config.seed)) return run;
  }
  return nullptr;
}

std::vector<const PlannedRun*> PlannedArms::forced_runs(const Cell& cell) const {
  std::vector<const PlannedRun*> runs;
  const PlannedRun* forced_cell = single_run(cell, RunRole::forced_cell);
  if (!forced_cell) return runs;
  const auto add = [&](const PlannedRun* run) {
    if (run && std::ranges::find(runs, run) == runs.end()) runs.push_back(run);
  };
  add(forced_cell);
  add(twin_of(*forced_cell));
  for (const PlannedRun& run : plan_.runs) {
    if (run.role != RunRole::forced_reference || !run.config.forced.has_states_of(forced_cell->config.forced)) continue;
    if (run.config.layout != cell.reference.layout) continue;
    add(&run);
    add(twin_of(run));
  }
  return runs;
}

const PlannedRun* PlannedArms::twin_of(const PlannedRun& forced) const {
  if (plan_.matrix.band.exact > 0) return nullptr;
  if (forced.config.precision == Precision::float64) return &forced;
  return run_of(twin_config(forced.config));
}

const PlannedRun* PlannedArms::run_of(const RunConfig& config) const {
  const auto found = std::ranges::find(plan_.runs, config_hash(as_it_runs(config)), &PlannedRun::hash);
  return found == plan_.runs.end() ? nullptr : &*found;
}

namespace {

using Differences = std::vector<QuestionDifference>;

void note(Differences& differences, const std::string& what, const std::string& a, const std::string& b) {
  if (a != b) differences.push_back({what, a, b});
}

/// These keys say how rows are fetched, not which rows.
bool is_about_speed(const std::string& key) { return key == "data.cache" || key == "data.prefetch"; }

void note_length(Differences& differences, const std::string& what, int64_t a, int64_t b,
                 const RunConfig& run_a, const RunConfig& run_b) {
  const int64_t batch_a = run_a.layout.global_batch(), batch_b = run_b.layout.global_batch();
  // A run with another batch has seen as much if it has seen as many samples.
  if (batch_a == batch_b || a * batch_a == b * batch_b) {
    if (batch_a == batch_b && a != b)
      note(differences, what, fmt::format("{} steps", a), fmt::format("{} steps", b));
    return;
  }
  note(differences, what, fmt::format("{} samples", a * batch_a), fmt::format("{} samples", b * batch_b));
}

/// Empty where the trainer is none of ours.
std::string shown_metric_of(const RunConfig& config) {
  const TrainerSpec* trainer = find_trainer_spec(config.trainer);
  return trainer ? std::string(trainer->shown_metric) : "";
}

void refuse_out_of_range(const Primary& primary) {
  std::vector<ConfigProblem> problems;
  if (!(primary.margin > 0) || !std::isfinite(primary.margin))
    problems.push_back(problem_of("--margin", fmt::format("the margin is {}; it must be above 0", primary.margin)));
  if (!(primary.alpha > 0 && primary.alpha < 0.5))
    problems.push_back(problem_of("--alpha", fmt::format("alpha is {}; it must lie in (0, 0.5)", primary.alpha)));
  if (!problems.empty()) throw ConfigError(problems);
}

using Shapes = std::map<std::string, std::vector<int64_t>>;

/// Of all parameters that the run first records, the whole's; nothing where one may be a part of a tensor.
std::optional<Shapes> shapes_of(const std::string& dir) {
  RunReader run(dir);
  Shapes shapes;
  while (const std::optional<StepOfRun> step = shapes.empty() ? run.next() : std::nullopt) {
    for (const StepRecords& rank : step->ranks) {
      for (const Record& record : rank.records) {
        if (record.phase != Phase::parameters || record.name.starts_with("buffer/")) continue;
        if (!record.replicated && !record.placement && step->ranks.size() > 1) return std::nullopt;
        shapes.emplace(record.name, record.placement ? record.placement->whole : record.shape);
      }
    }
  }
  return shapes;
}

/// What optimizers hold of flattened parameters is no evidence of another model: a piece of one dimension where the other run has
/// another shape, nor a tensor without a name of its own.
void leave_out_flat(Shapes& a, Shapes& b) {
  const auto is_flat = [](const auto& each, const Shapes& others) {
    const auto other = others.find(each.first);
    const bool is_other = other != others.end() && other->second != each.second;
    return each.first.starts_with("unnamed") || (is_other && (each.second.size() == 1 || other->second.size() == 1));
  };
  const Shapes whole_a = a;
  std::erase_if(a, [&](const auto& each) { return is_flat(each, b); });
  std::erase_if(b, [&](const auto& each) { return is_flat(each, whole_a); });
}

}  // namespace

void require_one_model(const std::string& run_a, const std::string& run_b) {
  std::optional<Shapes> a = shapes_of(run_a), b = shapes_of(run_b);
  if (!a || !b) return;
  const std::size_t all_of_a = a->size(), all_of_b = b->size();
  leave_out_flat(*a, *b);
  if (a->empty() || b->empty()) return;
  std::multiset<std::vector<int64_t>> left;
  for (const auto& [name, shape] : *b) left.insert(shape);
  std::size_t alike = 0, of_one_shape = 0;
  std::vector<std::string> told;
  for (const auto& [name, shape] : *a) {
    const auto other = b->find(name);
    alike += other != b->end() && other->second == shape;
    if (const auto found = left.find(shape); found != left.end()) ++of_one_shape, left.erase(found);
    if (told.size() < 3 && (other == b->end() || other->second != shape)) {
      told.push_back(fmt::format("{} is [{}] and {}", name, fmt::join(shape, ", "),
                                 other == b->end() ? "missing" : fmt::format("[{}]", fmt::join(other->second, ", "))));
    }
  }
  if (2 * std::max(alike, of_one_shape) >= std::min(a->size(), b->size())) return;
  throw ConfigError(fmt::format("{} and {}: these are not two runs of one model: of {} and {} parameters {} agree in name and shape; {}", run_a, run_b, all_of_a,
                                all_of_b, alike, fmt::join(told, ", ")));
}

std::vector<QuestionDifference> data_differences(const RunConfig& a, const RunConfig& b) {
  Differences differences;
  note(differences, "trainer", a.trainer, b.trainer);
  const auto rows_a = config_fields(a), rows_b = config_fields(b);
  const std::map<std::string, std::string> other(rows_b.begin(), rows_b.end());
  for (const auto& [key, value] : rows_a) {
    if (key.starts_with("data.") && !is_about_speed(key)) note(differences, key, value, other.at(key));
  }
  return differences;
}

/// Those, then evaluation, and steps (samples, where the batches differ). Layout, objective and rule of the
/// learning rate are what is compared: they make no other question.
static std::vector<QuestionDifference> run_differences(const RunConfig& a, const RunConfig& b) {
  Differences differences = data_differences(a, b);
  // Evaluations after as many steps or as many samples are the same evaluations.
  if (a.eval_every.is_never() != b.eval_every.is_never()) {
    const auto words = [](const RunConfig& run) { return std::string(run.eval_every.is_never() ? "never" : "evaluated"); };
    note(differences, "eval_every", words(a), words(b));
  } else if (a.eval_every != b.eval_every) {
    note_length(differences, "eval_every", a.eval_every.steps(), b.eval_every.steps(), a, b);
  }
  note_length(differences, "steps", steps_to_run(a), steps_to_run(b), a, b);
  return differences;
}

std::vector<QuestionDifference> question_differences(const Arm& a, const Arm& b, const Given& given) {
  Differences differences = run_differences(a.config, b.config);
  if (a.question && b.question) note(differences, "question", *a.question, *b.question);
  if (!a.primary || !b.primary) return differences;
  const auto number = [](double value) { return fmt::format("{}", value); };
  if (given.metric.empty()) note(differences, "primary.metric", a.primary->metric, b.primary->metric);
  if (!given.margin)
    note(differences, "primary.margin", number(a.primary->margin), number(b.primary->margin));
  if (!given.alpha) note(differences, "primary.alpha", number(a.primary->alpha), number(b.primary->alpha));
  note(differences, "primary.test", name_of(a.primary->test), name_of(b.primary->test));
  return differences;
}

Primary primary_of(const Arm& a, const Arm& b, const Given& given) {
  const std::optional<Primary>& declared = a.primary ? a.primary : b.primary;
  Primary primary = declared.value_or(Primary{});
  if (primary.metric.empty()) primary.metric = shown_metric_of(a.config);
  if (!given.metric.empty()) primary.metric = given.metric;
  if (given.alpha) primary.alpha = *given.alpha;
  if (given.margin) {
    primary.margin = *given.margin;
  } else if (!declared) {
    throw ConfigError("--margin: no matrix declares one for these runs; a margin is in units of the metric");
  } else if (primary.metric != declared->metric) {
    throw ConfigError(fmt::format("--margin: the declared one ({}) is of {}; {} needs its own",
                                  declared->margin, declared->metric, primary.metric));
  }
  refuse_out_of_range(primary);
  return primary;
}

namespace {

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
  if (home != home_of(cell_dir)) return std::nullopt;
  const std::vector<ForcedRun> runs = forced_runs_in(home);
  std::set<std::string> others;
  for (const ForcedRun& run : runs) others.insert(run.config.forced.from);
  const RunConfig of_reference = without_forcing(reference.config), of_cell = without_forcing(cell.config);
  const std::string& from = reference.config.forced.on() ? reference.config.forced.from : reference.id;
  if (auto own = at_snapshots_of(from, runs, of_reference, of_cell)) return own;
  for (const std::string& id : others) {
    if (auto other = at_snapshots_of(id, runs, of_reference, of_cell)) return other;
  }
  return std::nullopt;
}

}  // namespace lockstep
