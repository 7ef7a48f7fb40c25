#include "harness/cli/session/declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "harness/base/atomic_file.h"
#include "harness/base/sealed_json.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/plan/interim_analyses.h"

namespace lockstep {
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
