#include "harness/cli/session/out_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <set>
#include <thread>
#include <utility>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/session/progress.h"
#include "harness/judge/compare/band.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/run/libraries.h"
#include "harness/run/run_folder.h"
#include "harness/suites/checkpoint/saver/search.h"
#include "harness/suites/checkpoint/trainer/restarts.h"
#include "harness/suites/faults/faults.h"
#include "harness/suites/foreign_saver/program.h"
#include "reports/format.h"
#include "reports/text.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

/// The file of the terminal's format, if that is asked for.
constexpr std::string_view kTextReport = "report.txt";

std::string_view file_name_of(const ReportFormat& format) {
  return format.file_name.empty() ? kTextReport : format.file_name;
}

/// Throws ConfigError where the user has no right to write there: another --out mends it.
void refuse_if_not_allowed(const std::string& path, const std::error_code& error) {
  if (error != std::errc::permission_denied && error != std::errc::operation_not_permitted && error != std::errc::read_only_file_system) return;
  throw ConfigError(fmt::format("{}: {}; give --out a folder that user {} may write to, on every node", path, error.message(), ::geteuid()));
}

}  // namespace

OutFolder::OutFolder(const std::string& path, const Matrix& matrix, Files& files, Hold hold)
    : path_(path), files_(files) {
  if (const auto error = make_durable_folders(path, files)) {
    refuse_if_not_allowed(path, error);
    throw MachineError(path + ": cannot be created: " + error.message());
  }
  const std::string lock_path = path + "/.lock";
  lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) {
    const int error = errno;
    refuse_if_not_allowed(path, std::error_code(error, std::generic_category()));
    throw MachineError(lock_path + ": " + std::strerror(error));
  }
  if (::flock(lock_, (hold == Hold::alone ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    const std::string why = std::strerror(errno);
    ::close(lock_);
    if (taken)
      throw ConfigError(path + ": another lockstep process writes there; wait for it, or give another --out");
    throw MachineError(lock_path + ": " + why);
  }
  if (hold == Hold::alone) remove_temporaries();
  // Syncing a file takes longer than anything else that a finished matrix has to do.
  const std::string stamp = matrix_stamp(matrix), stamp_path = path + "/matrix.json";
  if (read_file(stamp_path).text != stamp) write_file_atomically(stamp_path, stamp, files);
}

/// Whatever was being written anywhere below: nobody else writes there while the folder is held.
void OutFolder::remove_temporaries() const {
  std::vector<std::string> folders = {path_};
  std::error_code error, unknown;
  for (fs::recursive_directory_iterator at(path_, error), end; !error && at != end; at.increment(error))
    if (at->is_directory(unknown)) folders.push_back(at->path().string());
  for (const std::string& folder : folders) remove_left_temporaries(folder, [](std::string_view) { return true; }, files_);
}

OutFolder::~OutFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void OutFolder::remove_runs(const Plan& plan) const {
  for (const PlannedRun& run : plan.runs) {
    const std::string dir = run_folder(path_, run.id);
    if (const auto error = files_.remove_all(dir)) {
      throw MachineError(dir + ": cannot be removed: " + error.message());
    }
  }
}

std::vector<std::string> OutFolder::write_replays(const Plan& plan, Results& results) const {
  std::vector<std::string> problems;
  // Cells that do not train are gradients at a few steps already; a replay has nothing smaller.
  const QuestionPlan& asks = asked_by(plan.matrix);
  const bool of_itself = asks.references == References::own && !asks.draws_cells();
  if (!asks.trains || of_itself || !plan.matrix.replay.empty()) return problems;
  for (std::size_t i = 0; i < results.cells.size(); ++i) {
    CellResult& cell = results.cells[i];
    const bool wanted = !results.detection || !cell.as_expected;
    if (!wanted || cell.reference_run.empty() || !cell.mechanism || !cell.mechanism->first_divergence)
      continue;
    const int64_t step = cell.mechanism->first_divergence->step;
    // Before the first step there is nothing but the initial weights.
    if (step < 0) continue;
    const std::string dir = path_ + "/replay/" + cell.run;
    try {
      write_replay(plan.matrix, plan.matrix.cells[i], step, run_folder(path_, cell.reference_run), dir,
                   files_);
      cell.replay = "lockstep run " + dir + "/replay.yaml --out " + dir + "/out";
    } catch (const std::exception& error) {
      problems.push_back(dir + ": the first step at which " + cell.scenario +
                         " differs was not saved: " + error.what());
    }
  }
  return problems;
}

std::vector<std::string> OutFolder::write_reports(const Results& results) const {
  std::vector<std::string> names;
  for (const ReportFormat& format : report_formats()) {
    if (!format.file_name.empty()) names.emplace_back(format.name);
  }
  return write_formats(results, std::move(names), path_, nullptr, files_);
}

std::vector<std::string> write_formats(const Results& results, std::vector<std::string> names,
                                       const std::string& dir, std::vector<std::string>* made, Files& files) {
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name == "json"; });
  std::vector<std::string> problems;
  for (const std::string& name : names) {
    std::string_view file = kTextReport;
    for (const ReportFormat& format : report_formats()) {
      if (format.name == name) file = file_name_of(format);
    }
    const std::string path = dir + "/" + std::string(file);
    try {
      write_file_atomically(path, render(results, name), files);
      if (made != nullptr) made->push_back(path);
    } catch (const MachineError& error) {
      problems.emplace_back(error.what());
    } catch (const std::exception& error) {
      problems.push_back(path + ": could not be written, internal error: " + error.what());
    }
  }
  return problems;
}

std::string append_step_summary(const std::string& path, const Results& results, Files& files) {
  try {
    const std::string markdown = render(results, "md");
    int file = -1;
    std::error_code error = files.open(path, OpenFor::appending, file);
    if (!error) {
      error = files.write(file, markdown + "\n");
      const std::error_code unclosed = files.close(file);
      if (!error) error = unclosed;
    }
    return error ? path + ": the step summary cannot be written: " + error.message() : "";
  } catch (const std::exception& error) {
    return path + ": the step summary could not be written, internal error: " + error.what();
  }
}

std::string command_text(const MatrixSelection& selection) {
  std::string text = "lockstep run " + shell_quoted(selection.config);
  for (const std::string& setting : selection.set) text += " --set " + shell_quoted(setting);
  if (!selection.only.empty()) text += " --only " + shell_quoted(selection.only);
  if (!selection.seeds.empty()) text += " --seeds " + shell_quoted(selection.seeds);
  if (!selection.out.empty()) text += " --out " + shell_quoted(selection.out);
  if (selection.jobs > 0) text += " --jobs " + std::to_string(selection.jobs);
  if (!selection.launcher.empty()) text += " --launcher " + shell_quoted(selection.launcher);
  return text;
}

namespace fs = std::filesystem;

std::span<const SuiteKind* const> suite_kinds() {
#ifdef __x86_64__
  static const std::array kKinds{&program_suite(), &saver_suite(), &trainer_suite(), &faults_suite()};
#else
  static const std::array kKinds{&saver_suite(), &trainer_suite(), &faults_suite()};
#endif
  return kKinds;
}

namespace {

/// What OUT is stamped with: a name and a file, as a matrix's.
Matrix stamp_of(const SuiteSource& source) {
  Matrix matrix;
  matrix.name = source.name;
  matrix.file = source.file;
  return matrix;
}

int exit_code_of(const SuiteResult& result) {
  if (result.trials == 0) return kExitNothing;
  if (result.faults > 0) {
    const bool only_hangs = std::ranges::all_of(result.table, [](const SuiteCount& count) {
      return count.verdict != CaseVerdict::fault || count.outcome == "hang";
    });
    return only_hangs ? kExitHung : kExitUnexpected;
  }
  return result.undecided > 0 ? kExitUndecided : kExitAsExpected;
}

std::vector<std::pair<std::string, std::string>> provenance_of(const PreparedSuite& prepared) {
  utsname name{};
  ::uname(&name);
  return {{"kernel", fmt::format("{} {} {}", name.sysname, name.release, name.machine)},
          {"cores", std::to_string(std::thread::hardware_concurrency())},
          {"slots", std::to_string(prepared.jobs)}};
}

/// Of the settings and of the programs that decide what a trial finds.
std::string journal_key(const PreparedSuite& prepared) {
  std::string all = prepared.text;
  for (const std::string& each : prepared.set) all += "\n" + each;
  all += "\n" + prepared.config.suite->identity();
  for (const std::string& program : {program_path(), rank_program_path()}) {
    std::error_code error;
    if (fs::exists(program, error)) all += "\n" + hash_of_file(program);
  }
  return hash_in_hex(all);
}

/// Writes OUT/replay/<trial>.sh, which runs the one trial again in a folder beside it.
class Replays {
 public:
  Replays(const MatrixSelection& selection, std::string out_dir)
      : selection_(selection), out_dir_(std::move(out_dir)) {}

  /// The command that runs the script; a problem is added and nothing returned if it cannot be written.
  std::string write(const std::string& trial, std::vector<std::string>& problems) {
    std::string stem = slug(trial);
    for (int number = 2; !taken_.insert(stem).second; ++number) stem = fmt::format("{}-{}", slug(trial), number);
    const std::string folder = out_dir_ + "/replay", path = folder + "/" + stem + ".sh";
    MatrixSelection one = selection_;
    one.only = trial;
    one.out = fs::absolute(folder + "/" + stem).string();
    one.jobs = 1;
    // From the folder that the config's commands were run in, with the same program unless LOCKSTEP names one.
    const std::string text = fmt::format(
        "#!/bin/sh\n# Runs one trial again: {}\ncd {} || exit 7\nexec \"${{LOCKSTEP:-{}}}\" {} \"$@\"\n", trial,
        shell_quoted(fs::current_path().string()), program_path(),
        command_text(one).substr(std::string("lockstep ").size()));
    try {
      if (const auto error = real_files().make_folders(folder)) throw MachineError(folder + ": " + error.message());
      write_file_atomically(path, text);
    } catch (const MachineError& error) {
      problems.emplace_back(error.what());
      return "";
    }
    return "sh " + shell_quoted(path);
  }

 private:
  MatrixSelection selection_;
  std::string out_dir_;
  std::set<std::string> taken_;
};

}  // namespace

std::string every_config_schema() {
  SchemaJson matrix = SchemaJson::parse(config_schema());
  SchemaJson definitions = std::move(matrix["definitions"]);
  const std::string draft = matrix["$schema"].get<std::string>();
  matrix.erase("definitions");
  matrix.erase("$schema");
  SchemaJson all{{"$schema", draft}, {"title", "lockstep config"}, {"type", "object"}};
  all["anyOf"] = {std::move(matrix), suite_schema(suite_kinds())};
  all["definitions"] = std::move(definitions);
  return dense_json(all);
}

PreparedSuite prepare_suite(const std::string& text, const MatrixSelection& selection) {
  if (!selection.seeds.empty()) throw ConfigError("--seeds: a suite has no seeds; remove it");
  if (!selection.launcher.empty()) throw ConfigError("--launcher: a suite starts its ranks on this machine; remove it");
  PreparedSuite prepared;
  prepared.text = text;
  prepared.set = selection.set;
  prepared.config = read_suite(text, selection.config, selection.set, suite_kinds());
  const Matrix stamp = stamp_of(prepared.config.source);
  prepared.out_dir = selection.out.empty() ? default_out_dir(stamp) : selection.out;
  check_out_dir(stamp, prepared.out_dir);
  const TrialFilter readable(selection.only);
  prepared.jobs = selection.jobs > 0 ? selection.jobs : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return prepared;
}

void make_suite_out(const PreparedSuite& prepared) { const OutFolder folder(prepared.out_dir, stamp_of(prepared.config.source)); }

std::string suite_plan_text(const PreparedSuite& prepared) {
  const SuiteSource& source = prepared.config.source;
  std::string text = fmt::format("{} · suite {}: {}\n", source.name, source.kind,
                                 prepared.config.suite->subject());
  for (const std::string& line : prepared.config.suite->plan()) text += "  " + line + "\n";
  return text + fmt::format("  {} at once, results in {}\n", counted(prepared.jobs, "trial"), prepared.out_dir);
}

std::string suite_plan_json(const PreparedSuite& prepared) {
  const SuiteSource& source = prepared.config.source;
  const nlohmann::ordered_json json{{"name", source.name},
                                    {"laboratory", source.kind},
                                    {"subject", prepared.config.suite->subject()},
                                    {"plan", prepared.config.suite->plan()},
                                    {"jobs", prepared.jobs},
                                    {"out", prepared.out_dir}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void TrialsLine::clear() {
  if (painted_) console_.err << "\r\x1b[K" << std::flush;
  painted_ = false;
}

void TrialsLine::say(const std::string& line) {
  clear();
  console_.err << clean_line(line) << "\n" << std::flush;
}

void TrialsLine::on_progress(const TrialProgress& progress) {
  constexpr double kRepaintEvery_s = 0.1, kSayEvery_s = 5, kSayLong_s = 15;
  const bool last = progress.done == progress.all;
  std::string line = fmt::format("{}/{} trials", progress.done, progress.all);
  if (progress.faults > 0) line += " · " + counted(progress.faults, "fault");
  if (!last && progress.elapsed_s > 1 && progress.left_s > 0) line += " · about " + duration_text(progress.left_s) + " left";
  const bool silent = progress.longest_s >= kSayEvery_s;
  if (silent) line += fmt::format(" · {} for {}", progress.longest, duration_text(progress.longest_s));
  if (console_.err_terminal && !console_.quiet) {
    if (!last && progress.elapsed_s - painted_at_ < kRepaintEvery_s) return;
    painted_at_ = progress.elapsed_s;
    console_.err << "\r" << shorten(line, console_.err_width - 1) << "\x1b[K" << std::flush;
    painted_ = true;
    return;
  }
  const double said_for_s = progress.elapsed_s - said_at_;
  const bool due = said_for_s >= kSayEvery_s && (progress.done - said_done_) * 10 >= progress.all;
  if (!due && !(silent && said_for_s >= kSayLong_s) && !last) return;
  said_at_ = progress.elapsed_s;
  said_done_ = progress.done;
  console_.news() << line << "\n" << std::flush;
}

SuiteOutcome run_suite(PreparedSuite& prepared, const MatrixSelection& selection,
                                 bool fresh, const Console& console, const volatile int* stop_requested) {
  const SuiteSource& source = prepared.config.source;
  const OutFolder folder(prepared.out_dir, stamp_of(source));
  TrialsLine line(console);
  SuiteRun run;
  run.out_dir = prepared.out_dir;
  run.jobs = prepared.jobs;
  run.stop_requested = stop_requested;
  run.say = [&line](const std::string& text) { line.say(text); };
  TrialJournal journal(prepared.out_dir + "/" + kTrialJournal, journal_key(prepared), fresh);
  TrialOptions options;
  options.journal = &journal;
  options.only = selection.only;
  options.clock = monotonic_s;
  options.on_progress = [&line](const TrialProgress& progress) { line.on_progress(progress); };
  options.on_recorded = [&line](std::size_t recorded, std::size_t all) {
    line.say(fmt::format("{} of {} trials ran before the interruption", recorded, all));
  };
  TrialsDone done = run_trials(*prepared.config.suite, run, options);
  SuiteOutcome outcome;
  outcome.interrupted = done.interrupted;
  outcome.done = done.done;
  outcome.all = done.all;
  if (done.interrupted) return outcome;
  Results& results = outcome.results;
  results.name = source.name;
  results.config_file = source.file;
  results.question_text = source.question_text;
  results.question = std::string(kSuiteQuestion);
  results.rerun = command_text(selection);
  results.provenance = provenance_of(prepared);
  done.result.kind = source.kind;
  results.suite = std::move(done.result);
  results.summary.exit_code = exit_code_of(*results.suite);
  results.summary.sentence =
      results.suite->faults == 0 && results.suite->undecided == 0
          ? fmt::format("{}: all {} right.", results.suite->subject, counted(results.suite->cases, "case"))
          : fmt::format("{}: {} of {} wrong, {} undecided.", results.suite->subject, results.suite->faults,
                        counted(results.suite->cases, "case"), results.suite->undecided);
  if (results.summary.exit_code == kExitNothing) return outcome;
  Replays replays(selection, prepared.out_dir);
  for (SuiteFinding& finding : results.suite->findings)
    finding.replay = replays.write(finding.trial, outcome.problems);
  const std::vector<std::string> unwritten = folder.write_reports(results);
  outcome.problems.insert(outcome.problems.end(), unwritten.begin(), unwritten.end());
  if (outcome.problems.empty()) journal.end();
  return outcome;
}

}  // namespace lockstep
