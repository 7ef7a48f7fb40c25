#pragma once
// What a comparison of outcomes is made of: the runs of one cell, by seed, as an output folder holds them.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/evidence/run_evidence.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// The bytes of a file that the user named. Throws ConfigError if it cannot be read.
std::string read_whole(const std::string& path);

/// run.json of a run folder.
struct RunRecord {
  std::string id, role, cell, started;  ///< started: UTC, ISO 8601
  RunConfig config;
  std::map<std::string, std::string> provenance;
};

/// Nothing if the folder has no run.json. Throws ConfigError if it cannot be understood.
std::optional<RunRecord> read_run_record(const std::string& run_dir);

struct ArmRun {
  std::string dir;
  RunRecord record;
  RunEvidence evidence;
};

struct Arm {
  std::string name;                  ///< of the cell or reference; of a single run its id
  std::string place;                 ///< the folder
  bool single = false;               ///< one run folder, not a cell with all its seeds
  bool is_reference = false;         ///< of cells of its matrix
  RunConfig config;                  ///< of the first seed
  std::map<int64_t, ArmRun> runs;    ///< by seed: those that are there
  std::vector<int64_t> missing;      ///< seeds that the results name and whose runs are not there
  std::optional<std::string> question;  ///< what its matrix asks and declares
  std::optional<Primary> primary;
};

/// "8x3 local (out/a)".
std::string title_of(const Arm& arm);

/// `word`: an output folder (all its cells), OUT:NAME (one cell or reference), or a run folder. Throws
/// ConfigError: what is not there, cells that the folder does not have (with those that it has).
/// `metric`: a run in which it is not finite has failed; empty: the one that the matrix declares.
std::vector<Arm> read_arms(const std::string& word, const std::string& metric = "");

/// Every cell of an output folder, then every reference that is not also a cell.
std::vector<Arm> read_all_arms(const std::string& out_dir, const std::string& metric = "");

/// Does the folder hold a run.json or a trace: is it a single run?
bool is_run_folder(const std::string& path);
/// Does it hold results.json: is it a matrix that was judged?
bool is_output_folder(const std::string& path);

/// The first failure among its runs.
std::optional<Failure> failure_of(const Arm& arm);
/// Metrics of all runs, by seed.
MetricsBySeed metrics_of(const Arm& arm);

}  // namespace lockstep
