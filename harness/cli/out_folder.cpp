#include "harness/cli/out_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/judge/replay.h"
#include "harness/launch/run_folder.h"
#include "harness/plan/errors.h"
#include "harness/plan/read_file.h"
#include "harness/trace/rank_result.h"
#include "reports/format.h"

namespace lockstep {

namespace fs = std::filesystem;

OutFolder::OutFolder(const std::string& path, const Matrix& matrix) : path_(path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw MachineError(path + ": cannot be created: " + error.message());
  const std::string lock_path = path + "/.lock";
  lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) throw MachineError(lock_path + ": " + std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    const std::string why = std::strerror(errno);
    ::close(lock_);
    if (taken)
      throw ConfigError(path + ": another lockstep writes there; wait for it, or give another --out");
    throw MachineError(lock_path + ": " + why);
  }
  // Syncing a file takes longer than anything else that a matrix which is finished has to do.
  const std::string stamp = matrix_stamp(matrix), stamp_path = path + "/matrix.json";
  if (read_file(stamp_path).text != stamp) write_file_atomically(stamp_path, stamp);
}

OutFolder::~OutFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void OutFolder::remove_runs(const Plan& plan) const {
  for (const PlannedRun& run : plan.runs) {
    const std::string dir = run_folder(path_, run.id);
    std::error_code error;
    fs::remove_all(dir, error);
    if (error) throw MachineError(dir + ": cannot be removed: " + error.message());
  }
}

void OutFolder::write_replays(const Plan& plan, Results& results) const {
  // A certificate's cells are gradients at two steps already; a replay has nothing smaller.
  if (plan.matrix.question == Question::certificate || !plan.matrix.replay.empty()) return;
  for (std::size_t i = 0; i < results.cells.size(); ++i) {
    CellResult& cell = results.cells[i];
    const bool wanted = !results.detection || !cell.as_expected;
    if (!wanted || cell.reference_run.empty() || !cell.mechanism || !cell.mechanism->first_divergence)
      continue;
    const int64_t step = cell.mechanism->first_divergence->step;
    // Before the first step there is nothing but the initial weights.
    if (step < 0) continue;
    const std::string dir = path_ + "/replay/" + cell.run;
    write_replay(plan.matrix, plan.matrix.cells[i], step, run_folder(path_, cell.reference_run), dir);
    cell.replay = "lockstep run " + dir + "/replay.yaml --out " + dir + "/out";
  }
}

void OutFolder::write_reports(const Results& results) const {
  for (const ReportFormat& format : report_formats()) {
    if (format.file_name.empty()) continue;
    write_file_atomically(path_ + "/" + std::string(format.file_name),
                          render(results, std::string(format.name)));
  }
}

std::string append_step_summary(const std::string& path, const std::string& markdown) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << markdown << "\n" << std::flush;
  return file ? "" : path + ": the step summary cannot be written: " + std::strerror(errno);
}

}  // namespace lockstep
