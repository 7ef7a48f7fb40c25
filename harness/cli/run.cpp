#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <ostream>
#include <thread>

#include "harness/base/files.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/background.h"
#include "harness/cli/commands.h"
#include "harness/cli/session/array.h"
#include "harness/cli/session/background.h"
#include "harness/cli/session/judged.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/prepare.h"
#include "harness/cli/session/progress.h"
#include "harness/cli/session/texts.h"
#include "harness/cli/stop_signals.h"
#include "harness/cli/suite.h"
#include "harness/run/host.h"
#include "harness/run/libraries.h"
#include "harness/run/rank_environment.h"
#include "harness/run/split.h"
#include "harness/suites/engine/kinds.h"
#include "harness/verdict/plan/launcher_choice.h"
#include "harness/verdict/questions/judge.h"

namespace lockstep {
namespace {

/// Slurm's MaxArraySize is 1001 where nobody has set it.
constexpr std::size_t kMostArrayTasks = 1000;

LaunchReport launch_with_progress(const Prepared& prepared, int jobs, const Console& console,
                                  double command_started) {
  Progress progress(prepared.plan, console, monotonic_s, jobs);
  LaunchOptions options;
  options.rank_program = prepared.rank_program;
  options.out_dir = prepared.out_dir;
  const LauncherChoice choice = launcher_choice(prepared.plan.matrix.launcher);
  if (trains_command(prepared.plan.matrix)) {
    options.make_launcher = command_launcher_maker(choice);
  } else {
    options.program_hash = prepared.identity.build;
    options.make_launcher = launcher_maker(choice, prepared.rank_program, prepared.out_dir);
  }
  // A job's processors are not this node's.
  options.jobs = jobs == 0 && !batch_job(current_environment()).empty() ? room_for_ranks() : jobs;
  options.command_started = command_started;
  options.data_hash_of = [&prepared](const RunConfig& config) { return prepared.data.hash_of(config); };
  options.stop_requested = StopSignals::requested();
  options.stop_signal = StopSignals::number();
  options.on_event = [&](const RunEvent& event) {
    progress.on_event(event);
    if (event.kind == RunEvent::Kind::node_lost) note_loss(prepared.out_dir, event.failure->message);
    if (event.kind == RunEvent::Kind::requeued)
      note_loss(prepared.out_dir, fmt::format("{} is started again: {}", event.run, event.failure->message));
    if (event.kind == RunEvent::Kind::unsaved)
      note_loss(prepared.out_dir, fmt::format("{}: checkpoints: {}", event.run, event.failure->message));
  };
  const StopSignals signals;
  return launch(prepared.plan, options, prepared.identity);
}

JudgeOptions judge_options(const Prepared& prepared, const LaunchReport& launched,
                           const RunOptions& options) {
  JudgeOptions judge;
  judge.out_dir = prepared.out_dir;
  judge.command = command_text(options.selection);
  judge.failures = failures_by_run(launched);
  judge.jobs = options.selection.jobs > 0
                   ? options.selection.jobs
                   : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return judge;
}

/// Could all files be read that the judge wanted? What it missed may be there the next time.
bool read_all_evidence(const Results& results) {
  return std::none_of(results.cells.begin(), results.cells.end(), [](const CellResult& cell) {
    return cell.failure && (cell.failure->kind == FailureKind::unreadable || cell.failure->kind == FailureKind::lost);
  });
}

struct Judgement {
  Results results;
  std::vector<std::string> problems;  ///< with what was to be written, a line each
};

/// What was judged before, if it was from the same evidence and stands untouched; else a new judgement, with
/// its reports.
Judgement judgement(const Prepared& prepared, const LaunchReport& launched, const OutFolder& folder,
                    const RunOptions& options, const Console& console) {
  const Judged judged(prepared, options.selection);
  const bool whole = launched.failures.empty();
  if (std::optional<Results> standing = whole ? judged.standing() : std::nullopt) {
    console.err << "nothing has changed since these results were judged\n";
    return {*std::move(standing), {}};
  }
  Judgement made{judge_matrix(prepared.plan, judge_options(prepared, launched, options)), {}};
  made.results.declaration = declaration_of(prepared.plan, prepared.out_dir);
  made.problems = folder.write_replays(prepared.plan, made.results);
  const std::vector<std::string> unwritten = folder.write_reports(made.results);
  made.problems.insert(made.problems.end(), unwritten.begin(), unwritten.end());
  if (whole && made.problems.empty() && read_all_evidence(made.results)) judged.note(made.results);
  return made;
}

int judge_and_report(const Prepared& prepared, const LaunchReport& launched, const OutFolder& folder,
                     const RunOptions& options, const Console& console) {
  const auto [results, problems] = judgement(prepared, launched, folder, options, console);
  console.err << clean_text(
                     failure_blocks(launched, prepared.out_dir, results, command_text(options.selection)))
              << std::flush;
  print_results(results, problems, prepared.out_dir, options.json, console);
  if (!problems.empty()) {
    console.err << "lockstep: everything else is in " << clean_line(prepared.out_dir)
                << "; run again to write the rest\n";
    return kExitMachine;
  }
  return exit_code_of(results);
}

InterimSteps interim_steps(const RunOptions& options, const Console& console, double command_started) {
  InterimSteps steps;
  steps.launch = [&options, &console, command_started](const Prepared& prepared) {
    return launch_with_progress(prepared, options.selection.jobs, console, command_started);
  };
  steps.judge = [&options](const Prepared& prepared, const LaunchReport& launched) {
    JudgeOptions judge = judge_options(prepared, launched, options);
    judge.outcomes_only = true;
    return judge_matrix(prepared.plan, judge);
  };
  steps.say = [&console](const std::string& line) { console.err << clean_text(line) << "\n" << std::flush; };
  steps.clock = monotonic_s;
  return steps;
}

void remove_done(Prepared& prepared, const OutFolder& folder) {
  const Plan all = plan_of_all_analyses(prepared);
  note_undeclared(all, prepared.out_dir);
  folder.remove_runs(all);
  forget_interim_analyses(prepared.out_dir);
  prepared.plan = make_plan(prepared.plan.matrix, prepared.out_dir, prepared.identity);
}

int interrupted_status(const LaunchReport& launched) {
  const int own = *StopSignals::number();
  const bool warned = (own != 0 ? own : launched.told_by) == SIGUSR1;
  return warned ? kExitInterrupted - SIGINT + SIGUSR1 : kExitInterrupted;
}

Session session_of(const Prepared& prepared, const RunOptions& options) {
  Session session;
  session.command = command_text(options.selection);
  session.runs = static_cast<int>(prepared.plan.runs.size());
  return session;
}

/// From a plan to the reports and the exit status.
int run_prepared(Prepared& prepared, const RunOptions& options, const Console& console, double command_started) {
  std::vector<ConfigProblem> lacking;
  for (const std::string& words : lacking_here(prepared.plan)) lacking.push_back({prepared.plan.matrix.file, 0, 0, words, ""});
  if (!lacking.empty()) throw ConfigError(std::move(lacking));
  const OutFolder folder(prepared.out_dir, prepared.plan.matrix);
  if (options.fresh) remove_done(prepared, folder);
  console.err << clean_text(opening_text(prepared, options.selection.jobs)) << std::flush;
  return in_foreground(prepared.out_dir, session_of(prepared, options), [&] {
    const LaunchReport launched = launch_interim_analyses(prepared, interim_steps(options, console, command_started));
    if (launched.interrupted) {
      console.err << fmt::format("interrupted: {} of {} runs are finished; run again to resume:\n  {}\n",
                                 launched.finished + launched.reused, prepared.plan.runs.size(),
                                 clean_line(command_text(options.selection)));
      return interrupted_status(launched);
    }
    return judge_and_report(prepared, launched, folder, options, console);
  });
}

/// Has OUT made and found to be free; whoever runs the matrix then holds it.
void make_out(const Prepared& prepared) { const OutFolder folder(prepared.out_dir, prepared.plan.matrix); }

/// The same for arrays: what was done before is removed here, and not by each of their tasks.
void begin_out(Prepared& prepared, const RunOptions& options) {
  const OutFolder folder(prepared.out_dir, prepared.plan.matrix);
  const bool arrays = array_wish(launcher_choice(prepared.plan.matrix.launcher).words).wanted;
  if (arrays && options.fresh) remove_done(prepared, folder);
}

int run_matrix_detached(Prepared& prepared, const RunOptions& options, const Console& console, double command_started) {
  make_out(prepared);
  return run_detached(prepared.out_dir, session_of(prepared, options), console,
                      [&](const Console& plain) { return run_prepared(prepared, options, plain, command_started); });
}

/// One task of an array: its runs, for a later job to judge.
int run_part(Prepared& prepared, const RunOptions& options, const Console& console, double command_started) {
  const OutFolder folder(prepared.out_dir, prepared.plan.matrix, real_files(), OutFolder::Hold::shared);
  std::vector<std::string> left_out;
  prepared.plan = plan_of_part(prepared.plan, read_part(prepared.out_dir, options.part), left_out);
  for (const std::string& id : left_out) console.err << "not started " << clean_line(id) << ": it needs a run that has not finished\n";
  const LaunchReport launched = launch_with_progress(prepared, options.selection.jobs, console, command_started);
  if (launched.interrupted) return interrupted_status(launched);
  return launched.failures.empty() && left_out.empty() ? kExitAsExpected : kExitUnexpected;
}

/// The arrays of the session, each waiting for the one before it.
void submit_arrays(const Prepared& prepared, const std::string& command, const std::string& out, const ArrayWish& wish, Session& session) {
  const ArrayParts parts = array_parts(prepared.plan, kMostArrayTasks);
  write_parts(out, parts);
  for (std::size_t array = 0; array < parts.size(); ++array) {
    const std::string script = array_script(command, out, prepared.plan.matrix.name, array, parts[array].size(), wish);
    session.arrays.push_back(submit_script(fmt::format("{}/array-{}.sh", out, array), script, array == 0 ? "" : session.arrays.back()));
  }
}

/// As a job that is in no allocation yet.
int run_as_job(Prepared& prepared, const RunOptions& options, const LauncherChoice& choice, const Console& console) {
  begin_out(prepared, options);
  const std::string out = std::filesystem::absolute(prepared.out_dir).string();
  MatrixSelection inside = options.selection;
  inside.config = std::filesystem::absolute(inside.config).string();
  inside.out = out;
  // "lockstep" of the command is the program that this process is.
  std::string command = shell_quoted(program_path()) + command_text(inside).substr(std::string("lockstep").size());
  const ArrayWish wish = array_wish(choice.words);
  Session session = session_of(prepared, options);
  if (!wish.wanted && options.fresh) command += " --fresh";
  const std::string gathers = command + (options.json ? " --json" : "");
  try {
    if (wish.wanted) submit_arrays(prepared, command, out, wish, session);
    session = submit(out, session, job_script(gathers, out, prepared.plan.matrix.name, wish.options));
  } catch (const ConfigError& error) {
    // Nobody would gather what the arrays' tasks leave.
    if (session.arrays.empty()) throw;
    throw ConfigError(error.what() + cancel_jobs(session.arrays));
  } catch (const MachineError& error) {
    throw MachineError(error.what() + cancel_jobs(session.arrays));
  }
  console.err << fmt::format("Slurm job {}{}; lockstep status {} · lockstep wait {}\n", session.job,
                             session.arrays.empty() ? "" : fmt::format(" after the arrays {}", fmt::join(session.arrays, ", ")),
                             clean_line(prepared.out_dir), clean_line(prepared.out_dir));
  return options.detach ? kExitAsExpected : wait_command({prepared.out_dir}, console);
}

}  // namespace

int run_command(const RunOptions& options, const Console& console, double command_started) {
  const std::string text = read_config_text(options.selection.config);
  if (names_a_suite(text)) return run_suite_command(text, options, console);
  Prepared prepared = prepare(options.selection, text);
  if (prepared.nothing_selected()) {
    console.err << clean_text(nothing_selected_text(prepared, options.selection));
    return kExitNothing;
  }
  const int jobs = options.selection.jobs;
  if (options.dry_run) {
    console.out << (options.json ? clean_json(plan_json(prepared.plan, jobs))
                                 : clean_text(plan_text(prepared.plan, jobs) + command_notes(prepared)));
    return kExitAsExpected;
  }
  require_surroundings();
  const LauncherChoice choice = launcher_choice(prepared.plan.matrix.launcher);
  require_transports(prepared.plan, prepared.rank_program, options.fresh, choice.kind == LauncherChoice::Kind::local);
  if (!options.part.empty()) return run_part(prepared, options, console, command_started);
  if (choice.kind == LauncherChoice::Kind::slurm && batch_job(current_environment()).empty())
    return run_as_job(prepared, options, choice, console);
  if (options.detach) return run_matrix_detached(prepared, options, console, command_started);
  return run_prepared(prepared, options, console, command_started);
}

}  // namespace lockstep
