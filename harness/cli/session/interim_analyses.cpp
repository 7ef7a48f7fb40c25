#include "harness/cli/session/interim_analyses.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/base/atomic_file.h"
#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/base/sealed_json.h"
#include "harness/cli/session/declaration.h"
#include "harness/cli/session/progress.h"
#include "harness/cli/session/texts.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/evidence/align.h"
#include "harness/verdict/plan/interim_analyses.h"
#include "harness/verdict/stats/sequential.h"

namespace lockstep {
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
