#include "harness/cli/session/prepare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/hashing.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/run/libraries.h"
#include "harness/run/probe.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/config/metrics.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/interim_analyses.h"
#include "harness/verdict/plan/launcher_choice.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/planned_run.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/questions/question_judge.h"

namespace lockstep {
namespace {

/// What a config says of its data: equal ones read the same. How rows are read ahead or kept is no part of it.
std::string key_of(const RunConfig& config) {
  std::string key = config.trainer;
  if (spec_of(config).is_command()) {
    for (const RunField& field : spec_of(config).fields()) key += fmt::format("\n{}={}", field.spec.key, text_of(field.of(config)));
    return key;
  }
  for (const RunField* field : fields_of(spec_of(config))) {
    const std::string_view name = field->spec.key;
    if (!name.starts_with("data.") || name == "data.cache" || name == "data.prefetch") continue;
    key += fmt::format("\n{}={}", name, text_of(field->of(config)));
  }
  // Of a trainer that makes its data they follow from keys of its own, too.
  if (const auto counts = spec_of(config).counted_samples(config)) {
    key += fmt::format("\n{} {} {}", counts->train, counts->holdout, counts->test);
  }
  return key;
}

/// What the samples that were read do not allow, in words, and in how many runs of cells.
class SampleProblems {
 public:
  SampleProblems(const Matrix& matrix, const PlannedData& data) : matrix_(matrix), data_(data) {}

  /// `judged`: also by the metrics that it is judged by.
  void check(const std::string& name, const RunConfig& config, bool judged) {
    const DataFacts* found = data_.find(config);
    LOCKSTEP_CHECK(found != nullptr, "the samples of every run are counted");
    const DataConfig& data = config.data;
    add(name, data.train_file, too_few_samples(config, found->samples));
    if (!judged) return;
    if (!asked_by(matrix_).by_outcome) return;
    add(name, data.test_file, unmeasured(matrix_.primary.metric, config, found->samples));
  }

  void throw_if_any() const {
    std::vector<ConfigProblem> problems;
    for (const auto& [what, first] : found_) {
      const auto& [file, message] = what;
      problems.push_back({file.empty() ? matrix_.file : file, 0, 0, "cell '" + first + "': " + message, ""});
    }
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }

 private:
  void add(const std::string& name, const std::string& file, const std::string& message) {
    if (!message.empty()) found_.emplace(std::pair(file, message), name);
  }

  const Matrix& matrix_;
  const PlannedData& data_;
  std::map<std::pair<std::string, std::string>, std::string> found_;  // by file and message: the first name
};

void check_samples(const Matrix& matrix, const PlannedData& data) {
  SampleProblems problems(matrix, data);
  for (const Cell& cell : matrix.cells) {
    problems.check(cell.name, cell.config, true);
    problems.check(cell.reference_name, cell.reference, true);
  }
  for (const Layout& layout : matrix.timing.layouts) {
    problems.check(timing_name(layout), timing_config(matrix, layout), false);
  }
  problems.throw_if_any();
}

}  // namespace

void check_question(const Matrix& matrix) {
  const QuestionJudge& judge = judge_of(matrix.question);
  if (judge.problems == nullptr) return;
  std::vector<ConfigProblem> problems = judge.problems(matrix);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

void PlannedData::add(const RunConfig& config, DataFacts facts) {
  facts_.emplace_back(key_of(config), std::move(facts));
}

const DataFacts* PlannedData::find(const RunConfig& config) const {
  // Configs of one matrix mostly share their data, and neighbours do.
  const auto same = [key = key_of(config)](const auto& each) { return each.first == key; };
  const auto found = std::find_if(facts_.rbegin(), facts_.rend(), same);
  return found == facts_.rend() ? nullptr : &found->second;
}

std::string PlannedData::hash_of(const RunConfig& config) const {
  const DataFacts* facts = find(config);
  return facts == nullptr ? "" : facts->hash;
}

std::string PlannedData::hash() const {
  std::set<std::string> hashes;
  for (const auto& [key, facts] : facts_) hashes.insert(facts.hash);
  if (hashes.size() == 1) return *hashes.begin();
  std::string all;
  for (const std::string& hash : hashes) all += hash + "\n";
  return hash_in_hex(all);
}

PlannedData check_data(const Matrix& matrix) {
  PlannedData data;
  const auto add = [&data](const RunConfig& config) {
    if (data.find(config) == nullptr) data.add(config, spec_of(config).inspect_data(config));
  };
  for (const Cell& cell : matrix.cells) {
    add(cell.config);
    add(cell.reference);
  }
  check_samples(matrix, data);
  return data;
}

Prepared prepare(const MatrixSelection& selection) {
  return prepare(selection, read_config_text(selection.config));
}

Prepared prepare(const MatrixSelection& selection, std::string config_text) {
  Prepared prepared;
  prepared.config_text = std::move(config_text);
  const Matrix matrix =
      parse_matrix(prepared.config_text, selection.config, {selection.set, selection.only, selection.seeds, selection.launcher});
  prepared.plan.matrix = matrix;
  check_question(matrix);
  if (prepared.nothing_selected()) return prepared;
  prepared.out_dir = selection.out.empty() ? default_out_dir(matrix) : selection.out;
  check_out_dir(matrix, prepared.out_dir);
  prepared.rank_program = rank_program_path();
  prepared.data = check_data(matrix);
  std::string data_hash = prepared.data.hash();
  // The kept step that a replay begins from is read by its runs as data are.
  if (!matrix.replay.empty()) data_hash = hash_in_hex(data_hash + hash_of_file(matrix.replay));
  prepared.identity = trains_command(matrix) ? probe_identity(find_probe(), data_hash)
                                                                         : current_identity(prepared.rank_program, data_hash);
  prepared.plan = make_plan(matrix, prepared.out_dir, prepared.identity);
  return prepared;
}

std::vector<std::string> lacking_here(const Plan& plan) {
  const bool here = launcher_choice(plan.matrix.launcher).kind == LauncherChoice::Kind::local;
  return here ? lacking_memory(plan, machine_memory_bytes()) : std::vector<std::string>{};
}

std::string nothing_selected_text(const Prepared& prepared, const MatrixSelection& selection) {
  std::string names;
  const Overrides all{selection.set, "", selection.seeds, selection.launcher};
  for (const Cell& cell : parse_matrix(prepared.config_text, selection.config, all).cells) {
    names += "\n  " + cell.name;
  }
  if (names.empty()) return fmt::format("{} has no cells\n", selection.config);
  return fmt::format("no cell of {} is selected by --only {}; its cells are:{}\n", selection.config,
                     shell_quoted(selection.only), names);
}

std::string plan_hash(const Plan& plan) {
  std::string all;
  for (const PlannedRun& run : plan.runs) all += run.hash + "\n";
  return hash_in_hex(all);
}

namespace {

using nlohmann::json;

std::string declared_path(const std::string& out_dir) { return out_dir + "/declared.json"; }

/// What is declared of a judgement, by the names that reports show. Numbers stand as numbers, so that they are
/// compared by their value.
json declared_by(const Matrix& matrix) {
  return {{"question", matrix.question},
          {"metric", matrix.primary.metric},
          {"margin", matrix.primary.margin},
          {"alpha", matrix.primary.alpha},
          {"target", matrix.primary.target},
          {"test", fmt::format("{}, {}", name_of(matrix.primary.test),
                               matrix.seeds_auto.on ? "interim analyses at " + interim_analyses_in_words(matrix.seeds_auto)
                                                    : "one analysis of all seeds")}};
}

/// In the order in which changes are told.
constexpr const char* kTold[] = {"margin", "metric", "alpha", "test", "question", "target"};

struct DeclaredRecord {
  std::vector<json> declared;                         ///< each once, in the order in which they came
  std::map<std::string, std::optional<std::size_t>> runs;  ///< by id: which of them; nothing: not known
  std::string problem;                                ///< with the file; empty: none, or no file
};

bool is_record(const json& content) {
  const auto declared = content.find("declared"), runs = content.find("runs");
  if (declared == content.end() || !declared->is_array() || runs == content.end() || !runs->is_object()) {
    return false;
  }
  const auto is_index = [&](const json& value) {
    return value.is_null() || (value.is_number_unsigned() && value.get<std::size_t>() < declared->size());
  };
  return std::ranges::all_of(*declared, [](const json& each) { return each.is_object(); }) &&
         std::ranges::all_of(*runs, is_index);
}

DeclaredRecord read_record(const std::string& out_dir) {
  DeclaredRecord record;
  const std::string path = declared_path(out_dir);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return record;
  const std::optional<json> content = read_sealed(path, record.problem);
  if (!content) return record;
  if (!is_record(*content)) {
    record.problem = "does not record what was declared for which run";
    return record;
  }
  record.declared = content->at("declared").get<std::vector<json>>();
  for (const auto& [run, index] : content->at("runs").items()) {
    record.runs[run] = index.is_null() ? std::nullopt : std::optional(index.get<std::size_t>());
  }
  return record;
}

void write_record(const DeclaredRecord& record, const std::string& out_dir, Files& files) {
  json runs = json::object();
  for (const auto& [run, index] : record.runs) runs[run] = index ? json(*index) : json(nullptr);
  json content = {{"schema_version", 1}, {"declared", record.declared}, {"runs", runs}};
  seal(content);
  write_file_atomically(declared_path(out_dir), content.dump(2, ' ', false, json::error_handler_t::replace) + "\n",
                        files);
}

std::size_t index_of(std::vector<json>& declared, const json& now) {
  const auto found = std::ranges::find(declared, now);
  if (found != declared.end()) return static_cast<std::size_t>(found - declared.begin());
  declared.push_back(now);
  return declared.size() - 1;
}

bool lies_there(const std::string& out_dir, const PlannedRun& run) {
  std::error_code unknown;
  return std::filesystem::exists(run_folder(out_dir, run.id), unknown);
}

bool is_judged(const PlannedRun& run) {
  return run.role == RunRole::reference || run.role == RunRole::cell;
}

std::string in_words(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "not recorded" : value.dump();
}

void note_changes(const json& was, const json& now, std::vector<DeclaredChange>& changes) {
  for (const char* what : kTold) {
    const json before = was.value(what, json()), after = now.value(what, json());
    if (before == after) continue;
    const std::string text = in_words(before);
    auto found = std::ranges::find_if(
        changes, [&](const DeclaredChange& change) { return change.what == what && change.was == text; });
    if (found == changes.end()) found = changes.insert(changes.end(), {what, text, in_words(after), 0});
    ++found->runs;
  }
}

}  // namespace

void note_declared(const Plan& plan, const std::string& out_dir,
                   const std::function<void(const std::string&)>& say, Files& files) {
  DeclaredRecord record = read_record(out_dir);
  bool changed = !record.problem.empty();
  if (changed && say) {
    say(fmt::format("{}: {}; for the runs here it is unknown when margin, metric and alpha were declared",
                    declared_path(out_dir), record.problem));
  }
  const json now = declared_by(plan.matrix);
  for (const PlannedRun& run : plan.runs) {
    if (record.runs.contains(run.id)) continue;
    changed = true;
    // An earlier version planned it, or its record is lost.
    record.runs[run.id] =
        lies_there(out_dir, run) ? std::nullopt : std::optional(index_of(record.declared, now));
  }
  if (changed) write_record(record, out_dir, files);
}

void note_undeclared(const Plan& plan, const std::string& out_dir, Files& files) {
  DeclaredRecord record = read_record(out_dir);
  bool changed = false;
  for (const PlannedRun& run : plan.runs) {
    if (record.runs.contains(run.id) || !lies_there(out_dir, run)) continue;
    record.runs[run.id] = std::nullopt;
    changed = true;
  }
  if (changed) write_record(record, out_dir, files);
}

Declaration declaration_of(const Plan& plan, const std::string& out_dir) {
  const DeclaredRecord record = read_record(out_dir);
  const json now = declared_by(plan.matrix);
  Declaration found;
  for (const PlannedRun& run : plan.runs) {
    if (!is_judged(run)) continue;
    ++found.runs;
    const auto at = record.runs.find(run.id);
    if (at == record.runs.end() || !at->second) continue;
    const json& was = record.declared[*at->second];
    if (was == now) {
      ++found.before;
      continue;
    }
    ++found.changed;
    note_changes(was, now, found.changes);
  }
  return found;
}

}  // namespace lockstep
