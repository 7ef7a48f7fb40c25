#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/judge/evidence/run_evidence.h"

// What a comparison of outcomes is made of: the runs of one cell, by seed, as an output folder holds them.

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

/// Does the folder hold a run.json or a trace: is it a single run?
bool is_run_folder(const std::string& path);
/// Does it hold results.json: is it a matrix that was judged?
bool is_output_folder(const std::string& path);

/// The first failure among its runs.
std::optional<Failure> failure_of(const Arm& arm);
/// Metrics of all runs, by seed.
MetricsBySeed metrics_of(const Arm& arm);

// Do two arms answer the same question? Numbers that answer different questions cannot be compared.

/// A setting by which two arms answer different questions, so that their numbers cannot be compared.
struct QuestionDifference {
  std::string what, a, b;
};

/// Trainer and data: what two traces must share for their bits to be about the same training.
std::vector<QuestionDifference> data_differences(const RunConfig& a, const RunConfig& b);

/// Throws ConfigError where the parameters of two traced runs tell that they train two models: fewer than half of the smaller one's have a
/// partner of their name and shape, and fewer than half one of their shape. Nothing is said of parameters that may be parts.
void require_one_model(const std::string& run_a, const std::string& run_b);

/// Those, then what the matrices ask and declare, as far as `given` does not replace it.
struct Given {
  std::string metric;  ///< empty: as declared
  std::optional<double> margin, alpha;
};
std::vector<QuestionDifference> question_differences(const Arm& a, const Arm& b, const Given& given);

/// The metric, margin and alpha to judge by: `given`, else what both declare. Throws ConfigError if neither
/// gives them, or if one is out of range.
Primary primary_of(const Arm& a, const Arm& b, const Given& given);

// Which cells of two folders are compared with each other, and whether they may be.

struct ArmPair {
  Arm reference, cell;
  std::vector<QuestionDifference> differences;  ///< reported; --across compares all the same
};

struct MatchedArms {
  std::vector<ArmPair> pairs;
  std::vector<std::string> alone;  ///< cells that one side has alone, in words
};

/// One arm against one, whatever their names; else by name. Throws ConfigError if a single arm has no
/// partner of its name among several, or if both are the same runs.
MatchedArms match_arms(std::vector<Arm> reference, std::vector<Arm> cell);

/// Fills the pairs' differences. Unless `across`, throws ConfigError that lists them all and the cells
/// without a partner.
void require_same_question(MatchedArms& matched, const Given& given, bool across);

/// Throws ConfigError that lists the seeds that one side lacks.
void require_paired_seeds(const std::vector<ArmPair>& pairs);

/// "data.stride is 2 against 4".
std::string difference_text(const QuestionDifference& difference);
// Which planned runs are the arms of a cell: pairs by seed, the certifying prefix, the forced runs.

/// One seed of a cell and of its reference; null where the plan has no such run.
struct SeedPair {
  int64_t seed = 0;
  const PlannedRun* cell = nullptr;
  const PlannedRun* reference = nullptr;
};

class PlannedArms {
 public:
  /// The plan must outlive it.
  explicit PlannedArms(const Plan& plan);
  const Plan& plan() const { return plan_; }

  std::vector<SeedPair> pair_seeds(const Cell& cell) const;
  /// The certifying or forced run of a cell, or of another cell of equal config (of forced runs: and
  /// reference) in whose name it is planned; null if none.
  const PlannedRun* single_run(const Cell& cell, RunRole role) const;
  /// The forced run of the cell, then those of the reference at whose snapshots it was taken, each with its twin; empty
  /// if none is planned.
  std::vector<const PlannedRun*> forced_runs(const Cell& cell) const;
  /// The planned run of that config, whatever it is called and there for; null if none.
  const PlannedRun* run_of(const RunConfig& config) const;
  /// The same in float64: of a run in float64 itself. Null where the matrix judges without twins.
  const PlannedRun* twin_of(const PlannedRun& forced) const;

 private:
  const Plan& plan_;
  std::unordered_map<std::string, std::string> cell_hashes_;  ///< by name
};

// Forced runs that a matrix has left beside two of its free runs.

/// Folders of finished forced runs: gradients at one reference run's own snapshots.
struct ForcedBeside {
  int64_t seed = 0;
  std::string reference, cell;
  std::string reference_twin, cell_twin;  ///< the same in float64; of a run in float64 itself
  bool has_twins() const { return !reference_twin.empty() && !cell_twin.empty(); }
};

/// Those of both runs' settings in the folder that holds the runs: of their own seed and at the reference's own
/// snapshots, or, where the matrix forced another seed alone, of that one. The runs may be forced ones themselves.
/// Nothing where they lie apart, or have none that have finished.
std::optional<ForcedBeside> forced_runs_beside(const std::string& reference_dir, const RunRecord& reference,
                                               const std::string& cell_dir, const RunRecord& cell);

}  // namespace lockstep
