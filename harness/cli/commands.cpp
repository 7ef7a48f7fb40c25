#include "harness/cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <ostream>
#include <thread>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/results/results.h"
#include "harness/answer/results/words.h"
#include "harness/base/files.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/options.h"
#include "harness/cli/session/background.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/prepare.h"
#include "harness/cli/session/progress.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/matrix/checks.h"
#include "harness/run/job_queue.h"
#include "harness/run/libraries.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"
#include "harness/run/split.h"
#include "harness/suites/engine/suite.h"
#include "reports/check.h"
#include "reports/format.h"

namespace lockstep {
namespace {

constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
volatile int stop_requested = 0, first_number = 0;

void request_stop(int number) {
  if (stop_requested == 0) first_number = number;
  // A scheduler warns by one and tells by another: what is being saved then is not to be lost.
  if (stop_requested == 0) stop_requested = 1;
  else if (number == SIGINT) stop_requested = 2;
}

}  // namespace

const volatile int* StopSignals::requested() { return &stop_requested; }

const volatile int* StopSignals::number() { return &first_number; }

StopSignals::StopSignals() {
  struct sigaction action {};
  action.sa_handler = request_stop;  // no SA_RESTART: a wait shall end
  for (std::size_t i = 0; i < kCount; ++i) {
    ::sigaction(kNumbers[i], nullptr, &before_[i]);
    // Whoever started us under nohup wants us to live on.
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kNumbers[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kCount; ++i) ::sigaction(kNumbers[i], &before_[i], nullptr);
}

int guarded(const std::function<int()>& command, const Console& console) {
  try {
    const int code = command();
    if (!console.out.flush()) throw MachineError("standard output cannot be written");
    return code;
  } catch (const ConfigError& error) {
    console.err << clean_text(error.what()) << "\n";
    return kExitUsage;
  } catch (const TraceError& error) {
    console.err << clean_text(error.what()) << "\n";
    return kExitUsage;
  } catch (const MachineError& error) {
    console.err << "lockstep: " << clean_text(error.what()) << "\n";
    return kExitMachine;
  } catch (const std::filesystem::filesystem_error& error) {
    console.err << "lockstep: " << clean_line(error.path1().string()) << ": " << clean_line(error.code().message()) << "\n";
    return kExitMachine;
  } catch (const std::exception& error) {
    console.err << "lockstep: internal error: " << clean_text(error.what()) << "\n";
    return kExitMachine;
  }
}

int status_command(const StatusOptions& options, const Console& console) {
  const std::string text = clean_text(session_text(options.dir));
  print_document(document_of(text), "", text, options.outputs, console);
  return kExitAsExpected;
}

int wait_command(const WaitOptions& options, const Console& console) {
  const StopSignals signals;
  const std::optional<int> code = wait_for(options.dir, [] { return *StopSignals::requested() != 0; });
  if (*StopSignals::requested() != 0) {
    console.err << "stopped waiting; the run continues\n";
    return kExitInterrupted;
  }
  const Session session = read_session(options.dir);
  if (session.foreground || (session.process == 0 && session.job.empty()))
    console.out << clean_text(session_text(options.dir));  // what it printed was for whoever started it
  else if (const FileText said = read_file(options.dir + "/run.out"))
    console.out << clean_text(said.text);
  if (code == kExitMachine) console.err << clean_text(last_words(options.dir));
  if (code) return *code;
  if (!session.foreground) console.err << clean_text(session_text(options.dir));
  return kExitMachine;
}

/// Forks: the child does `work`, whose output goes to OUT/run.out and OUT/run.err; this process says how to follow it and returns at once.
static int run_detached(const std::string& out_dir, Session session, const Console& console, const std::function<int(const Console& plain)>& work) {
  console.out << std::flush;
  console.err << std::flush;
  const Session noted = detach(out_dir, std::move(session), [&] {
    Console plain{console.out, console.err};
    plain.quiet = console.quiet;
    const int code = guarded([&] { return work(plain); }, plain);
    plain.out << std::flush;
    plain.err << std::flush;
    return code;
  });
  console.out << fmt::format("running in process {}; lockstep status {} · lockstep wait {}\n", noted.process, clean_line(out_dir), clean_line(out_dir));
  return kExitAsExpected;
}

namespace {

void print_plan(const PreparedSuite& prepared, bool json, const Console& console) {
  console.out << (json ? clean_json(suite_plan_json(prepared)) : clean_text(suite_plan_text(prepared)));
}

void print_plan(const Prepared& prepared, const MatrixSelection& selection, bool json, const Console& console) {
  console.out << (json ? clean_json(plan_json(prepared.plan, selection.jobs))
                       : clean_text(plan_text(prepared.plan, selection.jobs) + command_notes(prepared)));
}

/// kExitNothing, with the cells that there are.
int say_nothing_selected(const Prepared& prepared, const MatrixSelection& selection, const Console& console) {
  console.err << clean_text(nothing_selected_text(prepared, selection));
  return kExitNothing;
}

}  // namespace

static int plan_suite_command(const std::string& text, const PlanOptions& options, const Console& console) {
  if (options.prepare) throw ConfigError("--prepare: a suite creates runs when its trials need them; remove it");
  print_plan(prepare_suite(text, options.selection), options.json, console);
  return kExitAsExpected;
}

namespace {

int run_and_report(PreparedSuite& prepared, const RunOptions& options, const Console& console) {
  console.news() << clean_text(suite_plan_text(prepared)) << std::flush;
  const StopSignals signals;
  const SuiteOutcome outcome =
      run_suite(prepared, options.selection, options.fresh, console, StopSignals::requested());
  if (outcome.interrupted) {
    console.err << fmt::format("interrupted: {} of {} trials have run; run again to resume:\n  {}\n", outcome.done, outcome.all,
                               clean_line(command_text(options.selection)));
    return kExitInterrupted;
  }
  const Results& results = outcome.results;
  if (results.summary.exit_code == kExitNothing) {
    console.err << "no trial is selected by --only " << clean_line(shell_quoted(options.selection.only))
                << "; results.json has the trials' names, its table those of failures\n";
    return kExitNothing;
  }
  print_results(results, outcome.problems, prepared.out_dir, options.json, console);
  return outcome.problems.empty() ? results.summary.exit_code : kExitMachine;
}

Session session_of(const RunOptions& options) {
  Session session;
  session.command = command_text(options.selection);
  session.of_trials = true;
  return session;
}

int run_prepared(PreparedSuite& prepared, const RunOptions& options, const Console& console) {
  make_suite_out(prepared);
  return in_foreground(prepared.out_dir, session_of(options), [&] { return run_and_report(prepared, options, console); });
}

}  // namespace

/// `text`: the config's, which has been read already. Return the exit code.
static int run_suite_command(const std::string& text, const RunOptions& options, const Console& console) {
  PreparedSuite prepared = prepare_suite(text, options.selection);
  if (!options.part.empty()) throw ConfigError("--part: a suite is not an array of Slurm jobs; remove it");
  if (options.dry_run) {
    print_plan(prepared, options.json, console);
    return kExitAsExpected;
  }
  require_surroundings();
  if (!options.detach) return run_prepared(prepared, options, console);
  make_suite_out(prepared);  // refused before it is forked
  return run_detached(prepared.out_dir, session_of(options), console,
                      [&](const Console& plain) { return run_prepared(prepared, options, plain); });
}

namespace {

/// Slurm's MaxArraySize is 1001 where nobody has set it.
constexpr std::size_t kMostArrayTasks = 1000;

LaunchReport launch_with_progress(const Prepared& prepared, int jobs, const Console& console,
                                  double command_started) {
  Progress progress(prepared.plan, console, monotonic_s, jobs);
  LaunchOptions options;
  options.rank_program = prepared.rank_program;
  options.out_dir = prepared.out_dir;
  if (trains_command(prepared.plan.matrix)) {
    options.make_launcher = command_launcher_maker(prepared.launcher);
  } else {
    options.program_hash = prepared.identity.build;
    options.make_launcher = launcher_maker(prepared.launcher, prepared.rank_program, prepared.out_dir);
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
    console.news() << "nothing has changed since these results were judged\n";
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
  std::map<std::string, ToolSource> sources;  // by run
  for (const CellResult& cell : results.cells) {
    const auto traced = [&](const std::string& run) {
      return !run.empty() && std::filesystem::exists(run_folder(prepared.out_dir, run) + "/rank-0.trace");
    };
    const std::string folder = traced(cell.reference_run) ? run_folder(prepared.out_dir, cell.reference_run) : "";
    if (!folder.empty()) sources.try_emplace(cell.reference_run, ToolSource{cell.reference, folder});
    if (!traced(cell.run)) continue;
    const std::string verdict =
        fmt::format("{}{}", name_of(cell.verdict), cell.mechanism ? "\n\n" + cell.mechanism->sentence : "");
    sources.insert_or_assign(cell.run, ToolSource{cell.scenario, run_folder(prepared.out_dir, cell.run),
                                                  cell.run == cell.reference_run ? "" : folder, verdict});
  }
  std::vector<ToolSource> all;
  for (const auto& [run, source] : sources) all.push_back(source);
  write_tools(all, options.tools, console);
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
  steps.say = [&console](const std::string& line) { console.news() << clean_text(line) << "\n" << std::flush; };
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
  for (const std::string& words : lacking_here(prepared)) lacking.push_back({prepared.plan.matrix.file, 0, 0, words, ""});
  if (!lacking.empty()) throw ConfigError(std::move(lacking));
  const OutFolder folder(prepared.out_dir, prepared.plan.matrix);
  if (options.fresh) remove_done(prepared, folder);
  console.news() << clean_text(opening_text(prepared, options.selection.jobs)) << std::flush;
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
  const bool arrays = array_wish(prepared.launcher.words).wanted;
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
int run_as_job(Prepared& prepared, const RunOptions& options, const Console& console) {
  begin_out(prepared, options);
  const std::string out = std::filesystem::absolute(prepared.out_dir).string();
  MatrixSelection inside = options.selection;
  inside.config = std::filesystem::absolute(inside.config).string();
  inside.out = out;
  // "lockstep" of the command is the program that this process is.
  std::string command = shell_quoted(program_path()) + command_text(inside).substr(std::string("lockstep").size());
  const ArrayWish wish = array_wish(prepared.launcher.words);
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
  if (prepared.nothing_selected()) return say_nothing_selected(prepared, options.selection, console);
  if (options.dry_run) {
    print_plan(prepared, options.selection, options.json, console);
    return kExitAsExpected;
  }
  require_surroundings();
  require_transports(prepared.plan, prepared.rank_program, options.fresh, prepared.launcher.kind == LauncherChoice::Kind::local);
  if (!options.part.empty()) return run_part(prepared, options, console, command_started);
  if (prepared.launcher.kind == LauncherChoice::Kind::slurm && batch_job(current_environment()).empty())
    return run_as_job(prepared, options, console);
  if (options.detach) return run_matrix_detached(prepared, options, console, command_started);
  return run_prepared(prepared, options, console, command_started);
}

int plan_command(const PlanOptions& options, const Console& console) {
  const std::string text = read_config_text(options.selection.config);
  if (names_a_suite(text)) return plan_suite_command(text, options, console);
  const Prepared prepared = prepare(options.selection, text);
  if (prepared.nothing_selected()) return say_nothing_selected(prepared, options.selection, console);
  if (options.prepare) {
    const OutFolder folder(prepared.out_dir, prepared.plan.matrix);
    for (const PlannedRun& run : prepared.plan.runs) {
      if (run.reused) continue;
      const std::string dir = run_folder(prepared.out_dir, run.id);
      prepare_run_folder(dir, run, prepared.identity, prepared.data.hash_of(run.config));
      console.err << clean_line(dir) << "\n";
    }
  }
  print_plan(prepared, options.selection, options.json, console);
  const std::vector<std::string> lacking = lacking_here(prepared);
  for (const std::string& line : lacking) console.err << clean_text(line) << "\n";
  return lacking.empty() ? kExitAsExpected : kExitUsage;
}

namespace {

Results read_results(const std::string& dir) {
  const std::string path = dir + "/results.json";
  const FileText file = read_file(path);
  if (!file)
    throw ConfigError(
        fmt::format("{}: {}; `lockstep run` writes it when a matrix has finished", path, file.problem));
  try {
    return results_from_json(file.text, path);
  } catch (const std::runtime_error& error) {
    throw ConfigError(error.what());
  }
}

const ReportFormat& format_named(const std::string& name) {
  std::vector<std::string_view> known;
  for (const ReportFormat& format : report_formats()) {
    if (format.name == name) return format;
    known.push_back(format.name);
  }
  require_known(name, known, "--format", "format");
  throw ConfigError("--format: '" + name + "' is known but cannot be rendered");
}

}  // namespace

int report_command(const ReportOptions& options, const Console& console) {
  std::vector<std::string> names = split_lists(options.formats);
  for (const std::string& name : names) format_named(name);
  const Results results = read_results(options.dir);
  if (names.empty() || (names.size() == 1 && names.front() == "text")) {
    console.out << terminal_table(results, console.out_colour, console.out_width);
    return kExitAsExpected;
  }
  if (names.size() == 1) {
    const std::string text = render(results, names.front());
    console.out << (names.front() == "json" ? clean_json(text) : text);
    return kExitAsExpected;
  }
  std::vector<std::string> made;
  const std::vector<std::string> problems = write_formats(results, names, options.dir, &made);
  for (const std::string& path : made) console.out << clean_line(path) << "\n";
  for (const std::string& problem : problems) console.err << "lockstep: " << clean_text(problem) << "\n";
  return problems.empty() ? kExitAsExpected : kExitMachine;
}

int schema_command(const SchemaOptions& options, const Console& console) {
  require_known(options.of, {"config", "results"}, "schema", "schema");
  const std::string text = options.of == "results" ? std::string(results_schema()) : every_config_schema();
  console.out << text << (text.empty() || text.back() != '\n' ? "\n" : "");
  return kExitAsExpected;
}

}  // namespace lockstep
