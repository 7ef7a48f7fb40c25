#pragma once
// What a rank leaves beside its trace. rank-<r>.result.json: how it ended, and its curves and metrics; this file, not an exit code, is the
// truth about a rank of lockstep's. rank-<r>.probe.json: what the probe says of a rank of other people's trainers.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/files.h"

namespace lockstep {

struct Series {
  std::vector<int64_t> steps;
  std::vector<double> values;
};

/// What a rank saved of its run, and where the run went on.
struct CheckpointsOfRank {
  std::vector<int64_t> saved;     ///< steps whose checkpoints were committed by this process
  double seconds = 0;             ///< in which training waited for them
  std::vector<std::string> problems;  ///< of saves that failed
  int64_t resumed_at = 0;         ///< the step before which this process loaded a checkpoint; 0: it began
  std::string resumed_from;       ///< its name
  std::vector<std::string> remarks;  ///< of the load (newer ones that were refused, pointers behind), and of what failed after a commit
  int stop_signal = 0;            ///< that ended the run after an agreed step
  double stop_seconds = 0;        ///< from that signal, as this rank heard of it, to the end of the save
  bool any() const { return !saved.empty() || !problems.empty() || resumed_at > 0 || stop_signal != 0; }
};

/// What failed, in one line: "2 of 8 saves failed, the first: epoch_0_step_8 was not saved: …; the newest checkpoint is of
/// step 6". Empty: none did.
std::string problem_words(const CheckpointsOfRank& checkpoints);

struct RankResult {
  int rank = 0;
  int world_size = 1;
  std::string config_hash;  ///< of the rank's run; empty: not recorded
  std::string data_hash;    ///< of the data that the rank's process read; empty: none was read
  std::string status;  ///< "finished", "failed", "interrupted"
  std::string error;   ///< what was thrown, if it failed
  std::string phase;   ///< launch, rendezvous, train, evaluate: where it ended
  int64_t steps_done = 0;
  double train_seconds = 0;       ///< wall time of the training loop without evaluation
  double first_step_seconds = 0;  ///< from the command's start to the end of the first step; 0: unknown
  /// Seconds in which the rank did nothing but communicate: collectives and waits for gradients' reductions.
  double communication_seconds = 0;
  double activation_bytes = 0;  ///< most that a step kept from its forward for its backward pass
  double resident_first_bytes = 0,
         resident_last_bytes = 0;         ///< of the process, after the first tenth and at the end
  std::map<std::string, double> metrics;  ///< final, those of the trainer's spec; rank 0 alone
  std::map<std::string, Series> curves;   ///< by step: loss, gradient_norm, …
  std::string parameters_hash;     ///< of all final parameters, 16 hex digits; empty: none were reached
  double step_seconds = 0;         ///< median over the steps after the first tenth
  double communication_share = 0;  ///< of those steps' time, in [0, 1]
  double weight_bytes = 0;         ///< of all parameters
  double received_bytes = 0;       ///< from other ranks in the collectives of one of those steps, in the mean
  /// The planted faults that changed something on this rank: "mutant", "second_mutant".
  std::vector<std::string> faults_acted;
  CheckpointsOfRank checkpoints;  ///< written only if there is any
  /// Of a rank of several processes: what carried its collectives ("gloo", "nccl", "gloo_cuda"), and what two runs over it may be
  /// held to, as the rank's own environment decides ("bits", "band"). Else empty, and not written.
  std::string transport, certified_by;
};

/// Doubles are kept as 17 digits and as hex bits where they are metrics; NaN and infinities as strings.
/// Sealed by a checksum. Written to a temporary name, synced and renamed. Throws MachineError.
void write_rank_result(const std::string& path, const RankResult& result, Files& files = real_files());

/// Throws std::runtime_error naming the file if it is missing, malformed, damaged or of an unknown version.
RankResult read_rank_result(const std::string& path);

/// What was trained beside a recording and is in no trace: "a second optimizer (SGD)" took 20 steps.
struct Unrecorded {
  std::string what;
  int64_t steps = 0;
  bool at_least = false;  ///< its process has not said its last word
};

/// The exception, or the status, that ended a rank before its time.
struct ProbeEnd {
  int64_t after = 0;  ///< whole steps
  std::string error, where;
  bool of_others = false;  ///< a lost connection or a time limit: another rank is the likely cause
  double at = 0;           ///< seconds since 1970
};

/// rank-<r>.probe.json: what the probe says of itself beside a trace.
struct ProbeReport {
  bool there = false;
  std::string problem;  ///< it cannot be read: why
  std::string tier, torch, wrapper;
  bool samples = false, loss = false, row_losses = false, done = false;
  int64_t steps = 0;
  int world_size = 1;
  std::vector<std::string> metrics, notes;
  double seconds = 0, probe_seconds = 0;
  std::vector<Unrecorded> unrecorded;
  std::optional<ProbeEnd> ended;
  std::vector<int64_t> led;             ///< steps that another run led
  std::string led_problem;              ///< why it was not led, or not any longer
  std::map<std::string, double> other_start;  ///< of a led run: parameters that began otherwise than the reference's, and how far apart, relative
  /// And buffers and averages that the program changed between an update and the next step, by that update's step: how far from the reference's.
  std::map<int64_t, std::map<std::string, double>> changed_after;
  /// Of averages of the weights: {the old average's share, that of the weights before the update}, the reference's and then the run's own.
  std::map<int64_t, std::vector<std::vector<double>>> averaged;
  std::vector<std::string> narrow;      ///< of a run in float64: operations that computed in a narrower type
  std::map<int64_t, std::vector<std::string>> narrow_gradients;  ///< and gradients with the digits of one, by step
  std::vector<std::string> casts;       ///< and where its forward passes asked for a 16-bit type: "train.py:59"
  std::vector<std::string> gathers;     ///< of a run whose gathers carry gradients: what they do by themselves, see otherwise.py
};
ProbeReport read_probe_report(const std::string& dir, int rank);

/// What the reports of all ranks of a run say together. Empty texts: nothing is known.
struct RunAccount {
  std::string ended;       ///< "ended after 4 steps: rank 1, RuntimeError: … (train.py:72)"
  std::string unrecorded;  ///< "a second optimizer (SGD) took 20 steps that are not recorded"
  std::vector<std::string> also;  ///< folders with further trainings of the run
  bool leaves_open = false;       ///< the probe chose what to record, and at least as many steps are not recorded as are
};
RunAccount read_run_account(const std::string& dir);

}  // namespace lockstep
