#include "harness/cli/session/out_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/compare/replay.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/question.h"
#include "reports/format.h"

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
  // Syncing a file takes longer than anything else that a matrix which is finished has to do.
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
  if (!asked_by(plan.matrix).trains || !plan.matrix.replay.empty()) return problems;
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

}  // namespace lockstep
