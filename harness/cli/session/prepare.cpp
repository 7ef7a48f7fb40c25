#include "harness/cli/session/prepare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/results/words.h"
#include "harness/answer/stats/outcome.h"
#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/progress.h"
#include "harness/judge/evidence/parts.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan_history.h"
#include "harness/plan/matrix/read_matrix.h"
#include "harness/run/libraries.h"
#include "harness/run/probe.h"
#include "harness/run/run_folder.h"
#include "reports/format.h"

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
  prepared.launcher = launcher_choice(matrix.launcher);
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

std::vector<std::string> lacking_here(const Prepared& prepared) {
  const bool here = prepared.launcher.kind == LauncherChoice::Kind::local;
  return here ? lacking_memory(prepared.plan, machine_memory_bytes()) : std::vector<std::string>{};
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

namespace {

constexpr std::size_t kMostBlocks = 5;

bool was_not_started(const RankFailure& failure) { return failure.kind == FailureKind::not_started; }

std::string rerun_of(const std::string& run, const Results& results, const std::string& otherwise) {
  for (const CellResult& cell : results.cells) {
    if (cell.failure && cell.failure->run == run && !cell.rerun.empty()) return cell.rerun;
  }
  return otherwise;
}

/// A planted fault that ended its run as it must is in the table, and no news.
bool must_fail(const std::string& run, const Results& results) {
  const auto is_trial = [&run](const CellResult& cell) { return cell.run == run && cell.as_expected; };
  return results.detection && std::any_of(results.cells.begin(), results.cells.end(), is_trial);
}

}  // namespace

std::string seeds_text(const std::vector<int64_t>& seeds) {
  bool consecutive = seeds.size() > 2;
  for (std::size_t i = 1; i < seeds.size(); ++i) consecutive = consecutive && seeds[i] == seeds[i - 1] + 1;
  if (consecutive) return fmt::format("{}..{}", seeds.front(), seeds.back());
  return fmt::format("{}", fmt::join(seeds, ", "));
}

/// A line for each finished run whose files are no longer what it left, and which therefore runs again; empty
/// if there is none. Without the last line's end.
static std::string damage_text(const Plan& plan) {
  std::vector<std::string> lines;
  std::size_t more = 0;
  for (const PlannedRun& run : plan.runs) {
    if (!run.damaged) continue;
    if (lines.size() == kMostBlocks)
      ++more;
    else
      lines.push_back(fmt::format("not reused: {}: {}; it runs again", run.id, run.why));
  }
  if (more > 0)
    lines.push_back(fmt::format("not reused: {} more runs whose files have changed", more));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string command_notes(const Prepared& prepared) {
  const Matrix& matrix = prepared.plan.matrix;
  if (!trains_command(matrix)) return "";
  const RunConfig& config = matrix.cells.front().config;
  const TrainerSpec& trainer = spec_of(config);
  std::string text = trainer.data_words == nullptr ? "" : trainer.data_words(config) + "\n";
  for (const PlannedRun& run : prepared.plan.runs) {
    const ProbeReport report = run.reused ? read_probe_report(run_folder(prepared.out_dir, run.id), 0) : ProbeReport{};
    if (!report.there || !report.problem.empty()) continue;
    text += fmt::format("recorded with torch {}, tier {}; can be judged: {}\n", report.torch, report.tier, judged_with(report));
    const std::string missing = not_seen(report);
    return text + (missing.empty() ? "" : "not seen: " + missing + "\n");
  }
  return text + "what can be judged the first run will tell\n";
}

std::string opening_text(const Prepared& prepared, int jobs) {
  const Plan& plan = prepared.plan;
  const auto reused =
      std::count_if(plan.runs.begin(), plan.runs.end(), [](const PlannedRun& r) { return r.reused; });
  const std::size_t to_do = plan.runs.size() - static_cast<std::size_t>(reused);
  const BuildIdentity& id = prepared.identity;
  std::string text = fmt::format("{}: {} cells, seeds {}\n", plan.matrix.name, plan.matrix.cells.size(),
                                 seeds_text(plan.matrix.seeds));
  if (trains_command(plan.matrix)) {
    text += fmt::format("probe {} · {} · sources {}\n{}", id.build, id.isa, id.data, command_notes(prepared));
  } else {
    text += fmt::format("build {} · LibTorch {} · {} · data {}\n", id.build,
                        id.libtorch.empty() ? "not found" : id.libtorch, id.isa, id.data);
  }
  text += fmt::format("resolved config {} · {} runs: {} to do, {} reused", plan_hash(plan), plan.runs.size(),
                      to_do, reused);
  if (to_do > 0) text += fmt::format(" · about {}", duration_text(estimate_total_s(plan, jobs)));
  const std::string damage = damage_text(plan);
  return text + "\n" + (damage.empty() ? "" : damage + "\n");
}

void print_results(const Results& results, const std::vector<std::string>& problems, const std::string& out_dir, bool json, const Console& console) {
  if (const char* path = std::getenv("GITHUB_STEP_SUMMARY"); path != nullptr && *path != '\0') {
    const std::string problem = append_step_summary(path, results);
    if (!problem.empty()) console.err << clean_text(problem) << "\n";
  }
  if (json)
    console.out << clean_json(results_to_json(results));
  else
    console.out << terminal_table(results, console.out_colour, console.out_width) << "report: " << clean_line(out_dir) << "/report.html\n";
  console.out << std::flush;
  for (const std::string& problem : problems) console.err << "lockstep: " << clean_text(problem) << "\n";
}

std::string failure_block(const RankFailure& failure, const std::string& out_dir, const std::string& rerun) {
  std::string text = fmt::format("\nFAILED {}\n", failure.run);
  text += fmt::format("  {}: {}\n", to_word(failure.kind), failure.message);
  const std::string rank =
      failure.rank >= 0 ? fmt::format("rank {}", failure.rank) : std::string("no single rank");
  text += fmt::format("  first: {}", rank);
  if (failure.step >= 0) text += fmt::format(", after {} steps", failure.step);
  if (!failure.operation.empty()) text += fmt::format(", in {}", failure.operation);
  text += "\n";
  if (!failure.last_lines.empty()) {
    text += "  its last lines:\n";
    for (const std::string& line : failure.last_lines) text += "    | " + line + "\n";
  }
  text += fmt::format("  files: {}\n", run_folder(out_dir, failure.run));
  text += fmt::format("  again: {}\n", rerun);
  return text;
}

std::string failure_blocks(const LaunchReport& report, const std::string& out_dir, const Results& results,
                           const std::string& command) {
  std::string text;
  std::size_t shown = 0, not_started = 0, more = 0;
  for (const RankFailure& failure : report.failures) {
    if (was_not_started(failure))
      ++not_started;
    else if (must_fail(failure.run, results))
      continue;
    else if (shown == kMostBlocks)
      ++more;
    else {
      text += failure_block(failure, out_dir, rerun_of(failure.run, results, command));
      ++shown;
    }
  }
  if (more > 0) text += fmt::format("\n{} more runs failed; {}/report.html lists all\n", more, out_dir);
  if (not_started > 0)
    text += fmt::format("\n{} runs were not started because they need runs that failed\n", not_started);
  return text.empty() ? text : text + "\n";
}

std::map<std::string, Failure> failures_by_run(const LaunchReport& report) {
  std::map<std::string, Failure> failures;
  for (const RankFailure& f : report.failures) {
    failures[f.run] = {f.run, f.kind, f.rank, f.step, f.operation, f.message, f.last_lines};
  }
  return failures;
}

namespace {

using nlohmann::json;

std::string text_in(const std::string& path) { return read_file(path).text; }

/// Size, time of the last change and inode; "gone" if there is no such file.
std::string stamp_of(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return "gone";
  return fmt::format("{} {}.{:09} {}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec, file.st_ino);
}

std::string key_of(const Prepared& prepared, const MatrixSelection& selection) {
  const BuildIdentity& identity = prepared.identity;
  // Whatever else the matrix says (expectations, margins) stands in the config's own text.
  json parts = {identity.build, identity.libtorch, identity.isa, identity.data, command_text(selection),
                prepared.config_text,
                // The runs know nothing of the program that judges them.
                hash_of_file("/proc/self/exe"),
                // When margin and metric were declared stands in every report.
                text_in(prepared.out_dir + "/declared.json")};
  // `done` holds the checksums of all that the judge reads of a run, and the plan has held the files against
  // them.
  for (const PlannedRun& run : prepared.plan.runs) {
    parts.push_back({run.id, run.hash, text_in(run_folder(prepared.out_dir, run.id) + "/done")});
  }
  return long_hash_in_hex(parts.dump(-1, ' ', false, json::error_handler_t::replace));
}

/// What a judgement leaves under OUT, by name.
std::vector<std::string> files_of(const Results& results) {
  std::vector<std::string> files;
  for (const ReportFormat& format : report_formats()) {
    if (!format.file_name.empty()) files.emplace_back(format.file_name);
  }
  for (const CellResult& cell : results.cells) {
    if (cell.replay.empty()) continue;
    for (const char* name : {"replay.yaml", "rank-0.trace"}) {
      files.push_back("replay/" + cell.run + "/" + name);
    }
  }
  return files;
}

}  // namespace

Judged::Judged(const Prepared& prepared, const MatrixSelection& selection)
    : out_dir_(prepared.out_dir), key_(key_of(prepared, selection)) {}

std::optional<Results> Judged::standing() const {
  std::string problem;
  const std::optional<json> noted = read_sealed(path(), problem);
  if (!noted || noted->value("key", json()) != key_) return std::nullopt;
  const auto files = noted->find("files");
  if (files == noted->end() || !files->is_object() || files->empty()) return std::nullopt;
  for (const auto& [name, stamp] : files->items()) {
    if (stamp != stamp_of(out_dir_ + "/" + name)) return std::nullopt;
  }
  const std::string results = out_dir_ + "/results.json";
  try {
    return results_from_json(text_in(results), results);
  } catch (const std::runtime_error&) {
    return std::nullopt;  // whatever it is, judging anew mends it
  }
}

void Judged::note(const Results& results, Files& files) const {
  json stamps = json::object();
  for (const std::string& name : files_of(results)) stamps[name] = stamp_of(out_dir_ + "/" + name);
  json content = {{"schema_version", 2}, {"key", key_}, {"files", stamps}};
  seal(content);
  write_file_atomically(path(), content.dump(2, ' ', false, json::error_handler_t::replace) + "\n", files);
}

namespace {

std::string interim_path(const std::string& out_dir) { return out_dir + "/looks.json"; }

/// What earlier calls spent in this folder on the same looks.
struct InterimHistory {
  std::string of;  ///< the first look's plan and the schedule of looks; a history of others does not count
  std::size_t begun = 1;
  double seconds = 0;
};

std::string identity_of(const Prepared& prepared) {
  const SeedsAuto& seeds = prepared.plan.matrix.seeds_auto;
  return fmt::format("{} {} {} {}", plan_hash(prepared.plan), seeds.first, seeds.step, seeds.most);
}

/// What the file says; an empty history if it is of other looks. A file that cannot be understood is passed
/// over, and `say` is told: nothing but the budget depends on it.
InterimHistory read_history(const Prepared& prepared, const std::function<void(const std::string&)>& say) {
  const InterimHistory none{identity_of(prepared), 1, 0};
  const std::string path = interim_path(prepared.out_dir);
  if (!std::filesystem::exists(path)) return none;
  const auto pass_over = [&](const std::string& why) {
    say(fmt::format("{}: {}; it is ignored, and the time budget starts now", path, why));
    return none;
  };
  std::string problem;
  const std::optional<nlohmann::json> json = read_sealed(path, problem);
  if (!json) return pass_over(problem);
  const auto field = [&json](const char* key) {
    const auto at = json->find(key);
    return at != json->end() ? *at : nlohmann::json();
  };
  const nlohmann::json of = field("of"), begun = field("begun"), seconds = field("seconds");
  // A count beyond every look, or a time that is none, is no history of ours.
  const bool counts = begun.is_number_unsigned() && begun.get<uint64_t>() <= uint64_t{kMostAnalyses};
  const bool lasts = seconds.is_number() && seconds.get<double>() >= 0;
  if (!of.is_string() || !counts || !lasts)
    return pass_over("does not record which analyses were made, and how long they took");
  if (of != none.of) return none;
  return {none.of, begun.get<std::size_t>(), seconds.get<double>()};
}

void write_history(const Prepared& prepared, const InterimHistory& history, Files& files) {
  nlohmann::ordered_json json{
      {"schema_version", 2}, {"of", history.of}, {"begun", history.begun}, {"seconds", history.seconds}};
  seal(json);
  write_file_atomically(interim_path(prepared.out_dir), json.dump() + "\n", files);
}

void add(LaunchReport& all, LaunchReport more) {
  all.interrupted |= more.interrupted;
  all.finished += more.finished;
  all.failures.insert(all.failures.end(), std::make_move_iterator(more.failures.begin()),
                      std::make_move_iterator(more.failures.end()));
}

std::set<std::string> failed_runs(const LaunchReport& report) {
  std::set<std::string> runs;
  for (const RankFailure& failure : report.failures) runs.insert(failure.run);
  return runs;
}

/// Seeds of each cell at the next look; empty if no cell wants one.
std::vector<int> next_counts(const Prepared& prepared, const Results& results, const std::vector<int>& sizes,
                             std::size_t next) {
  const Matrix& matrix = prepared.plan.matrix;
  std::vector<int> counts;
  bool any = false;
  for (std::size_t i = 0; i < matrix.cells.size(); ++i) {
    const bool wants = wants_more_seeds(results.cells.at(i), matrix.seeds_auto);
    any |= wants;
    counts.push_back(wants ? sizes[next] : static_cast<int>(seeds_of(matrix, matrix.cells[i]).size()));
  }
  return any ? counts : std::vector<int>{};
}

bool has_work(const Plan& plan, const std::set<std::string>& failed) {
  return std::any_of(plan.runs.begin(), plan.runs.end(),
                     [&](const PlannedRun& run) { return !run.reused && !failed.contains(run.id); });
}

}  // namespace

LaunchReport launch_interim_analyses(Prepared& prepared, const InterimSteps& steps) {
  const SeedsAuto auto_seeds = prepared.plan.matrix.seeds_auto;
  if (!auto_seeds.on) {
    note_declared(prepared.plan, prepared.out_dir, steps.say, *steps.files);
    return steps.launch(prepared);
  }
  const std::vector<int> sizes = analysis_sizes(auto_seeds);
  InterimHistory history = read_history(prepared, steps.say);
  LaunchReport all;
  std::set<std::string> run_here;
  for (std::size_t look = 0;; ++look) {
    // A run that failed would fail again, and its cell is done with.
    const std::set<std::string> failed = failed_runs(all);
    Prepared current = prepared;
    std::erase_if(current.plan.runs, [&](const PlannedRun& run) { return failed.contains(run.id); });
    for (const PlannedRun& run : current.plan.runs) {
      if (!run.reused) run_here.insert(run.id);
    }
    const double started = steps.clock();
    history.begun = std::max(history.begun, look + 1);
    write_history(prepared, history, *steps.files);
    // The first look always launches, to report what there is; a later look whose runs have all finished need
    // not.
    if (look == 0 || has_work(current.plan, {})) {
      note_declared(prepared.plan, prepared.out_dir, steps.say, *steps.files);
      add(all, steps.launch(current));
    }
    history.seconds += steps.clock() - started;
    write_history(prepared, history, *steps.files);
    if (all.interrupted || look + 1 == sizes.size()) break;

    const Results results = steps.judge(prepared, all);
    const std::vector<int> counts = next_counts(prepared, results, sizes, look + 1);
    if (counts.empty()) break;
    Matrix matrix = prepared.plan.matrix;
    set_analysis(matrix, counts);
    Plan plan = make_plan(matrix, prepared.out_dir, prepared.identity);
    const auto undecided = std::count(counts.begin(), counts.end(), sizes[look + 1]);
    const bool spent = auto_seeds.budget_s > 0 && history.seconds >= auto_seeds.budget_s;
    if (spent && look + 2 > history.begun && has_work(plan, failed_runs(all))) {
      steps.say(fmt::format("interim analysis {} of {}: {} undecided; the budget of {} is spent", look + 1, sizes.size(),
                            counted(undecided, "cell"), duration_text(auto_seeds.budget_s)));
      break;
    }
    steps.say(fmt::format("interim analysis {} of {}: {} undecided, which now get {} seeds", look + 1, sizes.size(),
                          counted(undecided, "cell"), sizes[look + 1]));
    prepared.plan = std::move(plan);
    if (const std::string damage = damage_text(prepared.plan); !damage.empty()) steps.say(damage);
  }
  // What this call ran itself is not reused, though a later look found it finished.
  for (PlannedRun& run : prepared.plan.runs) run.reused = run.reused && !run_here.contains(run.id);
  all.reused = static_cast<int>(std::count_if(prepared.plan.runs.begin(), prepared.plan.runs.end(),
                                              [](const PlannedRun& run) { return run.reused; }));
  return all;
}

Plan plan_of_all_analyses(const Prepared& prepared) {
  const SeedsAuto& seeds = prepared.plan.matrix.seeds_auto;
  if (!seeds.on) return prepared.plan;
  Matrix matrix = prepared.plan.matrix;
  set_analysis(matrix, std::vector<int>(matrix.cells.size(), seeds.most));
  return make_plan(matrix, prepared.out_dir, prepared.identity);
}

void forget_interim_analyses(const std::string& out_dir, Files& files) {
  const std::string path = interim_path(out_dir);
  const std::error_code error = files.remove(path);
  if (!error || error == std::errc::no_such_file_or_directory) return;
  // The time in that file would count against looks that begin anew.
  throw MachineError(path + ": cannot be removed: " + error.message());
}

}  // namespace lockstep
