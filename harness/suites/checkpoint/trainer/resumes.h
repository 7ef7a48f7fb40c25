#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/run_config.h"
#include "harness/suites/engine/suite.h"

// Real runs of a trainer that are started, disturbed and started again, under the supervisor that `lockstep run` has.

namespace lockstep::restarts {

/// What run.json tells ranks to do to their checkpoints; see harness/jobs/train_job.h.
struct Planted {
  bool record = false;
  int rank = -1;
  int64_t operation = -1;
  int signal = 0;
  std::string not_saved = {}, not_restored = {};
  bool unchecked = false;
  std::string mistake = {};
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Planted, record, rank, operation, signal, not_saved, not_restored, unchecked, mistake)

/// How an attempt at a run ended.
struct Ended {
  std::vector<RankEnd> exits;  ///< in the order in which they came
  bool hung = false;           ///< it was killed at the deadline, or a rank stood still
  double seconds = 0;
  bool finished() const;        ///< every process with status 0
  /// "rank 1: killed by signal 9; rank 0: status 1"
  std::string in_words() const;
};

/// An attempt while it runs.
struct Going {
  const HeartbeatFile& heartbeats;
  const std::vector<int>& processes;  ///< by rank
  double since_started_s = 0;
  std::function<void(int signal)> signal_all;  ///< as lockstep passes a signal on
  std::function<void(int rank)> kill;
  /// Steps that the rank furthest ahead, or the one furthest behind, has finished; -1: it has not begun.
  int64_t most_steps() const;
  int64_t fewest_steps() const;
  bool all_began() const;  ///< every rank has reported itself at least once
};
using Disturb = std::function<void(const Going&)>;

class Bench {
 public:
  /// `work`: a folder of its own, which is emptied.
  Bench(std::string rank_program, std::string work, double deadline_s, const volatile int* stop_requested);

  /// An empty run's folder, or one that holds what another one left.
  std::string empty(const std::string& name);
  std::string copy(const std::string& from, const std::string& name);

  /// Starts the run in `dir`, going on where its checkpoints stand, and waits for all its ranks.
  Ended attempt(const std::string& dir, const RunConfig& config, const Planted& planted = {},
                const Disturb& disturb = nullptr);
  /// The same, and all ranks are killed when each has finished more than so many steps.
  Ended attempt_past(int64_t steps, const std::string& dir, const RunConfig& config, const Planted& planted = {});

 private:
  std::string work_;
  double deadline_s_;
  RankRuns runs_;
};

/// What an attempt's rank wrote at its end; its status is empty if it wrote nothing.
RankResult result_of(const std::string& dir, int rank);
std::string trace_of(const std::string& dir, int rank);

// What is tried on real runs: each experiment makes the runs that others are compared with, and its trials.

/// What all experiments are given.
struct Subject {
  RunConfig config;  ///< of the cell, with real ranks and without checkpoints
  int64_t points = 0;
  int64_t cycles = 200, signals = 200, resume_steps = 64;
  int64_t seed = 0;
  std::string mistake;  ///< planted in the saver that is killed, to see it found; empty: none
};

/// A trial that runs on the bench of its slot.
struct BenchTrial {
  Trial trial;
  std::function<std::vector<CaseResult>(Bench&)> run;
};

struct Experiment {
  std::vector<BenchTrial> trials = {};
  Facts facts = {};
};

struct ExperimentKind {
  std::string_view name;  ///< also the first word of its trials' names
  std::string_view help;
  /// Runs, on a bench of its own, what trials are compared with. Throws ConfigError where a run without a failure
  /// fails, or where two of them differ. The subject outlives the trials.
  Experiment (*plan)(const Subject& subject, Bench& bench);
};
/// All, in the order in which they are run.
std::span<const ExperimentKind> experiment_kinds();

Experiment plan_kills(const Subject& subject, Bench& bench);
Experiment plan_cycles(const Subject& subject, Bench& bench);

/// Runs of one config: how the ranks share the cell's batch, and when they save.
struct Shape {
  int ranks = 2;
  int64_t steps = 0, every = 0;
  int keep = 3;
  bool async = false, sharded = false;
};
/// Throws ConfigError if the batch cannot be shared so.
RunConfig shaped(const RunConfig& config, const Shape& shape);

/// An uninterrupted run that a second one equals byte for byte. Throws ConfigError if it fails, or if they differ.
std::string reference(Bench& bench, const std::string& name, const RunConfig& config, const Planted& planted = {});

inline CaseResult good(std::string outcome) { return {std::move(outcome), CaseVerdict::good, 1, ""}; }
inline CaseResult fault(std::string outcome, std::string sentence) {
  return {std::move(outcome), CaseVerdict::fault, 1, std::move(sentence)};
}

// Holds what a run left against what it should have left.

/// The checkpoints in a run's folder, as a load would find them.
struct Kept {
  std::vector<int64_t> whole;  ///< steps, newest first
  int64_t damaged = 0;         ///< committed, and not what was committed
  int64_t newest() const { return whole.empty() ? 0 : whole.front(); }
};
Kept kept_in(const std::string& run_dir);

/// Of a run that has ended: what is wrong with `best_model`, which must name a whole checkpoint whose evaluation is not
/// worse than that of any step that is both evaluated and saved: "best_model: step 12 expected, found 8". Empty: nothing.
std::string best_model_problem(const std::string& run_dir, const RunConfig& config);

/// Of a run that has gone on to its end: what is wrong with `best_model`, or where it parts from the whole run.
std::vector<CaseResult> wrong_end(const std::string& whole_dir, const std::string& run_dir, const RunConfig& config,
                                  const std::string& who);

/// Where the two runs part: results, curves, metrics, last parameters and traces of all ranks, byte for byte. Empty: they
/// do not. "rank 1: step 12: parameters, w: …"
std::string first_difference(const std::string& expected_dir, const std::string& found_dir, int ranks);
/// The same of their traces alone, up to that step.
std::string trace_difference_before(const std::string& expected_dir, const std::string& found_dir, int ranks, int64_t step);

}  // namespace lockstep::restarts
