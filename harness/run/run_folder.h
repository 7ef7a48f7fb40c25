#pragma once
// OUT/runs/<id>: what the launcher writes there before and after a run, and what it reads of the ranks'
// files.

#include <string>
#include <utility>
#include <vector>

#include "harness/base/files.h"
#include "harness/plan/matrix/plan.h"

namespace lockstep {

/// Threads that every rank computes with. More would be faster and would change the bits with the machine's
/// cores.
inline constexpr int kThreadsPerRank = 1;

std::string run_folder(const std::string& out_dir, const std::string& id);

/// Processes that the run's ranks live in: world_size for real ranks, else 1.
int processes_of(const RunConfig& config);

/// "2026-11-26T15:40:00Z".
std::string utc_now();

/// Build, machine and environment, as run.json and the reports state them.
std::vector<std::pair<std::string, std::string>> provenance(const BuildIdentity& identity);

/// Can an attempt of this run that was interrupted be gone on with? It left checkpoints, and its run.json says that it was of
/// the same config, program and data.
bool goes_on(const std::string& dir, const PlannedRun& run, const BuildIdentity& identity, const std::string& data_hash = "");

/// Makes the folder anew, without what an earlier attempt left, and writes run.json. Of one that is gone on with its
/// checkpoints, traces and logs stay. `data_hash`: of the data
/// that the run is planned on, which its ranks hold against what they read; empty: not known. Throws
/// MachineError.
void prepare_run_folder(const std::string& dir, const PlannedRun& run, const BuildIdentity& identity,
                        const std::string& data_hash = "", Files& files = real_files());

/// Marks the run as finished: the hashes that decide whether it is reused, how long it took, and the
/// checksums of what it left. Throws MachineError.
void write_done(const std::string& dir, const PlannedRun& run, const BuildIdentity& identity, double seconds,
                Files& files = real_files());

/// Throws MachineError naming both hashes and the rank if it read other data than the run was planned on. An
/// empty hash is not known, and fits any.
void require_planned_data(const std::string& planned, const std::string& read, int rank);

/// The last `count` lines of a log, control characters made visible; empty if there is none.
std::vector<std::string> last_lines(const std::string& path, std::size_t count);

std::string rank_log_path(const std::string& dir, int rank);  ///< rank -1: the process that is all ranks
std::string rank_result_path(const std::string& dir, int rank);

}  // namespace lockstep
