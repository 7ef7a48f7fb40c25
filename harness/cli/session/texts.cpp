#include "harness/cli/session/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>

#include "harness/base/text.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/progress.h"
#include "harness/run/probe.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/results/document.h"
#include "reports/terminal.h"

namespace lockstep {
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

std::string damage_text(const Plan& plan) {
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

}  // namespace lockstep
