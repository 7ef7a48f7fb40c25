#include "harness/cli/session/judged.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/hashing.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/cli/session/prepare.h"
#include "harness/cli/session/progress.h"
#include "harness/cli/session/texts.h"
#include "harness/run/libraries.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/evidence/parts.h"
#include "harness/verdict/plan/interim_analyses.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/stats/sequential.h"
#include "reports/format.h"

namespace lockstep {
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
